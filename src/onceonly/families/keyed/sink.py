"""The sink that keyed sinks derive from: versions, the laws of keys and staging are here, the target is theirs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from onceonly import background
from onceonly.errors import (
    ConfigurationError,
    RecordRefusedError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.families import behind
from onceonly.families.columns import require_told_apart
from onceonly.families.keyed.attempt import KeyedAttempt
from onceonly.families.keyed.once import require_once
from onceonly.families.keyed.options import DECLARED, Columns
from onceonly.families.keyed.rows import KEY, KeyedRows
from onceonly.families.keyed.versions import GENERATION, Origin, generation_of, try_of
from onceonly.families.staged import StagedSink
from onceonly.families.staged.sink import named, newest_of
from onceonly.model import Capabilities, Guarantee
from onceonly.ports.standing import COUNTED, Held, Untold
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.errors import OnceonlyError
    from onceonly.families.keyed.rows import Newer
    from onceonly.families.staged import StagedRows
    from onceonly.families.staged.area import StagedAttempt
    from onceonly.model import Handle
    from onceonly.options import Option
    from onceonly.ports import Leftover, QueryContext, Refused, WriteContext

WRITE_AGAIN = (
    "restore what is newer; or start on a new checkpoint from an older offset of the source: rows that are there "
    "already are written over, none is there twice"
)
BOOKS_EPOCHS = 10
"""How many epochs back the books of a query keep the names of what was applied."""


class KeyedSink(StagedSink):
    """A store of rows by their keys, without transactions. Derive from it, and define its abstract methods.

    Early, only the keys are staged: they wait for the decision as rows would, so that a key that two slots have is
    found before it.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset({Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE}),
        recovers=True,
        whole_epochs=True,
        gives_back=True,
        early=True,
    )
    declared: ClassVar[tuple[Option, ...]] = (*StagedSink.declared, *DECLARED)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.columns = Columns.of(self.options, f"the sink {self.name}")
        self._noted: int | None = None

    # --- what a sink defines, beside ``known`` and ``void`` of the staged family -----------------------------

    @abstractmethod
    def put(self, rows: KeyedRows, version: int) -> tuple[Sequence[Refused], Newer | None]:
        """Put or delete rows, each unless its key has a greater version. From several threads of driver or executor.

        The same again changes nothing; a key that is deleted keeps the version for the time of ``tombstones``. Return
        those that the target will never take, by their places in ``rows``, and one whose key has a greater version.
        Raises ``UnavailableError`` for what may pass, another typed error for what does not.
        """

    @abstractmethod
    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        """Note names as applied and the epoch as its query's newest, unless a newer one is noted. Driver, idempotent.

        All or nothing. Return the newest epoch that the books have, with nothing noted, where that is older than
        ``since`` (-1 where there is none); else None. Raises ``UnavailableError`` where a name is void. Names that are
        ``BOOKS_EPOCHS`` older may be forgotten.
        """

    @abstractmethod
    def newest(self, query: str, sink: str) -> int | None:
        """Return the newest epoch of a query's sink by the books. Driver; only looks. Raises ``UnavailableError``."""

    @abstractmethod
    def generation(self, query: str, sink: str, *, above: int = 0) -> int:
        """Return the number of a query's sink among all that have come to the target, given once. Driver, idempotent.

        Where it is not greater than ``above``, it is given anew, and is, as are all that are given later. Raises a
        typed error.
        """

    @abstractmethod
    def generations(self) -> int:
        """Return the greatest number that was given to a query's sink. Driver; only looks. Raises a typed error."""

    def life(self) -> str:
        """Return a text that becomes another one where the target may have lost rows that it said it had.

        For one that does so, as by a fail-over: its ``note`` raises ``UnavailableError`` where ``origin.life`` is not
        empty and another than its own at that moment. Anywhere; only looks. Raises ``UnavailableError``.
        """
        return ""

    def lost(self, keys: Sequence[str], version: int) -> str | None:  # noqa: ARG002  for those with lives
        """Return one of the keys that has neither this version nor a greater one. Driver; only looks.

        Raises ``UnavailableError``.
        """
        return None

    def seal(self, staged: Mapping[str, StagedRows], origin: Origin) -> None:
        """See that what was put is there, and let each server that has a part of it bear witness, before it is noted.

        For a target of several servers, of which one may lose what another has noted. Driver, idempotent. Raises
        ``UnavailableError`` where the life is another than ``origin.life``, ``TargetBehindError`` where rows that were
        noted are gone.
        """

    def versions(self) -> Mapping[int, int] | None:
        """Count the rows that stand by their versions, whoever wrote them; None where the target does not tell.

        An operator's process: it may read all keys. Only looks. Raises ``UnavailableError``.
        """
        return None

    def read_by_version(self, columns: Sequence[tuple[str, str]]) -> Mapping[int, Held] | None:  # noqa: ARG002
        """Read the rows that stand, and add them up by their versions; None where they are only counted.

        ``columns`` are names and Spark types of the rows as they were written. Operator's process; reads a part at a
        time. Raises ``UnavailableError``.
        """
        return None

    def look(self, context: QueryContext) -> Mapping[str, str | int]:  # noqa: ARG002  for those who look
        """See whether the target can be written to: limits, permissions, types of columns; return facts of its own.

        Driver; as ``check``.
        """
        return {}

    def unfit(self, rows: KeyedRows) -> Iterable[Refused]:  # noqa: ARG002  for those who look
        """Yield the rows that the target will never take, by their places in ``rows``. Executor; only looks."""
        return ()

    @abstractmethod
    def examine(self, rows: KeyedRows, version: int) -> Newer | None:
        """See whether the target would take rows that wait for a decision, and change nothing. Driver.

        Return a key that has a greater version. Raises what ``rehearse`` may.
        """

    # --- what the family does -------------------------------------------------------------------------------

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        if context.columns:
            require_told_apart((name for name, _ in context.columns), f"the sink {self.name}")
            self.columns.check(dict(context.columns), f"the sink {self.name}")
        found = self.look(context)
        own = {GENERATION: self.generation(context.query, context.sink)}
        stood = behind.stood(self.newest(context.query, context.sink))
        return {**super().check(context), **found, **own, **stood}

    def begin_transaction(self, context: WriteContext) -> KeyedAttempt:
        is_exact = context.guarantee is Guarantee.EXACTLY_ONCE
        staged = super().begin_transaction(context) if is_exact else None
        return KeyedAttempt(context, self.columns, staged)

    def write(self, transaction: StagedAttempt, batch: pa.RecordBatch) -> Sequence[Refused]:
        attempt = _own(transaction)
        rows, places, refused = attempt.choice.choose(batch, self.unfit)
        if attempt.at_once and places:
            if attempt.is_staged and not attempt.origin.life:
                attempt.origin = replace(attempt.origin, life=self.life())
            told, newer = self.put(rows, attempt.origin.version)
            if newer is not None:
                raise self._overtaken(newer, attempt.origin)
            refused += [replace(each, row=places[each.row]) for each in told]
            rows = rows.without({each.row for each in told})
        if refused and not attempt.context.gives_back:
            raise RecordRefusedError(
                f"a row of the sink {self.name}: {refused[0].why}", next_step=refused[0].next_step
            )
        if rows.keys:
            attempt.write(rows.staged(keys_only=attempt.at_once))
        return refused

    def pre_commit(self, transaction: StagedAttempt) -> Handle | None:  # type: ignore[override]  # at least once
        return super().pre_commit(transaction) if _own(transaction).is_staged else None

    def rehearse(self, handles: Sequence[Handle], facts: Mapping[str, str | int]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        stood = behind.stood_by(facts)
        if self._noted is None and stood > behind.NOTHING:  # else the commit sees
            query, _, sink = str(handles[0].data["folder"]).rpartition("/")
            behind.refuse_forgotten(f"the target of the sink {self.name}", stood, self.newest(query, sink))
        life = self.life()
        keys: dict[str, pa.ChunkedArray] = {}
        for name, rows in self.staged(handles).items():
            mine: list[pa.Array] = []
            for batch in rows.batches():
                mine.append(batch.column(KEY))
                origin = Origin.read(batch.schema)
                if self._lost(batch, origin, life) is not None:
                    raise UnavailableError(
                        f"the target of the sink {self.name} has lost rows of chk-{origin.epoch} before it was "
                        "decided: it was started anew, or another server has taken over",
                        next_step="nothing: the epoch is run again, and writes them again",
                    )
                newer = None if origin.early else self.examine(KeyedRows.read(batch), origin.version)
                if newer is not None:
                    raise self._overtaken(newer, origin)
            keys[name] = pa.chunked_array(mine, pa.string())
            if self.columns.sequence is not None:  # it has decided within a slot
                keys[name] = pa.chunked_array([pc.unique(keys[name])])
        require_once(keys, self.name, has_sequence=self.columns.sequence is not None)

    def apply(self, staged: Mapping[str, StagedRows]) -> None:
        life = self.life()
        origins = background.spread(
            "onceonly-apply",
            partial(self._put_all, life=life),
            list(staged.values()),
            threads_max=self.options["threads"],
        )
        origin = replace(origins[0], life=life)
        self.seal(staged, origin)
        since = -1 if self._noted is None else self._noted
        found = self.note(origin, list(staged), since=since)
        if found is not None:
            behind.refuse_forgotten(f"the target of the sink {self.name}", since, found)
        self._noted = max(origin.epoch, self._noted or 0)

    def held_by_epoch(
        self, context: QueryContext, links: Mapping[int, int]
    ) -> Mapping[int, Held] | Untold | None:
        if self.columns.op is not None or self.columns.sequence is not None:
            option = "op" if self.columns.op is not None else "sequence"
            return Untold(f"with {option}, an epoch's rows are not as many as its keys that stand")
        if self.newest(context.query, context.sink) is None:
            return None
        own = self.generation(context.query, context.sink)  # given long ago
        found = self.read_by_version(context.columns) if context.columns else None
        if found is None:
            counts = self.versions()
            if counts is None:
                return Untold("it has rows of which nobody knows when they were written")
            found = {version: Held(rows=rows, unread=COUNTED) for version, rows in counts.items()}
        held: dict[int, Held] = {}
        for version, found_of in found.items():
            epoch, index = try_of(version)
            if generation_of(version) != own:
                continue
            # Who writes over a row in OpenSearch makes its version greater by one.
            some = found_of if index <= links.get(epoch, index) else _changed(found_of)
            held[epoch] = _together(held[epoch], some) if epoch in held else some
        return held

    def newest_epoch(self, context: QueryContext) -> int | None:
        return self.newest(context.query, context.sink)

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        found = list(super().recover(context))
        # Who has committed itself knows that the target is not ahead of the checkpoint.
        newest = self.newest(context.query, context.sink) if self._noted is None else None
        return found if newest is None else [*found, newest_of(context, newest)]

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        names = named(handles)
        if not names or names.keys() <= set(self.known(names)):
            return
        behind.refuse_unknown(
            f"Query {context.query} has committed chk-{epoch} to the sink {context.sink}",
            epoch,
            self.newest(context.query, context.sink),
            kept=BOOKS_EPOCHS,
            advice=WRITE_AGAIN,
            goes_on=self.options[behind.OPTION] == behind.GO_ON,
        )

    # --- its parts ------------------------------------------------------------------------------------------

    def _put_all(self, staged: StagedRows, life: str) -> Origin:
        """Put what one attempt has staged, one row of a key; what is there already changes nothing. Driver."""
        last: dict[str, int] = {}
        origin: Origin | None = None
        for number, batch in enumerate(staged.batches()):
            origin = Origin.read(batch.schema)
            if not number:
                last = self._last(staged, origin)
            if origin.early:  # as all of the attempt
                if origin.life == life:
                    break
                self._require_seen(batch, origin, life)
                continue
            rows = KeyedRows.read(batch)
            rows = rows.without({row for row, key in enumerate(rows.keys) if last.get(key, number) != number})
            if not rows.keys:
                continue
            refused, _ = self.put(
                rows, origin.version
            )  # what is newer was written since: a late driver is harmless
            if refused:
                raise self._refusal(rows, refused[0])
        if origin is None:
            message = f"{staged.name} holds no rows, and only an attempt with rows has a handle"
            raise ValueError(message)
        return origin

    def _lost(self, batch: pa.RecordBatch, origin: Origin, life: str) -> str | None:
        """Return a key of rows that were seen early, and that the target has lost since."""
        if not origin.early or origin.life in {"", life} or not batch.num_rows:
            return None
        return self.lost(batch.column(KEY).to_pylist(), origin.version)

    def _require_seen(self, batch: pa.RecordBatch, origin: Origin, life: str) -> None:
        """See that rows which were seen early, and are decided, are still there. Raises ``TargetBehindError``."""
        lost = self._lost(batch, origin, life)
        if lost is not None:
            behind.refuse(
                f"The target of the sink {self.name} has lost rows of chk-{origin.epoch} since they were seen, as that "
                f"with the key {lost}: it was started anew, or another server has taken over",
                WRITE_AGAIN,
                goes_on=self.options[behind.OPTION] == behind.GO_ON,
            )

    def _last(self, staged: StagedRows, origin: Origin) -> dict[str, int]:
        """Return of each key in which batch its last row is: the only one that counts, as all have one version.

        Of rows that are in the target already, none, nor where no sequence chose among them: their keys are there once,
        and nothing is read for it.
        """
        chosen = self.columns.sequence is not None if origin.chosen is None else origin.chosen
        found: dict[str, int] = {}
        if origin.early or not chosen:
            return found
        for number, batch in enumerate(staged.batches()):
            found.update(dict.fromkeys(batch.column(KEY).to_pylist(), number))
        return found

    def _overtaken(self, newer: Newer, origin: Origin) -> OnceonlyError:
        """Return what it means that a row's key has a greater version before the row was decided."""
        held = generation_of(newer.version)
        if held <= generation_of(origin.version):
            return WriteFailedError(
                f"the key {newer.key} of the sink {self.name} was written by a later try than this one at "
                f"chk-{origin.epoch}, or by a later epoch",
                next_step="nothing: the later one writes its rows itself",
            )
        if held <= self.generations():
            return ConfigurationError(
                f"the key {newer.key} of the sink {self.name} was written by another query, which came to this target "
                "later: its rows would always win",
                next_step="let one query write a key: give each a target of its own; or stop the other one, and start "
                "this one on a new checkpoint",
            )
        self.generation(origin.query, origin.sink, above=held)
        return UnavailableError(
            f"the books of the sink {self.name} were lost: its target has rows of queries that they do not know, as "
            f"the one with the key {newer.key}",
            next_step="nothing: versions begin above those of all rows now, and the next start goes on",
        )

    def _refusal(self, rows: KeyedRows, refused: Refused) -> RecordRefusedError:
        return RecordRefusedError(
            f"the row of the sink {self.name} with the key {rows.keys[refused.row]}: {refused.why}",
            next_step=refused.next_step,
        )


def _own(attempt: StagedAttempt) -> KeyedAttempt:
    """Return what the runtime hands back, as this sink has made it."""
    return cast("KeyedAttempt", attempt)


def _changed(some: Held) -> Held:
    """Return what stands of an epoch by a version that no try at it had."""
    return Held(rows=0, wrong=(f"{n(some.rows, 'row')} of it somebody has written over since",))


def _together(one: Held, other: Held) -> Held:
    """Return what two tries at an epoch have left of it; what they add up to says nothing of the last one's rows."""
    return Held(
        rows=one.rows + other.rows, wrong=one.wrong + other.wrong, unread="rows of an earlier try stand, too"
    )
