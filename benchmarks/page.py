"""The published page, made of one file of results, so that nobody types a figure.

``python -m benchmarks.page RESULTS`` records the results under ``docs/proof`` and writes the page, its pictures, and a
few figures into the README; a test sees that they are what the record gives.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import costs, floors, history, phases, plots, syncs
from benchmarks.contenders.base import ROOT
from benchmarks.ratios import EVERY, FURTHER, is_missed, median, of, ratios
from benchmarks.settings import MARK_FEW_ROWS
from benchmarks.store import recorded
from benchmarks.summary import broken, lines
from benchmarks.values import (
    FLINK_ALO,
    FLINK_EO,
    ONCEONLY_ALO,
    ONCEONLY_EO,
    RECORD_BYTES,
    SPARK_DEFAULT,
    SPARK_TUNED,
    Results,
    Work,
    decode,
    encode,
)
from onceonly_proof import charts
from onceonly_proof.campaign import marks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.figure import Figure

    from benchmarks.ratios import Asked
    from benchmarks.summary import Line
    from benchmarks.values import Record

RECORD, PAGE = Path("docs/proof/benchmarks.json"), Path("docs/explanation/performance.md")
PICTURES = Path("docs/proof")
COSTS: Mapping[Record, Path] = {record: PICTURES / f"costs-{record}.json" for record in RECORD_BYTES}
PHASES = {rate: Path(f"docs/proof/phases-{rate}.json") for rate in (200, 5_000)}
SYNCS = PICTURES / "syncs.json"
HISTORY = PICTURES / "benchmark-history.json"
"""Relative to the project's folder. The pictures lie beside the record."""
README, MARKS = Path("README.md"), "costs"
_ORDER = (ONCEONLY_EO, ONCEONLY_ALO, SPARK_TUNED, SPARK_DEFAULT, FLINK_EO, FLINK_ALO)
"""Of the columns."""
_NAMES = {
    ONCEONLY_EO: "onceonly, exactly-once",
    ONCEONLY_ALO: "onceonly, at-least-once",
    SPARK_TUNED: "Spark's sink (at-least-once), our settings",
    SPARK_DEFAULT: "Spark's sink (at-least-once), its defaults",
    FLINK_EO: "PyFlink, exactly-once",
}
_WAITING = ((SPARK_TUNED, "by Spark's sink with our settings"), (FLINK_EO, "by PyFlink"))
"""Beside ours."""
_DIRECT_SINCE = "2026-11-27T09:02"
"""Since then rows go out in batches of our own at least once, too (ADR 11)."""


def page(
    results: Results,
    spent: Sequence[costs.Costs] = (),
    epochs: Mapping[int, phases.Phases] | None = None,
    so_far: history.History = history.NONE,
    synced: syncs.Costs | None = None,
) -> str:
    """Return the page, in Markdown.

    Pure. ``spent`` are costs, each of another size of row; ``epochs`` are the phases by records a second; ``so_far``
    are the benchmarks before, and this one; ``synced`` is what the syncs of Spark's files cost.
    """
    parts = [
        _head(results),
        _ratios(results, {each.record: each for each in spent}, epochs or {}, so_far),
        _not_whole(results),
        _section(results, "throughput", "Throughput", _THROUGHPUT, _THROUGHPUT_FIGURES, digits=(0, 1)),
        _costs(results, spent),
        _section(results, "window", "Windows with state", _WINDOW, _THROUGHPUT_FIGURES, digits=(0, 1)),
        _memory(results),
        _section(results, "latency", "Visible latency", _LATENCY, _LATENCY_FIGURES),
        _epoch(epochs or {}),
        _synced(synced),
        _section(results, "empty", "An epoch without output", _EMPTY, ("epoch_triggerExecution_ms",)),
        _listed(results, "commit", "The commit phase", _COMMIT, _COMMIT_FIGURES) + _commit_floor(results),
        _listed(results, "recovery", "Recovery", _RECOVERY, _RECOVERY_FIGURES),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def published(root: Path, results: Results) -> str:
    """Return the page with what is recorded beside the results in the project in ``root``."""
    found = {rate: recorded(root / path, phases.Phases) for rate, path in PHASES.items()}
    epochs = {rate: each for rate, each in found.items() if each is not None}
    spent = [recorded(root / path, costs.Costs) for path in COSTS.values()]
    return page(
        results,
        [each for each in spent if each is not None],
        epochs,
        past(root),
        recorded(root / SYNCS, syncs.Costs),
    )


def past(root: Path) -> history.History:
    """Return the benchmarks that the project in ``root`` has published."""
    return recorded(root / HISTORY, history.History) or history.NONE


def short(results: Results | None) -> str:
    """Return what the README shows: records a second, and how soon a row is visible. Pure."""
    if results is None:
        return marks.NONE
    rows = [
        f"| {name} | {_rate(results, contender, '100b')} | {_rate(results, contender, '1kb')} |\n"
        for contender, name in _NAMES.items()
    ]
    machine = results.machine
    then = "At least once, rows went through librdkafka then. " if results.started < _DIRECT_SINCE else ""
    return (
        f"| Kafka to Kafka | records/s of 100 bytes | of 1 KB |\n|---|--:|--:|\n{''.join(rows)}\n{_visible(results)}"
        f"Medians of {results.sizes['rounds']} runs in turns on {machine.get('cores')} cores, "
        f"{results.started[:10]}. {marks.LATER} {then}[All figures, and where the time goes]({PAGE})."
    )


def _visible(results: Results) -> str:
    """Return the sentences that say how soon a row is visible; empty where ours was not measured."""
    ours = _delay(results, ONCEONLY_EO)
    if ours is None:
        return ""
    found = [f"At 200 rows/s a row is visible after {ours[0]:,.0f} ms (99 %: {ours[1]:,.0f})"]
    for contender, how in _WAITING:
        theirs = _delay(results, contender)
        if theirs is not None:
            half, most, interval_ms = theirs
            every = f" with checkpoints every {interval_ms} ms" if interval_ms else ""
            found.append(f"{how}{every} after {half:,.0f} ({most:,.0f})")
    return f"{', '.join(found)}. Exactly once, it waits until its epoch commits. "


def _rate(results: Results, contender: str, record: Record) -> str:
    value = _records_per_s(results, contender, record)
    return "" if value is None else f"{value:,.0f}"


def _records_per_s(results: Results, contender: str, record: Record) -> float | None:
    found = of(results.runs, "throughput", Work(kind="pass", record=record), contender, every_interval=True)
    return median(found, "records_per_s")


def _delay(results: Results, contender: str) -> tuple[float, float, int] | None:
    """Return median and 99th percentile in ms, by Spark's default trigger; of Flink with its quickest interval."""
    asked = Work(kind="pass", rate=200)
    measured = of(results.runs, "latency", asked, contender, every_interval=True)
    intervals = {each.run.work.interval_ms for each in measured}
    found = []
    for interval_ms in ({0} & intervals) or intervals:
        own = [each for each in measured if each.run.work.interval_ms == interval_ms]
        half, most = median(own, "p50_ms"), median(own, "p99_ms")
        if half is not None and most is not None:
            found.append((half, most, interval_ms))
    return min(found, default=None)


def pictures(results: Results, so_far: history.History = history.NONE) -> dict[str, str]:
    """Return the SVGs by the name of their file. Pure; a part that was not measured has none."""
    return {name: charts.svg(figure()) for name, figure in _figures(results, so_far).items()}


def _figures(results: Results, so_far: history.History = history.NONE) -> dict[str, Callable[[], Figure]]:
    found: dict[str, Callable[[], Figure]] = {}
    if len(so_far.runs) > 1:
        told = [(asked, history.known(so_far.runs[-_DRAWN_MAX:], name)) for name, asked in EVERY.items()]
        found[_file("history")] = partial(plots.panels, "Full benchmarks so far", told)
    for part, figure, title, unit in _DRAWN:
        drawn = [line for line in lines(results.runs, (figure,)) if line.part == part]
        if drawn:
            found[_file(part)] = partial(plots.bars, title, unit, drawn)
    points = _commit_points(results)
    if len(points) > 1:
        found[_file("commit")] = partial(
            plots.curve, "From the last vote to all visible", "ms", "transactions of the epoch", points
        )
    return found


def write(root: Path, results: Results) -> None:
    """Write record, page and pictures into the project in ``root``. Any number of times."""
    (root / RECORD).parent.mkdir(parents=True, exist_ok=True)
    (root / RECORD).write_bytes(encode(results))
    so_far = history.followed(past(root), results)
    (root / HISTORY).write_bytes(encode(so_far))
    (root / PAGE).parent.mkdir(parents=True, exist_ok=True)
    (root / PAGE).write_text(published(root, results), encoding="utf-8")
    marks.write(root / README, short(results), name=MARKS)
    for name, drawn in pictures(results, so_far).items():
        (root / PICTURES / name).write_text(drawn, encoding="utf-8")


_RATIOS = (
    "Ratios of records/s or of waits in ms; ours is exactly once, and at a rate it runs by Spark's default trigger. "
    "*Against Spark* is against the better of its own sink with our settings and as it is shipped."
)
_MISSED = (
    "Aims missed: {} of {}. *At best* is what is left if the sink's own part takes no time (see *What a row costs*, "
    "*Where an epoch's time goes* and *The commit phase*)."
)
_HISTORY = (
    f"*Last* and *reached* are of the full benchmarks in `{HISTORY}`. Figures move with hour and machine: of 1 KB, "
    "`a9f8511` had 0.92 and `82b2ec6` 0.84 on 2026-11-30, when all was a third slower (`python -m benchmarks.costs`)."
)
_ALL_MEMORY = "memory_mib_all"
_LAST, _DRAWN_MAX = 5, 12
_THROUGHPUT = (
    "Kafka to Kafka, rows unchanged: records a second, and in brackets processor seconds for a million, in all "
    "processes. The input is complete before; the clock runs from when an eighth is visible (`read_committed`) to "
    "the last step but one, so that no start or end counts."
)
_THROUGHPUT_FIGURES = ("records_per_s", "cpu_s_per_million")
_COSTS = (
    "Microseconds of a processor for each row. One Spark session writes with one sink after the other, so all are "
    "equally warm. Both cores are busy, so the sum over all processes bounds the speed. Reading alone (Spark's `noop` "
    "sink) is the floor of every sink; rows handed to Python and dropped there are that of every sink in Python."
)
_WINDOW = (
    "Counts by key and window of event time, from Kafka to Kafka; records that went in. Every window is compared with "
    "what must come out."
)
_LATENCY = (
    "From when a record was due to be sent until a `read_committed` reader has it: p50 (p99) in ms. Behind the rate "
    "stands Spark's trigger, if it is not the default, or the time between Flink's checkpoints. At least once, a row "
    "is visible when its task has flushed it; exactly once, when the epoch commits: that is the guarantee's price."
)
_PHASES = (
    "Ours, exactly once, default trigger: medians in ms, from the events of `ONCEONLY_EVENTS=DIR "
    "python -m benchmarks --size quick --only latency --contender onceonly-exactly-once --rounds 15 --rate RATE "
    "--fresh`, by `python -m benchmarks.phases DIR --last 60 --warm 2`."
)
_LATENCY_FIGURES = ("p50_ms", "p99_ms")
_SYNCED = (
    "Median ms of an epoch of 20 rows to Kafka, with all syncs and without those of Spark's files, in turns; the cost "
    "is that of the middle half's means. What an epoch reads is synced beside its tasks, its own state after them. By"
)
_EMPTY = "Median ms of a micro-batch without output, at 200 records a second, as Spark reports it."
_COMMIT = (
    "Ours, without Spark, from the last vote: `decide` until everything is committed, noted and swept, `until "
    "epoch.completed` until all is visible; `cpu` is the processor time of broker and our process meanwhile."
)
_COMMIT_FIGURES = (
    "decide_ms",
    "until_link.persisted_ms",
    "until_epoch.completed_ms",
    "cpu_broker_ms",
    "cpu_own_ms",
)
_RECOVERY = (
    "From SIGKILL to the job's process tree until a new row is visible, with (`recovery`) and without (`query`) the "
    "start of process and session. Rows again: visible more than once in the end."
)
_RECOVERY_FIGURES = ("recovery_median_s", "recovery_worst_s", "query_median_s", "rows_again")
_DRAWN = (
    ("throughput", "records_per_s", "Throughput", "records a second, more is better"),
    ("window", "records_per_s", "Windows with state", "records a second, more is better"),
    ("latency", "p50_ms", "Visible latency, p50", "ms, less is better"),
    ("empty", "epoch_triggerExecution_ms", "An epoch without output", "ms, less is better"),
    ("recovery", "recovery_median_s", "Recovery, median", "s, less is better"),
)


def _head(results: Results) -> str:
    machine, versions = results.machine, results.versions
    java = str(machine.get("java")).replace(chr(34), "")
    known = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()) if name != "commit")
    done = f" **It was interrupted: {len(results.runs)} of {results.planned} runs are here.**"
    unfinished = "" if results.finished else done
    left_out = "".join(f"\n- `{name}` could not be run: {why}" for name, why in results.not_run.items())
    return (
        "# Performance\n\n"
        "onceonly is compared with PyFlink and with Spark's own Kafka sink, which is at least once: in one run, in "
        f"turns, on one broker, with the same data and cores. Each process warms up first{_paced(results)} and stays "
        f"for all rounds.{_apart(results)} Figures are medians; every record was counted. `{RECORD}` has every run, "
        "and what each contender was given (`settings`).\n\n"
        f"Recorded by `{results.command}` on {results.started[:10]} in {results.seconds / 60:.0f} minutes on "
        f"{machine.get('cores')} cores and {machine.get('memory_gib')} GiB, {machine.get('system')}, "
        f"{java}, with a load of {machine.get('load_before')} before it began; "
        f"{known}, commit `{versions.get('commit')}`. {marks.LATER}{unfinished}{left_out}"
    )


def _paced(results: Results) -> str:
    seconds = results.sizes.get("paced_warm_s")
    return f", for {seconds} s more before its first run at a rate," if seconds else ""


def _apart(results: Results) -> str:
    names = [name for each in results.settings.values() for name in each]
    if not any(name.startswith(MARK_FEW_ROWS) for name in names):
        return ""
    return " Contenders with our settings have a process of their own for runs of few rows a second."


def _ratios(
    results: Results,
    spent: Mapping[Record, costs.Costs],
    epochs: Mapping[int, phases.Phases],
    so_far: history.History,
) -> str:
    rows, missed = [], []
    heads, grew = _history(so_far)
    values, notes = ratios(results.runs, results.not_run, FURTHER)
    values, notes = {**results.ratios, **values}, {**results.ratio_notes, **notes}
    for name, asked in EVERY.items():
        value, note = values[name], notes[name]
        shown = _cell(f"not measured: {note.why}".rstrip(": ")) if value is None else f"**{value:,.2f}**"
        against = f" (against {note.against})" if len(asked.theirs) > 1 and note.against else ""
        rows.append(f"| {asked.brief}{against} | {shown} | {asked.bound} |{grew[name]}\n")
        if value is not None and is_missed(asked, value):
            best = floors.of_ratio(asked, note, results, spent, epochs)
            nearer = {
                "with Kafka's own time": floors.of_wait(asked, note, epochs, left=phases.BOTH),
                "with what making its records takes alone": floors.of_rows(
                    asked, note, results, spent, with_loops=True
                ),
            }
            missed.append(_missed(asked, best, nearer))
    picture = f"\n\n{_HISTORY}\n\n![Full benchmarks so far](../proof/{_file('history')})" if heads else ""
    table = (
        f"## Ratios\n\n{_RATIOS}{picture}\n\n| | value | aim |{heads}\n|---|--:|--:|{'--:|' * heads.count('|')}\n"
        + "".join(rows).rstrip()
    )
    if not missed:
        return table
    return (
        f"{table}\n\n{_MISSED.format(len(missed), len(rows))}\n\n"
        "| missed | at best | |\n|---|--:|---|\n" + "\n".join(missed)
    )


def _missed(asked: Asked, best: float | None, nearer: Mapping[str, float | None]) -> str:
    shown, why = ("not measured", "") if best is None else (f"{best:.2f}", "within reach, and not reached")
    if best is not None and is_missed(asked, best):
        why = "the aim is out of reach"
    else:
        for what, floor in nearer.items():
            if floor is not None and is_missed(asked, floor):
                why = f"out of reach {what}: {floor:.2f}"
    return f"| {asked.brief} | {shown} | {why} |"


def _history(so_far: history.History) -> tuple[str, Mapping[str, str]]:
    """Return the heads of the columns that say how the ratios grew, and their cells by ratio."""
    if len(so_far.runs) < 2:  # noqa: PLR2004  one alone is the value beside
        return "", dict.fromkeys(EVERY, "")
    last = so_far.runs[-_LAST:]
    cells = {}
    for name, asked in EVERY.items():
        values = history.known(so_far.runs, name)
        reached = sum(not is_missed(asked, each) for each in values)
        cells[name] = f" {_range(sorted(history.known(last, name)))} | {reached} of {len(values)} |"
    return f" last {len(last)} | reached |", cells


def _range(values: Sequence[float]) -> str:
    return f"{values[0]:,.3g} to {values[-1]:,.3g}" if values else ""


def _not_whole(results: Results) -> str:
    found = broken(results.runs)
    if not found:
        return ""
    rows = "".join(
        f"| `{each.run.id}` | {each.outcome} | {each.lost:,} | {each.doubled:,} | {_cell(each.why)} |\n"
        for each in found
    )
    return (
        "## Runs without a figure\n\nRows were lost or doubled, or the contender stopped. They are in no median.\n\n"
        "| run | | lost | doubled | why |\n|---|---|--:|--:|---|\n" + rows.rstrip()
    )


def _section(
    results: Results, part: str, title: str, text: str, figures: Sequence[str], digits: Sequence[int] = ()
) -> str:
    """Return a part of the page whose table has a row for each work and a column for each contender."""
    found = [line for line in lines(results.runs, figures) if line.part == part]
    return _headed(results, part, title, text, _pivoted(found, figures, digits)) if found else ""


def _listed(results: Results, part: str, title: str, text: str, figures: Sequence[str]) -> str:
    """Return a part of the page whose table has a row for each work and contender, and a column for each figure."""
    found = [line for line in lines(results.runs, figures) if line.part == part]
    return _headed(results, part, title, text, _table(found, figures)) if found else ""


def _headed(results: Results, part: str, title: str, text: str, table: str) -> str:
    picture = f"\n\n![{title}](../proof/{_file(part)})" if _file(part) in _figures(results) else ""
    return f"## {title}\n\n{text}{picture}\n\n{table}"


def _pivoted(found: Sequence[Line], figures: Sequence[str], digits: Sequence[int] = ()) -> str:
    """Return a table of works and contenders. The second of two figures stands in brackets."""
    contenders = sorted({line.contender for line in found}, key=_ORDER.index)
    cells = {(line.work, line.contender, line.figure): line for line in found}
    rows = [
        f"| work | runs |{''.join(f' {each} |' for each in contenders)}",
        "|---|--:|" + "--:|" * len(contenders),
    ]
    for work in dict.fromkeys(line.work for line in found):
        runs = sorted({line.runs for line in found if line.work == work})
        rows.append(f"| {work} | {' to '.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} |")
        for contender in contenders:
            values = [
                f"{cells[place].median:,.{places}f}"
                for figure, places in zip(figures, digits or [0] * len(figures), strict=True)
                if (place := (work, contender, figure)) in cells
            ]
            rows[-1] += " ".join(["", *values[:1], *(f"({value})" for value in values[1:])]) + " |"
    return "\n".join(rows)


def _table(found: Sequence[Line], figures: Sequence[str]) -> str:
    cells = {(line.work, line.contender, line.figure): line for line in found}
    rows = dict.fromkeys((line.work, line.contender) for line in found)
    present = [figure for figure in figures if any(line.figure == figure for line in found)]
    alone = len({line.contender for line in found}) == 1
    head = f"| work |{'' if alone else ' contender |'} runs |" + "".join(
        f" {_title(each)} |" for each in present
    )
    text = [head, f"|---|{'' if alone else '---|'}--:|" + "--:|" * len(present)]
    for work, contender in rows:
        own = [cells.get((work, contender, figure)) for figure in present]
        runs = max(line.runs for line in own if line is not None)
        values = "".join(f" {line.median:,.1f} |" if line is not None else " |" for line in own)
        text.append(f"| {work} |{'' if alone else f' {contender} |'} {runs} |{values}")
    return "\n".join(text)


def _memory(results: Results) -> str:
    """Return what all processes of a contender held; what those of each kind held is in the record."""
    kinds = sorted({name for each in results.runs for name in each.figures if name.startswith("memory_mib_")})
    measured = [each for each in results.runs if each.run.part in {"throughput", "window"}]
    found = lines(measured, [_ALL_MEMORY if _ALL_MEMORY in kinds else kinds[0]] if kinds else [])
    if not found:
        return ""
    held: dict[str, list[float]] = {}
    for line in sorted(found, key=lambda line: _ORDER.index(line.contender)):
        held.setdefault(line.contender, []).append(line.median)
    told = "".join(f"- `{name}`: {min(values):,.0f} to {max(values):,.0f}\n" for name, values in held.items())
    return (
        "## Memory\n\nThe most resident memory that all processes of a contender held at one moment, in MiB, by work "
        "of the above. The heap of every JVM is bounded alike.\n\n" + told.rstrip()
    )


def _costs(results: Results, spent: Sequence[costs.Costs]) -> str:
    if not spent:
        return ""
    sizes = "\n\n".join(_costs_of(each) for each in spent)
    floor = {
        what: [value for each in spent for value in (_row_floor(results, each).get(what, ""),)]
        for what in _row_floor(results, spent[0])
    }
    rows = "".join(f"| {what} | {' | '.join(values)} |\n" for what, values in floor.items())
    heads = "".join(f" {RECORD_BYTES[each.record]:,} bytes |" for each in spent)
    return (
        f"## What a row costs, and where\n\n{_COSTS}\n\n{sizes}\n\n"
        "What ours does in Python, measured without Spark; checksum and record batches by "
        "[compiled loops](../how-to/many-rows.md). *Times* are against the records/s of Spark's own sink with our "
        "settings (in brackets, of PyFlink exactly once): today, and if the sink took only what the row names.\n\n"
        f"| |{heads}\n|---|{'--:|' * len(spent)}\n{rows.rstrip()}"
    )


def _costs_of(spent: costs.Costs) -> str:
    rounds = spent.costs[0].rounds
    rows = "".join(
        f"| {each.sink} | {each.records_per_s:,.0f} | {each.jvm_us:.2f} | {each.python_us:.2f} | {each.broker_us:.2f} |"
        f" {each.all_us:.2f} |\n"
        for each in spent.costs
    )
    return (
        f"Rows of {RECORD_BYTES[spent.record]:,} bytes, medians of {rounds} rounds, by `{spent.command}` on "
        f"{spent.started[:10]}, commit `{spent.versions.get('commit')}`:\n\n"
        f"| sink | records/s | JVM | Python | broker | all |\n|---|--:|--:|--:|--:|--:|\n{rows}"
    ).rstrip()


def _row_floor(results: Results, spent: costs.Costs) -> dict[str, str]:
    """Return the parts of what ours costs in Python, and what remains when a sink there takes no time itself."""
    by_sink = {each.sink: each for each in spent.costs}
    ours, spark = by_sink[ONCEONLY_EO], by_sink[SPARK_TUNED]
    floor, loops = floors.of_row(spent), (costs.CHECKSUM, costs.MAKING)
    found = {f"Python: {name}": f"{share:.0%}" for name, share in floors.shares(spent).items()}
    for name in loops:
        found[f"{name}, compiled (by numpy), µs"] = (
            f"{spent.parts[name]:.2f} ({spent.parts_by_numpy[name]:.2f})"
        )
    found["loops ready in a worker, once: s, MiB"] = f"{spent.loading.seconds:.1f}, {spent.loading.mib:.0f}"
    found["floor: rows received + broker, µs"] = (
        f"{floor.received_us:.2f} + {floor.broker_us:.2f} = {floor.us:.2f}"
    )
    found["ours above the floor, µs"] = f"{ours.all_us - floor.us:.2f}"
    found["its sending, µs"] = f"{floor.sending_us:.2f}"
    found["times, today"] = f"{ours.records_per_s / spark.records_per_s:.2f}"
    flink, tuned = (_records_per_s(results, contender, spent.record) for contender in (FLINK_EO, SPARK_TUNED))
    for what, times in (
        ("times, at best: no time", floor.most),
        ("times, with its sending", floor.sent),
        ("times, with sending, checksum and record batches", floor.looped),
    ):
        # PyFlink reads rows by a client of its own; Spark's is in all of these.
        found[what] = f"{times:.2f}" + (f" ({times * tuned / flink:.2f})" if flink and tuned else "")
    return found


def _epoch(epochs: Mapping[int, phases.Phases]) -> str:
    if not epochs:
        return ""
    heads = "".join(f" {rate:,}/s |" for rate in epochs)
    told = {rate: {each.title: each for each in found.phases} for rate, found in epochs.items()}
    rows = "".join(
        f"| {title} | {phases.WHOSE[title]} "
        + "".join(f"| {each[title].median_ms:.1f} " if title in each else "| " for each in told.values())
        + f"| {what} |\n"
        for title, what in phases.HOLDS.items()
        if any(title in each for each in told.values())
    )
    floor = [_epoch_floor(found) for found in epochs.values()]
    least = "".join(f"| {what} | {' | '.join(each[what] for each in floor)} |\n" for what in floor[0])
    return (
        f"## Where an epoch's time goes\n\n{_PHASES}\n\n| phase | whose |{heads} what happens |\n"
        f"|---|---|{'--:|' * len(epochs)}---|\n{rows}\n"
        "A row waits for the end of the running epoch, and until the next is visible.\n\n"
        f"| |{heads}\n|---|{'--:|' * len(epochs)}\n{least.rstrip()}"
    )


def _epoch_floor(found: phases.Phases) -> dict[str, str]:
    """Return what remains when what is ours takes no time, and when what is Kafka's takes none either."""
    took = phases.whose(found.phases)
    waits = {
        "a row waits: p50, p95, p99, ms": phases.ALL,
        "if onceonly took no time": phases.BOTH,
        "at best: if Kafka took none either": phases.SPARK,
    }
    return {
        "epochs; commit": f"{max(each.epochs for each in found.phases)}; `{found.versions.get('commit')}`",
        "medians add up: Spark, Kafka, onceonly, ms": ", ".join(
            f"{took[whose]:.0f}" for whose in (phases.SPARK, phases.KAFKA, phases.OURS)
        ),
    } | {what: _waits(found.rows[which]) if which in found.rows else "" for what, which in waits.items()}


def _waits(waits: Mapping[str, float]) -> str:
    return ", ".join(f"{waits[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms"))


def _synced(found: syncs.Costs | None) -> str:
    if found is None:
        return ""
    rows = "".join(
        f"| {syncs.NAMES[state]} | {each.median_ms:.0f} | {each.median_without_ms:.0f} | {each.cost_ms:+.1f} |\n"
        for state, each in found.costs.items()
    )
    return (
        f"## What the syncs of Spark's files cost\n\n{_SYNCED} `{found.command}` on {found.started[:10]}, "
        f"`{found.versions.get('commit')}`.\n\n"
        f"| state | with | without | cost |\n|---|--:|--:|--:|\n{rows.rstrip()}"
    )


def _commit_floor(results: Results) -> str:
    """Say what remains of 64 transactions when our process takes no time but for the decision."""
    floor = floors.of_commit(results)
    if floor is None:
        return ""
    return (
        f"\n\nOf 64 transactions, the broker has {floor.broker_ms:.1f} ms of the {floor.cores} cores' time (each one's "
        f"state is written twice, and two partitions are marked), our process {floor.own_ms:.1f}. If ours took only "
        f"the {floor.decided_ms:.1f} ms of the decision, at least {floor.ms:.1f} ms would pass: "
        f"{floor.ms / floor.few_ms:.1f} times as long as 4 take now."
    )


def _commit_points(results: Results) -> dict[int, float]:
    counts = {each.run.work.name: each.run.work.count for each in results.runs if each.run.part == "commit"}
    return {counts[line.work]: line.median for line in lines(results.runs, ("decide_ms",))}


def _file(part: str) -> str:
    return f"benchmark-{part}.svg"


def _title(figure: str) -> str:
    for ending, unit in (("_per_s", "/s"), ("_ms", " ms"), ("_s", " s")):
        if figure.endswith(ending):
            return figure.removesuffix(ending).replace("_", " ") + unit
    return figure.removeprefix("memory_mib_").replace("_", " ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]


def main() -> None:
    """Publish the results that the argument names."""
    write(ROOT, decode(Path(sys.argv[1]).read_bytes()))


if __name__ == "__main__":
    main()
