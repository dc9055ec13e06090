"""What can be told of one sink alone: lost, twice, foreign, vanished, early, out of order, stale, kept back. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from onceonly_proof.auditor.anomalies import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceonly_proof.auditor.lookup import Facts, Findings
    from onceonly_proof.auditor.world import Input, Seen, World

    Rows: TypeAlias = list[tuple[Seen, Input]]

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Shown:
    """What one sink shows at the end. ``visible`` is there for readers; ``missing`` is due and nowhere in the target.

    What is due and kept from readers is in neither.
    """

    rows: Rows
    visible: list[Input]
    missing: list[Input]


class SinkCheck:
    """The checks of one sink."""

    def __init__(self, sink: str, world: World, facts: Facts, findings: Findings) -> None:
        self._sink = sink
        self._facts = facts
        self._add = findings.add
        self._keyless = sink in world.keyless
        self._is_upsert = sink in world.upserts
        self._at_end = [row for row in world.at_end if row.sink == sink]
        self._during = [row for row in world.during if row.sink == sink]
        self._behind = [row for row in world.uncommitted if row.sink == sink]
        self._void = frozenset().union(*(each.void for each in facts.decisions))

    def run(self) -> Shown:
        """Find what is wrong in this sink, and return what it shows, for the checks that look at several."""
        rows = self._known(self._at_end)
        stood = {(each.place, each.order, each.value) for each in self._at_end}
        watched = self._known(
            each for each in self._during if (each.place, each.order, each.value) not in stood
        )
        self._check_times(rows)
        for seen, row in rows:
            if seen.transaction in self._void:
                self._add(
                    Anomaly.ABORTED_READ, _place(seen), self._facts.where(row), "is of", seen.transaction
                )
        if self._is_upsert:
            return self._upserts(rows)
        self._check_vanished(watched)
        self._check_order(rows)
        return self._appended(rows)

    def _known(self, given: Iterable[Seen]) -> Rows:
        """Pair rows with the inputs that they are; what is no input is foreign."""
        inputs, keyless = self._facts.by_value, self._keyless
        rows: Rows = []
        for seen in given:
            row = inputs.get(seen.value) if seen.value is not None else None
            if row is None:
                self._add(Anomaly.FOREIGN, _place(seen), f"{(seen.value or b'')[:_SHOWN]!r}", "never went in")
            elif not keyless and seen.key != row.key:
                self._add(
                    Anomaly.FOREIGN,
                    _place(seen),
                    self._facts.where(row),
                    f"has the key {seen.key!r}, not {row.key!r}",
                )
            else:
                rows.append((seen, row))
        return rows

    def _check_times(self, rows: Rows) -> None:
        facts, early = self._facts, set[int]()
        # Without barriers nobody can tell which epoch a row is of.
        for seen, row in (*rows, *self._watched()) if facts.tells_epochs else ():
            index = facts.index_of(row)
            decision = facts.decisions[index] if index is not None else None
            if decision is None or not decision.is_commit:
                why = "was never decided"
            elif (
                decision.decided_s is not None
                and seen.seen_s is not None
                and seen.seen_s < decision.decided_s
            ):
                why = f"was decided {decision.decided_s - seen.seen_s:.3f} s later"
            else:
                continue
            if row.id not in early:
                early.add(row.id)
                self._add(Anomaly.VISIBLE_BEFORE_DECISION, _place(seen), facts.where(row), why)

    def _watched(self) -> Iterator[tuple[Seen, Input]]:
        """Yield what was watched, whether it still stands or not."""
        inputs = self._facts.by_value
        for seen in self._during:
            row = inputs.get(seen.value) if seen.value is not None else None
            if row is not None:
                yield seen, row

    def _check_vanished(self, watched: Rows) -> None:
        behind = {(each.place, each.order, each.value) for each in self._behind}
        gone = {(seen.place, seen.order, row.id): (seen, row) for seen, row in watched
                if (seen.place, seen.order, seen.value) not in behind}  # fmt: skip
        for seen, row in gone.values():
            self._add(Anomaly.ABORTED_READ, _place(seen), self._facts.where(row), "was seen and is gone")

    def _check_order(self, rows: Rows) -> None:
        places: dict[str, Rows] = {}
        for seen, row in rows:
            if seen.order >= 0:
                places.setdefault(seen.place, []).append((seen, row))
        for found in places.values():
            newest: dict[str, Input] = {}
            known: set[int] = set()
            for seen, row in sorted(found, key=lambda item: item[0].order):
                before = newest.get(row.partition)
                # The second copy of a row is no matter of order.
                if before is None or row.position > before.position:
                    newest[row.partition] = row
                elif row.id not in known:
                    self._add(
                        Anomaly.OUT_OF_ORDER,
                        _place(seen),
                        self._facts.where(row),
                        f"comes after id {before.id}",
                    )
                known.add(row.id)

    def _appended(self, rows: Rows) -> Shown:
        visible: dict[int, Input] = {}
        for seen, row in rows:
            if row.id in visible:
                self._add(Anomaly.DUPLICATED, _place(seen), self._facts.where(row), "is there once more")
            visible[row.id] = row
        absent = [row for row in self._facts.due if row.id not in visible]
        return Shown(rows, list(visible.values()), self._without_kept_back(absent))

    def _upserts(self, rows: Rows) -> Shown:
        standing: dict[bytes | None, Input] = {}
        for seen, row in rows:
            if row.key in standing:
                self._add(Anomaly.DUPLICATED, _place(seen), f"key {row.key!r} has one more row")
            standing[row.key] = row
        absent: list[Input] = []
        outdated: list[Input] = []
        for key, newest in self._newest().items():
            last, stands = next(iter(newest.values())), standing.get(key)
            if stands is None:
                absent.append(last)
            elif self._is_stale(stands, newest):
                outdated.append(last)
                where = f"{self._facts.where(stands)}, and {self._facts.where(last)} is newer"
                self._add(Anomaly.STALE_UPSERT, self._sink, f"key {key!r} stands at", where)
        return Shown(rows, list(standing.values()), self._without_kept_back(absent) + outdated)

    def _without_kept_back(self, absent: list[Input]) -> list[Input]:
        """Sort what no careful reader gets into what is in the target all the same, and what is lost."""
        behind = {each.value: each for each in self._behind}
        lost: list[Input] = []
        for row in absent:
            there = behind.get(row.value)
            if there is not None and self._is_decided(row):
                self._add(
                    Anomaly.UNSEEN_AFTER_HEALING,
                    _place(there),
                    self._facts.where(row),
                    "is kept from readers",
                )
            else:
                lost.append(row)
                self._add(Anomaly.LOST, self._sink, self._facts.where(row), "is not visible")
        return lost

    def _is_decided(self, row: Input) -> bool:
        if not self._facts.tells_epochs:
            return True
        index = self._facts.index_of(row)
        return index is not None and self._facts.decisions[index].is_commit

    def _newest(self) -> dict[bytes | None, dict[str, Input]]:
        """Return for each key the last due row of each input partition in the key's newest epoch.

        Which of two partitions' rows of one epoch comes last is nobody's promise, so each of them may stand.
        """
        found: dict[bytes | None, tuple[int, dict[str, Input]]] = {}
        for row in self._facts.due:
            index = self._facts.index_of(row)
            epoch = -1 if index is None else index
            at, newest = found.get(row.key, (-2, {}))
            if epoch > at:
                found[row.key] = epoch, {row.partition: row}
            elif epoch == at and (
                row.partition not in newest or newest[row.partition].position < row.position
            ):
                newest[row.partition] = row
        return {key: newest for key, (_, newest) in found.items()}

    def _is_stale(self, row: Input, newest: dict[str, Input]) -> bool:
        index, due = self._facts.index_of(row), self._facts.index_of(next(iter(newest.values())))
        if index != due:
            return index is not None and due is not None and index < due
        return row.partition in newest and row.position < newest[row.partition].position


def _place(seen: Seen) -> str:
    """Name a place for people."""
    return f"{seen.sink} {seen.place}" + (f"@{seen.order}" if seen.order >= 0 else "")
