"""Judging what the two operators have counted, row by row, with the auditor; and the result as a value. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotation at run time
from typing import TYPE_CHECKING, Literal

import msgspec

from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.auditor.judge import judge
from onceonly_proof.auditor.world import Input, Seen, World
from onceonly_proof.campaign.unaligned import Series, Window
from onceonly_proof.campaign.unaligned_plan import WINDOW_S, Kill, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly_proof.campaign.unaligned_operator import Mode

VERSION = 1


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator has counted in the end.

    ``again`` says, by epoch, how many times its rows were counted after they had been counted once; ``differing`` are
    the replays of decided epochs of which onceonly itself has said that they gave other rows. ``doubts`` say why the
    output is none that can be judged.
    """

    windows: Series
    again: Mapping[int, int]
    differing: int
    anomalies: Mapping[str, int]
    examples: tuple[str, ...]
    doubts: tuple[str, ...] = ()


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The run: what went in, where it was killed, and what each operator made of it."""

    version: int = VERSION
    verdict: Literal["shown", "not shown"]
    why: tuple[str, ...]
    seed: int
    epochs: int
    rows: int
    crashes: int
    seconds: float
    kills: tuple[Kill, ...]
    aligned: Counted
    unaligned: Counted
    machine: Mapping[str, str | int | float] = {}
    versions: Mapping[str, str] = {}


class _Result(msgspec.Struct, frozen=True):
    epoch: int
    window: int
    ids: tuple[int, ...]


def audit(plan: Plan, mode: Mode, seen: Iterable[Seen], *, differing: int = 0) -> Counted:
    """Compare what stands in an operator's output after the last epoch with the input. Pure.

    The input is recounted from the plan; each time that a row was counted is one row that is seen. The output itself
    must show each result of each epoch once: else the fault would be the sink's, and that is a doubt.
    """
    results: Counter[tuple[int, bytes]] = Counter()
    last, counted = len(plan.epochs) - 1, list[Seen]()
    by_window: Counter[int] = Counter()
    for each in seen:
        result = msgspec.json.decode(each.value or b"", type=_Result)
        results[result.epoch, each.key or b""] += 1
        if result.epoch == last:
            by_window[result.window] += len(result.ids)
            place = f"window {_name(result.window)}"
            counted += [Seen(mode, None, str(number).encode(), place) for number in result.ids]
    verdict = judge(_world(plan, mode, counted))
    epochs = {epoch for epoch, _ in results}
    doubts = [f"{mode}: chk-{epoch} is not in the output" for epoch in range(last + 1) if epoch not in epochs]
    doubts += [f"{mode}: the result {key.decode()} of chk-{epoch} is in the output {count} times"
               for (epoch, key), count in results.items() if count > 1]  # fmt: skip
    times = Counter(each.value for each in counted)
    again = {
        epoch: sum(max(0, times[str(row.id).encode()] - 1) for row in rows)
        for epoch, rows in enumerate(plan.epochs)
    }
    killed, expected = plan.killed(), plan.expected()
    windows = tuple(
        Window(
            name=_name(window),
            expected=expected.get(window, 0),
            counted=by_window[window],
            killed=window in killed,
        )
        for window in sorted(expected.keys() | by_window.keys())
    )
    return Counted(
        windows=Series(name=mode.value, windows=windows),
        again={epoch: count for epoch, count in again.items() if count},
        differing=differing,
        anomalies={name.value: count for name, count in verdict.anomalies.items()},
        examples=verdict.examples,
        doubts=tuple(doubts),
    )


def _world(plan: Plan, mode: Mode, counted: list[Seen]) -> World:
    inputs = [
        Input(row.id, f"partition {row.partition}", row.position, None, str(row.id).encode())
        for row in plan.rows
    ]
    return World(sinks=(mode.value,), inputs=inputs, at_end=counted)


def conclude(plan: Plan, aligned: Counted, unaligned: Counted, *, seconds: float) -> Shown:
    """Say whether both statements hold: aligned each row is counted once, unaligned some are counted again. Pure."""
    why = [*aligned.doubts, *unaligned.doubts]
    wrong = {name: count for name, count in aligned.anomalies.items() if count}
    if wrong:
        why.append(f"aligned, the counts are not exact: {json.dumps(wrong)}")
    if not unaligned.anomalies[Anomaly.DUPLICATED]:
        why.append("unaligned, no row was counted again")
    other = {
        name: count for name, count in unaligned.anomalies.items() if count and name != Anomaly.DUPLICATED
    }
    if other:
        why.append(f"unaligned, more is wrong than rows counted again: {json.dumps(other)}")
    return Shown(
        verdict="not shown" if why else "shown",
        why=tuple(why),
        seed=plan.seed,
        epochs=len(plan.epochs),
        rows=len(plan.rows),
        crashes=len(plan.kills),
        seconds=seconds,
        kills=plan.kills,
        aligned=aligned,
        unaligned=unaligned,
    )


def _name(window: int) -> str:
    minutes, seconds = divmod(window * WINDOW_S, 60)
    return f"{minutes:02d}:{seconds:02d}"
