"""Throughput: all records are in the topic before, and the query reads them as fast as it can."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks import reading
from benchmarks.figures import counts, steady
from benchmarks.lives import FailedError
from benchmarks.processes import Probe
from benchmarks.values import Measured
from benchmarks.visible import Visible
from benchmarks.world import windows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.contenders.base import Contender
    from benchmarks.lives import Contending
    from benchmarks.reading import Partition
    from benchmarks.values import Outcome, Run
    from benchmarks.world import World

_LOOK_S = 1.0
# Longer than any contender pauses between two epochs or checkpoints while it has work.
_STALLED_S = 60.0
_QUIET_S = 1.5
_MILLION = 1_000_000


def warm_up(
    world: World, contender: Contender, contending: Contending, run: Run, say: Callable[[str], None]
) -> None:
    """Let a fresh process write what it will be measured by. Raises ``FailedError``."""
    for record, times in world.sizes.warm_runs.items():
        records = world.sizes.records[record]
        work = type(run.work)(kind="pass", record=record, interval_ms=run.work.interval_ms)
        source = world.input(work, records, say)
        for _ in range(times):
            with world.place(run, source=source, per_epoch=_per_epoch(world, records)) as place:
                contending.order("start", **contender.order(work, place))
                with Visible(world.admin, place.target, world.partitions) as visible:
                    _until(visible, contending, records)
                contending.order("stop")


def measure(
    world: World, contender: Contender, contending: Contending, run: Run, say: Callable[[str], None]
) -> Measured:
    """Run it, and count what came out. Raises ``FailedError`` where the contender stops; the next run needs another."""
    is_window = run.work.kind == "window"
    records = world.sizes.window_records if is_window else world.sizes.records[run.work.record]
    source = world.input(run.work, records, say)
    wanted = windows(records, world.partitions).total() if is_window else records
    per_epoch = _per_epoch(world, records)
    with world.place(run, source=source, records=records, per_epoch=per_epoch) as place:
        with (
            Probe(contending.process.members, world.kafka.pid) as probe,
            Visible(world.admin, place.target, world.partitions) as visible,
        ):
            began_s = time.monotonic()
            contending.order("start", **contender.order(run.work, place))
            whole = _until(visible, contending, wanted)
            # Who writes too much does so now.
            settle(visible)
        contending.order("stop")
        say("counting what came out")
        found = reading.read(place.servers, place.target, place.partitions, windows=is_window)
    lost, doubled = (
        reading.wrong_windows(found, windows(records, world.partitions))
        if is_window
        else reading.missing_and_again(found, records)
    )
    why = "" if whole else f"nothing new became visible for {_STALLED_S:.0f} s"
    figures = {f"memory_mib_{kind}": peak for kind, peak in probe.peaks_mib.items()}
    figures |= _speed(visible, found, probe, began_s, records / wanted)
    return Measured(
        run=run,
        outcome=outcome(lost, doubled),
        why=why,
        records=records,
        lost=lost,
        doubled=doubled,
        figures=figures,
    )


def _per_epoch(world: World, records: int) -> int:
    return -(-records // world.sizes.epochs)


def outcome(lost: int, doubled: int) -> Outcome:
    """Judge what was counted. Pure."""
    return "lost" if lost else "doubled" if doubled else "whole"


def _until(visible: Visible, contending: Contending, rows: int) -> bool:
    """Wait until so many rows may be visible and no more come; say whether they did before the contender stalled."""
    while not visible.wait_for(rows, _LOOK_S):
        contending.order("check")
        if visible.still_for_s() > _STALLED_S:
            if visible.reached == 0:
                raise FailedError(
                    f"nothing became visible in {_STALLED_S:.0f} s; its last lines:\n"
                    f"{contending.process.last_lines()}",
                    next_step="see whether the machine is busy, then run the benchmark again",
                )
            return False
    return True


def settle(visible: Visible) -> None:
    """Wait until nothing new comes. Offsets of markers count as rows, so a little may have been missing."""
    while (left_s := _QUIET_S - visible.still_for_s()) > 0:
        time.sleep(left_s)


def _speed(
    visible: Visible, found: Sequence[Partition], probe: Probe, began_s: float, weight: float
) -> dict[str, float]:
    """Return the figures of the steady part; ``weight`` are the records that stand behind each row that came out."""
    rows = counts(visible.marks, [each.offsets for each in found]).tolist()
    figures = {"whole_s": round(visible.times_s[-1] - began_s, 3)}
    part = steady(visible.times_s, rows, rows[-1])
    if part is None:
        return figures
    begin, end = part
    begin_s, end_s = visible.times_s[begin], visible.times_s[end]
    records = (rows[end] - rows[begin]) * weight
    return figures | {
        "records_per_s": round(records / (end_s - begin_s), 1),
        "steady_s": round(end_s - begin_s, 3),
        "steady_share": round((rows[end] - rows[begin]) / rows[-1], 3),
        "cpu_s_per_million": round(probe.cpu_s(begin_s, end_s) / records * _MILLION, 3),
        "broker_cpu_s_per_million": round(probe.broker_cpu_s(begin_s, end_s) / records * _MILLION, 3),
    }
