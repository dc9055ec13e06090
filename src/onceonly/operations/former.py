"""What a savepoint's query has done since, where its checkpoint was at home; and its end there, for a restored one.

A restored job is the same query at an earlier point. So nobody may go on at the former place: a claim is put there,
with which a driver that lives after all ends as superseded, and its log says that it is at home elsewhere.
"""

from __future__ import annotations

import secrets
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly import events
from onceonly.errors import ConfigurationError, InDoubtError, LogError, OnceonlyError, UnavailableError
from onceonly.log import identity
from onceonly.log.actions import OPERATOR, ActionFiles
from onceonly.log.history import by_sink, summarise
from onceonly.log.left import RESTORED, is_end
from onceonly.log.opening import look
from onceonly.log.place import home_of
from onceonly.model import Link, LinkKind
from onceonly.operations import settle, sinks
from onceonly.operations.find import open_checkpoint
from onceonly.protocol import repeats
from onceonly.savepoints import starting
from onceonly.settings.registry import BUILT_IN
from onceonly.words import epoch_ranges, n

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from onceonly.coordinator.coordinator import Participant
    from onceonly.log.actions import Action
    from onceonly.model import SinkUse
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.ports import Leftover
    from onceonly.savepoints.manifest import Savepoint

    After: TypeAlias = list[tuple[Checkpoint, list["Beyond"]]]

FORK = "onceonly savepoint fork --same-targets: the fork writes again what the savepoint does not have"
_TRIES = 5
_KEYED = frozenset({"redis", "cassandra", "opensearch", "elasticsearch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """What was decided for one sink in epochs after a savepoint's: which, how many rows, and where they stand."""

    sink: str
    epochs: tuple[int, ...]
    rows: int
    use: SinkUse | None = None
    target: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        where = ", ".join(f"{key}={value}" for key, value in self.target.items())
        return f"sink {self.sink}{f' ({where})' if where else ''}: {n(self.rows, 'row')} of {epoch_ranges(self.epochs)}"

    @property
    def again(self) -> str:
        """Say what it means that its rows are written again."""
        if self.use is not None and (_short(self.use) in _KEYED or self.use.options.get("key")):
            return "they are written by key, so the same again is harmless; a key that is not written any more stays"
        return "they will be there twice, unless you take them away yourself"


def trail(
    savepoint: Savepoint, to: str, *, now: str = "", given_up: bool = False
) -> tuple[list[Checkpoint], bool]:
    """Open the checkpoints in which the query of a savepoint has gone on, from where that was at home, by its moves.

    The last of them is where it is now, if the second value is true; else nothing is left of that. ``to`` is where it
    is being restored to; ``now`` where its checkpoint was moved to by hand, which nothing in the savepoint tells.

    Raises ``UnavailableError``, ``ConfigurationError`` where one cannot be asked, unless it is ``given_up`` and counts
    as gone; ``LogError`` for a damaged one.
    """
    found: list[Checkpoint] = []
    at, target = home_of(now) if now else savepoint.home, home_of(to)
    while True:
        try:
            # A restored one that was not finished has never run. What has run where it is being restored to is gone.
            if starting.is_begun(at):
                return found, bool(found)
            each = _opened(at) if at != target else None
        except (ConfigurationError, UnavailableError) as error:
            if not given_up:
                raise type(error)(
                    f"the query of the savepoint was at home at {at}, which cannot be asked: {error.what}",
                    next_step=f"{error.next_step}; or, if that place is gone for good, add --output again --force: the "
                    "job goes on under an id of its own, and nobody keeps the former one from going on",
                ) from error
            each = None
        if each is None or (not found and each.log.token != savepoint.log):
            return found, False
        found.append(each)
        if each.moved is None or any(each.home == earlier.address for earlier in found):
            return found, True
        at = each.home


def _opened(home: str) -> Checkpoint | None:
    try:
        return open_checkpoint(home)
    except LogError:
        if identity.identity_token(home) is None:
            return None
        raise


def since(checkpoint: Checkpoint, savepoint: Savepoint) -> int:
    """Return the epoch after which a checkpoint of the trail has decided anything later than a savepoint; -1 for all.

    A query that went on under an id of its own counts its epochs for itself: all that it has written came later.
    """
    return savepoint.epoch if checkpoint.log.token == savepoint.log else -1


def has_gone_on(checkpoint: Checkpoint, savepoint: Savepoint) -> bool:
    """Tell whether a checkpoint has decided an epoch after a savepoint's, be it without a row."""
    after = since(checkpoint, savepoint)
    chains = (checkpoint.log.chain(number) for number in checkpoint.log.epochs() if number > after)
    return any(chain and chain[-1].kind is LinkKind.COMMIT for chain in chains)


def taken_back(checkpoint: Checkpoint) -> Action | None:
    """Return the record of who has taken back what a query decided here, or has begun to; None where nobody has.

    Of several the one that goes back furthest. What was taken back before the query began here was under no claim here.
    """
    found = [each for each in ActionFiles(checkpoint.store).newest() if each.plan and each.withdrawn]
    return min(found, key=lambda each: each.epoch, default=None)


def refuse_undone(lives: Sequence[Checkpoint], savepoint: Savepoint, decided: Link) -> None:
    """Raise where a savepoint's epoch, which was ``decided``, was taken back since: its rows are in no target."""
    own = [each for each in lives if each.log.token == savepoint.log]
    if not own:
        return
    taken = taken_back(own[-1])
    if taken is not None and taken.epoch < savepoint.epoch <= _taken_to(own[-1], taken):
        raise ConfigurationError(
            f"all that was decided after chk-{taken.epoch} was taken back, or was to be, also rows up to "
            f"chk-{savepoint.epoch} of the savepoint {savepoint.name}: they would be lost. {taken.sentence}",
            next_step="type that restore again as it was typed; or take a savepoint of "
            f"chk-{taken.epoch} or an earlier one; or fork this one, with targets of its own",
        )
    if _stands(own[-1], decided):
        return
    raise ConfigurationError(
        f"chk-{savepoint.epoch} of the savepoint {savepoint.name} is no epoch of its query any more: that was restored "
        f"to an earlier one since, at {own[-1].path}, and what came after it was taken back. Its rows would be lost",
        next_step="take a savepoint of the query as it is now, or an older one; or fork this one, with targets of its "
        "own",
    )


def _taken_to(checkpoint: Checkpoint, taken: Action) -> int:
    """Return the newest epoch of which rows were taken back: all that is there, unless somebody has gone on there."""
    newest = checkpoint.log.newest()
    if newest is not None and checkpoint.was_restored:
        return newest
    return max(epoch for each in taken.withdrawn for epoch in each.epochs)


def _stands(checkpoint: Checkpoint, decided: Link) -> bool:
    """Say whether a checkpoint goes on after a decision; true, too, where its log does not keep that epoch any more."""
    newest = checkpoint.log.newest()
    if newest is None or newest < decided.epoch:
        return False
    if chain := checkpoint.log.chain(decided.epoch):
        return decided in chain
    line = next((each for each in checkpoint.log.history(decided.epoch) if each.epoch == decided.epoch), None)
    own = summarise([decided], None)
    return line is None or (line.sinks, line.at) == (own.sinks, own.at)


def beyond(checkpoint: Checkpoint, epoch: int) -> list[Beyond]:
    """Return what was decided after an epoch, by sink.

    Raises ``InDoubtError`` where the newest decision is not known to be committed: what stands there cannot be told.
    """
    outputs: dict[int, Mapping[str, tuple[int, int]]] = {}
    said: dict[str, Link] = {}
    for number in checkpoint.log.epochs():
        chain = checkpoint.log.chain(number) if number > epoch else ()
        if not chain or chain[-1].kind is not LinkKind.COMMIT:
            continue
        if checkpoint.log.receipt(number) is None:
            # What is lost only a start writes again.
            told, ends = "not known to be committed: nobody could tell what stands in its targets", ""
            if repeats(chain[-1]):
                told, ends = (
                    "in part lost, to be written again",
                    "start the query once, which writes it again",
                )
            raise InDoubtError(
                f"chk-{number} of {checkpoint.path} is decided, and {told}",
                next_step=f"{ends or f'onceonly transactions commit chk-{number} {shlex.quote(checkpoint.path)}'}, "
                f"then run this again; or, where that is not possible or wanted, {FORK}",
            )
        outputs[number] = by_sink(chain[-1])
        said |= dict.fromkeys(chain[-1].settings, chain[-1])
    # Read last: what was folded meanwhile is in a line by now.
    for line in checkpoint.log.history(epoch + 1):
        if line.kind is LinkKind.COMMIT:
            outputs.setdefault(line.epoch, line.sinks)
    rows: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for number in sorted(outputs):
        for sink, (count, _) in outputs[number].items():
            if count:
                rows[sink][number] = count
    return [
        Beyond(
            sink=sink,
            epochs=tuple(rows[sink]),
            rows=sum(rows[sink].values()),
            use=said[sink].uses.get(sink) if sink in said else None,
            target=said[sink].settings[sink] if sink in said else {},
        )
        for sink in sorted(rows)
    ]


def refuse_if_alive(checkpoint: Checkpoint, *, force: bool) -> None:
    """Raise where a run works at the former place; with ``force`` it is ended by the claim, wherever it runs."""
    if force:
        return
    run = checkpoint.run
    if run.alive:
        raise ConfigurationError(
            f"a run is alive on {checkpoint.path}, which the savepoint is of: {run.who}",
            next_step="stop it first; or add --force, with which it ends as superseded when it decides next",
        )
    settle.refuse_if_alive(checkpoint, force=force)


def claim(checkpoint: Checkpoint) -> str:
    """Put a claim after all that stands, so that whoever runs there decides nothing more. Idempotent.

    Return the application of the claim that stands, empty where nothing was ever begun there. Raises ``InDoubtError``
    where the newest decision has no receipt, ``UnavailableError``.
    """
    application = f"{OPERATOR}{secrets.token_hex(4)}"
    for number in range(_TRIES):
        log, _ = look(checkpoint.location)  # whose home may be elsewhere by now
        newest = log.newest()
        chain = log.chain(newest) if newest is not None else ()
        if newest is None or not chain:
            return ""  # nobody has begun an epoch
        last = chain[-1]
        if is_end(last):
            return last.application
        if last.kind is not LinkKind.ABORT and log.receipt(newest) is None:
            beyond(checkpoint, newest - 1)  # says so
        follows = last.kind is LinkKind.ABORT
        wanted = Link(
            epoch=newest if follows else newest + 1,
            index=last.index + 1 if follows else 0,
            kind=LinkKind.ABORT,
            plan=f"{application}.{number}",
            run="",
            guarantee=last.guarantee,
            settings=last.settings,
            uses=last.uses,
            reason=RESTORED,
            stamp=events.stamp(),
        )
        if log.put_link(wanted) == wanted:
            return application
    raise UnavailableError(
        f"a run on {checkpoint.path} decides faster than a claim can be put",
        next_step="stop it, then run this again",
    )


def sweep(checkpoint: Checkpoint, given: Given, ended: list[str], *, since: int | None = None) -> None:
    """Abort and fence what the former query has open in its targets, under the claim; add its names to ``ended``.

    The sinks are those of the newest epochs, and of all ``since`` one, if that is said. Raises ``ConfigurationError``
    where a sink cannot be made here, ``UnavailableError`` where a target does not answer: once the others are through.
    """
    failed: OnceonlyError | None = None
    with sinks.participants(checkpoint, given, since=since) as made:
        for name, each in made.items():
            try:
                sinks.refuse_other_target(checkpoint, given, {name: each}, since=since)
                for _, found in sinks.leftovers(checkpoint, {name: each}):
                    _end(checkpoint, name, each, found, ended)
            except OnceonlyError as error:
                failed = failed or error
    if failed is not None:
        raise failed


def _end(
    checkpoint: Checkpoint, name: str, made: Participant, found: Sequence[Leftover], ended: list[str]
) -> None:
    with sinks.asking(checkpoint, name):
        for leftover in found:
            made.sink.abort(leftover.handle)
            ended += [leftover.transaction] if leftover.is_open else []


def leave(checkpoint: Checkpoint, to: str) -> None:
    """Let the former log say that it is at home elsewhere: no start goes on there. Idempotent.

    Raises ``ConfigurationError`` where it has been given another home since it was looked at: two places would both
    be the query's, and what the one writes the other would write again.
    """
    home = identity.record_move(checkpoint.store, home_of(to), former=checkpoint.home).address
    if home != home_of(to):
        raise ConfigurationError(
            f"the query at {checkpoint.path} has been given another home meanwhile, {home}: another command restores "
            "it, or has moved it",
            next_step="see which of the two is wanted; this one goes on from there when it is run again",
        )


def stay(checkpoint: Checkpoint, to: str) -> None:
    """Take ``leave`` back: the home is where it was. Idempotent. Raises ``UnavailableError``, ``LogError``.

    So it is, too, where a command had left it that was killed before its claim.
    """
    was_left = checkpoint.home == home_of(to) and not checkpoint.was_restored
    home = checkpoint.address if was_left else checkpoint.home
    identity.record_move(checkpoint.store, home, former=home_of(to))


def _short(use: SinkUse) -> str:
    return use.sink if use.sink in BUILT_IN else ""


def sentences(found: Iterable[Beyond]) -> str:
    """Say of each sink what stands there."""
    return "; ".join(each.sentence for each in found)
