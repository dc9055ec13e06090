"""Visible latency: records come at a fixed rate, and a ``read_committed`` reader notes when it gets each.

And the time of an epoch without output: the same input, of which the query lets nothing through.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import reading
from benchmarks.contenders.base import python_path
from benchmarks.data import fill
from benchmarks.figures import percentiles
from benchmarks.lives import FailedError
from benchmarks.parts.bounded import outcome, settle
from benchmarks.processes import Probe
from benchmarks.values import RECORD_BYTES, Measured
from benchmarks.visible import Visible
from onceonly_proof.parent import PARENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.contenders.base import Contender, Place
    from benchmarks.lives import Contending
    from benchmarks.values import Run
    from benchmarks.world import World

_FIRST = 20
"""Records that make the query start; what it does for the first time is not the latency of a running one."""
_START_TIMEOUT_S = 60.0
_SILENCE_S = 20.0
_END_TIMEOUT_S = 120.0
_LOW_RATE = 50
_LOW_FACTOR = 2


def warm_up(world: World, contender: Contender, contending: Contending, run: Run) -> None:
    """Let a process pass on records at the run's rate that nobody measures. Raises ``FailedError``.

    An epoch takes half as long after some hundred others: a JVM compiles what it does often, and a young one measures
    its compiler. It is stopped when all has come out: rows of an interrupted task stay in the producer that Spark's own
    sink keeps for the next query, whose flush then waits two minutes for a topic that is gone.
    """
    rows = int(run.work.rate * world.sizes.paced_warm_s)
    with world.place(run) as place, Visible(world.admin, place.target, place.partitions) as visible:
        contending.order("start", **contender.order(run.work, place))
        _send(place, run, rows)
        if run.work.kind != "empty":
            visible.wait_for(rows, _START_TIMEOUT_S)
        settle(visible)
        contending.order("check")
        contending.order("stop")


def measure(
    world: World, contender: Contender, contending: Contending, run: Run, say: Callable[[str], None]
) -> Measured:
    """Run it, and count what came out. Raises ``FailedError`` where the contender stops; the next run needs another."""
    sizes, rate = world.sizes, run.work.rate
    seconds = sizes.empty_s if run.work.kind == "empty" else sizes.latency_s
    # Of few records there must be some more.
    seconds *= _LOW_FACTOR if rate < _LOW_RATE else 1
    warm, total = int(rate * sizes.latency_warm_s), int(rate * (seconds + sizes.latency_warm_s))
    with world.place(run) as place, Visible(world.admin, place.target, place.partitions) as visible:
        contending.order("start", **contender.order(run.work, place))
        _send_first(place, total, RECORD_BYTES[run.work.record])
        if run.work.kind == "empty":
            return _empty(world, contending, run, place, total)
        if not visible.wait_for(_FIRST, _START_TIMEOUT_S):
            contending.order("check")
            raise FailedError(
                f"the first records were not visible in {_START_TIMEOUT_S:.0f} s",
                next_step="see whether the machine is busy, then run the benchmark again",
            )
        say("sending and reading")
        path = world.folder / f"latencies-{place.name}.npz"
        with (
            Probe(contending.process.members, world.kafka.pid) as probe,
            _receiver(place, total, path) as receiver,
        ):
            sent = _send(place, run, total)
            ended = _wait(receiver)
        epochs: list[dict[str, int]] = contending.order("stop")["epochs"]
        found = reading.read(place.servers, place.target, place.partitions)
    lost, doubled = reading.missing_and_again(found, total + _FIRST)
    figures: dict[str, float] = {f"memory_mib_{kind}": peak for kind, peak in probe.peaks_mib.items()}
    figures["sender_late_ms"] = sent["late_ms"]
    figures |= _epochs(epochs)
    if ended:
        with np.load(path) as arrived:
            numbers, latencies_ms = arrived["numbers"], arrived["latencies_ms"]
        path.unlink()
        kept = latencies_ms[numbers >= warm]
        figures |= percentiles(kept) if len(kept) else {}
    return Measured(
        run=run,
        outcome=outcome(lost, doubled),
        records=total,
        lost=lost,
        doubled=doubled,
        figures=figures,
    )


def _empty(world: World, contending: Contending, run: Run, place: Place, total: int) -> Measured:
    sent = _send(place, run, total)
    contending.order("check")
    epochs: list[dict[str, int]] = contending.order("stop")["epochs"]
    rows = sum(len(each.numbers) for each in reading.read(world.servers, place.target, place.partitions))
    return Measured(
        run=run,
        # Nothing was to come out.
        outcome=outcome(0, rows),
        records=total,
        doubled=rows,
        figures={"sender_late_ms": sent["late_ms"], **_epochs(epochs)},
    )


def _epochs(epochs: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Return the median of each phase of Spark's micro-batches that had input, in ms. Pure."""
    busy = [each for each in epochs if each.get("rows", 0) > 0 and "triggerExecution" in each]
    phases = sorted({name for each in busy for name in each} - {"rows"})
    figures: dict[str, float] = {
        f"epoch_{name}_ms": float(median(each.get(name, 0) for each in busy)) for name in phases
    }
    return figures | {"epochs": float(len(busy))} if busy else {}


def _send_first(place: Place, total: int, record_bytes: int) -> None:
    # Their numbers follow on those that are measured.
    fill(
        place.servers,
        place.source,
        first=total,
        records=_FIRST,
        partitions=place.partitions,
        record_bytes=record_bytes,
    )


def _send(place: Place, run: Run, total: int) -> dict[str, Any]:
    told = {
        "servers": place.servers,
        "topic": place.source,
        "rate": run.work.rate,
        "total": total,
        "partitions": place.partitions,
        "record_bytes": RECORD_BYTES[run.work.record],
    }
    done = subprocess.run(
        _command("sender", told), env=_env(), capture_output=True, text=True, check=False, cwd="/"
    )
    answer: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    if answer.get("taken") != total:
        raise FailedError(
            f"the sender got {answer.get('taken', 0):,} of {total:,} records to the broker: {done.stderr[-500:]}",
            next_step="see whether the machine is busy, then run the benchmark again",
        )
    return answer


@contextlib.contextmanager
def _receiver(place: Place, total: int, path: Path) -> Iterator[subprocess.Popen[str]]:
    told = {
        "servers": place.servers,
        "topic": place.target,
        "total": total,
        "partitions": place.partitions,
        "silence_s": _SILENCE_S,
        "file": str(path),
    }
    with subprocess.Popen(
        _command("receiver", told), env=_env(), stdout=subprocess.PIPE, text=True, cwd="/"
    ) as process:
        try:
            assert process.stdout is not None  # noqa: S101  asked for above; tells mypy
            process.stdout.readline()
            yield process
        finally:
            process.kill()  # does nothing to one that has ended


def _wait(receiver: subprocess.Popen[str]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return receiver.wait(_END_TIMEOUT_S) == 0
    return False


def _command(module: str, told: Mapping[str, object]) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", f"benchmarks.load.{module}", json.dumps(told)]


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(), PARENT: str(os.getpid())}
