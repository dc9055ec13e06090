"""The published page, made of one file of results, so that nobody types a figure.

``python -m benchmarks.page RESULTS`` records the results under ``docs/proof`` and writes the page, its pictures, and a
few figures into the README; a test sees that they are what the record gives.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import costs, floors, history, phases, plots
from benchmarks.contenders.base import ROOT
from benchmarks.figures import PERCENTILES
from benchmarks.ratios import EVERY, FURTHER, is_missed, median, of, ratios
from benchmarks.settings import MARK_FEW_ROWS
from benchmarks.store import recorded
from benchmarks.summary import broken, lines
from benchmarks.values import (
    FLINK_EO,
    ONCEONLY_ALO,
    ONCEONLY_EO,
    RECORD_BYTES,
    SPARK_DEFAULT,
    SPARK_TUNED,
    Work,
    decode,
    encode,
)
from onceonly.testing.campaign import marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.ratios import Asked
    from benchmarks.summary import Line
    from benchmarks.values import Record, Results

RECORD, PAGE = Path("docs/proof/benchmarks.json"), Path("docs/explanation/performance.md")
PICTURES = Path("docs/proof")
COSTS: Mapping[Record, Path] = {record: PICTURES / f"costs-{record}.json" for record in RECORD_BYTES}
PHASES = {rate: Path(f"docs/proof/phases-{rate}.json") for rate in (200, 5_000)}
HISTORY = PICTURES / "benchmark-history.json"
"""Relative to the project's folder. The pictures lie beside the record."""
README, MARKS = Path("README.md"), "costs"
_NAMES = {
    ONCEONLY_EO: "onceonly, exactly-once",
    ONCEONLY_ALO: "onceonly, at-least-once",
    SPARK_TUNED: "Spark's sink (at-least-once), our settings",
    SPARK_DEFAULT: "Spark's sink (at-least-once), its defaults",
    FLINK_EO: "PyFlink, exactly-once",
}


def page(
    results: Results,
    spent: Sequence[costs.Costs] = (),
    epochs: Mapping[int, phases.Phases] | None = None,
    so_far: history.History = history.NONE,
) -> str:
    """Give the page, in Markdown.

    Pure. ``spent`` are costs, each of another size of row; ``epochs`` are the phases by records a second; ``so_far``
    are the benchmarks before, and this one.
    """
    parts = [
        _head(results),
        _ratios(results, {each.record: each for each in spent}, epochs or {}),
        _history(so_far),
        _not_whole(results),
        _section(results, "throughput", "Throughput", _THROUGHPUT, ("records_per_s", "cpu_s_per_million")),
        _costs(results, spent),
        _section(results, "window", "Windows with state", _WINDOW, ("records_per_s", "cpu_s_per_million")),
        _memory(results),
        _section(results, "latency", "Visible latency", _LATENCY, _LATENCY_FIGURES),
        _epoch(epochs or {}),
        _section(results, "empty", "An epoch without output", _EMPTY, ("epoch_triggerExecution_ms",)),
        _section(results, "commit", "The commit phase", _COMMIT, _COMMIT_FIGURES) + _commit_floor(results),
        _section(results, "recovery", "Recovery", _RECOVERY, _RECOVERY_FIGURES),
        _settings(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def published(root: Path, results: Results) -> str:
    """Give the page with what is recorded beside the results in the project in ``root``."""
    found = {rate: recorded(root / path, phases.Phases) for rate, path in PHASES.items()}
    epochs = {rate: each for rate, each in found.items() if each is not None}
    spent = [recorded(root / path, costs.Costs) for path in COSTS.values()]
    return page(results, [each for each in spent if each is not None], epochs, past(root))


def past(root: Path) -> history.History:
    """Give the benchmarks that the project in ``root`` has published."""
    return recorded(root / HISTORY, history.History) or history.NONE


def short(results: Results | None) -> str:
    """Give what the README shows: records a second, and how soon a row is visible. Pure."""
    if results is None:
        return marks.NONE
    rows = [
        f"| {name} | {_rate(results, contender, '100b')} | {_rate(results, contender, '1kb')} "
        f"| {_delay(results, contender)} |\n"
        for contender, name in _NAMES.items()
    ]
    machine = results.machine
    return (
        "| Kafka to Kafka | records/s of 100 bytes | of 1 KB | ms until visible at 200/s: median, 99 % |\n"
        f"|---|--:|--:|--:|\n{''.join(rows)}\n"
        f"Medians of {results.sizes['rounds']} runs in turns on {machine.get('cores')} cores, broker and all, "
        f"{results.started[:10]}. [All figures, and where the time goes]({PAGE})."
    )


def _rate(results: Results, contender: str, record: Record) -> str:
    value = _records_per_s(results, contender, record)
    return "" if value is None else f"{value:,.0f}"


def _records_per_s(results: Results, contender: str, record: Record) -> float | None:
    found = of(results.runs, "throughput", Work(kind="pass", record=record), contender, every_interval=True)
    return median(found, "records_per_s")


def _delay(results: Results, contender: str) -> str:
    """Give the median and the 99th percentile at Spark's default trigger; of Flink's intervals the quickest, named."""
    asked = Work(kind="pass", rate=200)
    measured = of(results.runs, "latency", asked, contender, every_interval=True)
    intervals = {each.run.work.interval_ms for each in measured}
    found = []
    for interval_ms in ({0} & intervals) or intervals:
        own = [each for each in measured if each.run.work.interval_ms == interval_ms]
        half, most = median(own, "p50_ms"), median(own, "p99_ms")
        if half is not None and most is not None:
            found.append((half, most, interval_ms))
    if not found:
        return ""
    half, most, interval_ms = min(found)
    return f"{half:,.0f}, {most:,.0f}{f' (checkpoints every {interval_ms} ms)' if interval_ms else ''}"


def pictures(results: Results, so_far: history.History = history.NONE) -> dict[str, str]:
    """Give the SVGs by the name of their file. Pure; a part that was not measured has none."""
    found: dict[str, str] = {}
    if len(so_far.runs) > 1:
        told = [(asked, history.known(so_far.runs[-_DRAWN_MAX:], name)) for name, asked in EVERY.items()]
        found[_file("history")] = plots.panels("Full benchmarks so far", told)
    for part, figure, title, unit in _DRAWN:
        drawn = [line for line in lines(results.runs, (figure,)) if line.part == part]
        if drawn:
            found[_file(part)] = plots.bars(title, unit, drawn)
    points = _commit_points(results)
    if len(points) > 1:
        found[_file("commit")] = plots.curve(
            "From the last vote to all visible", "ms", "transactions of the epoch", points
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


_MISSED = (
    "Aims missed: {} of {}. *At best* is what would be left if the sink's own part took no time: for a row, of any "
    "sink in Python that sends (*What a row costs, and where*), for a wait, if all but Spark's part of an epoch took "
    "none (*Where an epoch's time goes*), for a commit, if our process took none but for the decision (*The commit "
    "phase*)."
)
_HISTORY = (
    "Every full benchmark that was published, the last one first. Each is an hour of a machine of this kind, and hours "
    "differ: a figure moves from one row to the next also where no code has changed that it depends on. Bold is what "
    "reaches its aim; the range is that of the last {}."
)
_LAST, _DRAWN_MAX = 5, 12
_THROUGHPUT = (
    "Kafka to Kafka, nothing changed. All records are in the input before; the clock runs from the moment that an "
    "eighth of them is visible until the last step but one, as seen with `read_committed`: start and end of a query "
    "are left out for all alike. CPU seconds a million records are those of all processes of the contender."
)
_COSTS = (
    "One Spark session writes with one sink after the other, so that all are equally warm; the runs above have younger "
    "processes, of which compiling takes a part. Counted is what a running query takes, without its start. With both "
    "cores busy, the sum over all processes is what bounds the speed. Reading alone (Spark's `noop` sink) is the floor "
    "of every sink of Spark; rows that are handed to Python, and dropped there, that of every sink in Python."
)
_WINDOW = (
    "Kafka, counts by key and window of event time, Kafka. Records a second are those that went in. Every window is "
    "compared with what must come out."
)
_LATENCY = (
    "From the moment at which a record was due to be sent until a `read_committed` reader has it. The sender keeps its "
    "rate whatever happens, and a late record carries the time at which it was due. `ms` behind the rate is Spark's "
    "trigger, or the time between Flink's checkpoints; without it, Spark's default trigger.\n\n"
    "The last two columns are what Spark says of its micro-batches: all of one, and the sink's share (plan, tasks, "
    "commit). A row waits for the next epoch to begin, half of one on average. At least once, it is visible when its "
    "task has flushed it, in the middle of that epoch; exactly once, when the epoch commits, at its end. That wait is "
    "the price of the guarantee and bounds it from below: half an epoch, and the epoch up to its commit. What is left "
    "to gain is in the epoch's own length."
)
_PHASES = (
    "Ours, exactly once, by the default trigger, from the event log, which has every step of the protocol in every "
    "process: `ONCEONLY_EVENTS=DIR python -m benchmarks --size quick --only latency --contender onceonly-exactly-once "
    "--rounds 15 --rate RATE --fresh`, then `python -m benchmarks.phases DIR --last 60 --warm 2`. Milliseconds."
)
_LATENCY_FIGURES = (*PERCENTILES, "epoch_triggerExecution_ms", "epoch_addBatch_ms")
_EMPTY = "The median time of a micro-batch of which nothing comes out, at 200 records a second, as Spark reports it."
_COMMIT = (
    "Epochs of so many prepared transactions: from the last vote to the moment at which everything is committed, noted "
    "and swept. Without Spark. Visible is the moment at which the last one is committed; `cpu` is what the broker and "
    "our process have of the cores' time meanwhile."
)
_COMMIT_FIGURES = (
    "decide_ms",
    "until_link.persisted_ms",
    "until_epoch.completed_ms",
    "cpu_broker_ms",
    "cpu_own_ms",
)
_RECOVERY = (
    "From SIGKILL to the job's whole process tree until a row is visible that was not there, with and without the "
    "start of process and session. Rows again: how many rows were visible more than once in the end."
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
        "What exactly-once costs: onceonly beside Spark's own Kafka sink, which is at least once, and PyFlink. All in "
        "one run, in turns, against one broker, on the same data and the same cores; each process warms up first"
        f"{_paced(results)} and stays for all rounds.{_apart(results)} Medians; every record that came out was "
        "counted.\n\n"
        f"Recorded by `{results.command}` on {results.started[:10]} in {results.seconds / 60:.0f} minutes on "
        f"{machine.get('cores')} cores and {machine.get('memory_gib')} GiB, {machine.get('system')}, "
        f"{java}, with a load of {machine.get('load_before')} before it began; "
        f"{known}, commit `{versions.get('commit')}`.{unfinished}{left_out}"
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
    results: Results, spent: Mapping[Record, costs.Costs], epochs: Mapping[int, phases.Phases]
) -> str:
    rows, missed = [], []
    values, notes = ratios(results.runs, results.not_run, FURTHER)
    values, notes = {**results.ratios, **values}, {**results.ratio_notes, **notes}
    for name, asked in EVERY.items():
        value, note = values[name], notes[name]
        shown = "not measured" if value is None else f"**{value:,.2f}**"
        against = f" (against {note.against})" if note.against and not asked.beside else ""
        what = note.why or f"{note.is_}{against}"
        rows.append(f"| `{name}` | {shown} | {asked.bound} | {_cell(what)} |\n")
        if value is not None and is_missed(asked, value):
            best = floors.of_ratio(asked, note, results, spent, epochs)
            nearer = {
                "as long as Kafka takes what it takes": floors.of_wait(asked, note, epochs, left=phases.BOTH),
                "as long as making its records takes what it takes alone": floors.of_rows(
                    asked, note, results, spent, with_loops=True
                ),
            }
            missed.append(_missed(name, asked, value, best, nearer))
    table = "## Ratios\n\n| | value | aim | what |\n|---|--:|--:|---|\n" + "".join(rows).rstrip()
    if not missed:
        return table
    return (
        f"{table}\n\n{_MISSED.format(len(missed), len(rows))}\n\n"
        "| missed | value | aim | at best | |\n|---|--:|--:|--:|---|\n" + "\n".join(missed)
    )


def _missed(
    name: str, asked: Asked, value: float, best: float | None, nearer: Mapping[str, float | None]
) -> str:
    shown, why = ("not measured", "") if best is None else (f"{best:.2f}", "within reach, and not reached")
    if best is not None and is_missed(asked, best):
        why = "the aim is beyond it"
    else:
        for what, floor in nearer.items():
            if floor is not None and is_missed(asked, floor):
                why = f"beyond it {what}: {floor:.2f} then"
    return f"| `{name}` | {value:,.2f} | {asked.aim:g} | {shown} | {why} |"


def _history(so_far: history.History) -> str:
    """Say how the ratios grew, and how far apart they are from one benchmark to the next."""
    if len(so_far.runs) < 2:  # noqa: PLR2004  one alone is the table above
        return ""
    rows = [
        "| began | commit |" + "".join(f" {each.brief} |" for each in EVERY.values()),
        "|---|---|" + "--:|" * len(EVERY),
        "| | aim |" + "".join(f" {each.bound} |" for each in EVERY.values()),
    ]
    rows += [
        f"| {each.started[:16].replace('T', ' ')} | `{each.commit[:7]}` |"
        + "".join(f" {_valued(asked, each.ratios.get(name))} |" for name, asked in EVERY.items())
        for each in reversed(so_far.runs)
    ]
    last = so_far.runs[-_LAST:]
    ranges = [sorted(history.known(last, name)) for name in EVERY]
    rows.append("| | range |" + "".join(f" {_range(values)} |" for values in ranges))
    picture = f"![Full benchmarks so far](../proof/{_file('history')})"
    return f"## Full benchmarks so far\n\n{_HISTORY.format(len(last))}\n\n{picture}\n\n" + "\n".join(rows)


def _valued(asked: Asked, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.3g}" if is_missed(asked, value) else f"**{value:,.3g}**"


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


def _section(results: Results, part: str, title: str, text: str, figures: Sequence[str]) -> str:
    found = [line for line in lines(results.runs, figures) if line.part == part]
    if not found:
        return ""
    picture = f"\n\n![{title}](../proof/{_file(part)})" if _file(part) in pictures(results) else ""
    return f"## {title}\n\n{text}{picture}\n\n{_table(found, figures)}"


def _table(found: Sequence[Line], figures: Sequence[str]) -> str:
    present = [figure for figure in figures if any(line.figure == figure for line in found)]
    cells = {(line.work, line.contender, line.figure): line for line in found}
    rows = dict.fromkeys((line.work, line.contender) for line in found)
    head = "| work | contender | runs |" + "".join(f" {_title(figure)} |" for figure in present)
    text = [head, "|---|---|--:|" + "--:|" * len(present)]
    for work, contender in rows:
        own = [cells.get((work, contender, figure)) for figure in present]
        runs = max(line.runs for line in own if line is not None)
        values = "".join(f" {line.median:,.1f} |" if line is not None else " |" for line in own)
        text.append(f"| {work} | {contender} | {runs} |{values}")
    return "\n".join(text)


def _memory(results: Results) -> str:
    kinds = sorted({name for each in results.runs for name in each.figures if name.startswith("memory_mib_")})
    measured = [each for each in results.runs if each.run.part in {"throughput", "window"}]
    found = lines(measured, kinds)
    if not found:
        return ""
    text = (
        "The most that one process of a kind has held during a run (resident), in MiB; `all` is the sum over all "
        "processes at one moment. The heap of every JVM is bounded alike."
    )
    return f"## Memory\n\n{text}\n\n{_table(found, kinds)}"


def _costs(results: Results, spent: Sequence[costs.Costs]) -> str:
    if not spent:
        return ""
    sizes = [_costs_of(results, each) for each in spent]
    return f"## What a row costs, and where\n\n{_COSTS}\n\n" + "\n\n".join(sizes)


def _costs_of(results: Results, spent: costs.Costs) -> str:
    floor = next(each for each in spent.costs if each.sink == costs.READING)
    rows = "".join(
        f"| {each.sink} | {each.records_per_s:,.0f} | {each.jvm_us:.2f} | {each.python_us:.2f} | {each.broker_us:.2f} "
        f"| {each.all_us:.2f} | {each.all_us - floor.all_us:.2f} |\n"
        for each in spent.costs
    )
    return (
        f"### Rows of {RECORD_BYTES[spent.record]:,} bytes\n\n"
        f"Recorded by `{spent.command}` on {spent.started[:10]}, commit `{spent.versions.get('commit')}`; microseconds "
        f"of a processor for each row, medians of {floor.rounds} rounds.\n\n"
        "| sink | records/s | JVM | Python | broker | all | above reading |\n|---|--:|--:|--:|--:|--:|--:|\n"
        f"{rows}\nOf what ours costs in Python, by its parts measured without Spark: "
        + ", ".join(f"{name} {share:.0%}" for name, share in floors.shares(spent).items())
        + f". {_loops(spent)}\n\n{_row_floor(results, spent)}"
    )


def _loops(spent: costs.Costs) -> str:
    """Say what compiled loops are worth, and what they take."""
    compiled, by_numpy = (
        " and ".join(f"{parts[name]:.2f}" for name in (costs.CHECKSUM, costs.MAKING))
        for parts in (spent.parts, spent.parts_by_numpy)
    )
    return (
        f"The first two are loops over rows, [compiled](../how-to/many-rows.md): {compiled} microseconds; by numpy "
        f"they take {by_numpy}. A worker has the loops ready in {spent.loading.seconds:.1f} s, once, and they take "
        f"{spent.loading.mib:.0f} MiB of it."
    )


def _row_floor(results: Results, spent: costs.Costs) -> str:
    """Say what remains when a sink in Python takes no time itself."""
    by_sink = {each.sink: each for each in spent.costs}
    ours, spark = by_sink[ONCEONLY_EO], by_sink[SPARK_TUNED]
    floor = floors.of_row(spent)
    flink, tuned = (_records_per_s(results, contender, spent.record) for contender in (FLINK_EO, SPARK_TUNED))
    return (
        f"The floor of a sink in Python is {floor.us:.2f}: {floor.received_us:.2f} until Python has the row, and the "
        f"broker's least, {floor.broker_us:.2f}. A sink that took no time itself would write {floor.most:.2f} times "
        "as many records a second as Spark's own sink with our settings. None is spared sending: with what that takes "
        f"ours, {floor.sending_us:.2f}, it would be {floor.sent:.2f} times, and {floor.looped:.2f} with a checksum and "
        "record batches that take what they take alone, without Spark beside them. Today it is "
        f"{ours.records_per_s / spark.records_per_s:.2f} times; ours takes {ours.all_us - floor.us:.2f} above the "
        "floor."
        f"{_flinks_floor(flink / tuned, floor) if flink and tuned else ''}"
    )


def _flinks_floor(ahead: float, floor: floors.RowFloor) -> str:
    """Say what the floors are against PyFlink: it reads rows by a client of its own, and Spark's is in all of them."""
    most, sent, looped = (each / ahead for each in (floor.most, floor.sent, floor.looped))
    return (
        f" In the runs above, PyFlink wrote {ahead:.2f} times as many records a second exactly once as Spark's own "
        f"sink with our settings: against PyFlink, the three are {most:.2f}, {sent:.2f} and {looped:.2f} times."
    )


def _epoch(epochs: Mapping[int, phases.Phases]) -> str:
    if not epochs:
        return ""
    heads = "".join(f"| {rate:,}/s: median | p95 " for rate in epochs)
    told = {rate: {each.title: each for each in found.phases} for rate, found in epochs.items()}
    rows = "".join(
        f"| {title} | {phases.WHOSE[title]} "
        + "".join(
            f"| {each[title].median_ms:.1f} | {each[title].p95_ms:.1f} " if title in each else "| | "
            for each in told.values()
        )
        + f"| {what} |\n"
        for title, what in phases.HOLDS.items()
        if any(title in each for each in told.values())
    )
    return (
        f"## Where an epoch's time goes\n\n{_PHASES}\n\n| phase | whose {heads}| what happens |\n"
        f"|---|---{'|--:|--:' * len(epochs)}|---|\n{rows}\n"
        + "\n\n".join(_epoch_floor(rate, found) for rate, found in epochs.items())
    )


def _epoch_floor(rate: int, found: phases.Phases) -> str:
    """Say what remains when what is ours takes no time, and when what is Kafka's takes none either."""
    took = phases.whose(found.phases)
    last = f" of the last {found.last_s:g} s of a run" if found.last_s else ""
    last += f" without the first {found.warm_s:g} s of each query" if found.warm_s else ""
    text = (
        f"At {rate:,} records a second, over {max(each.epochs for each in found.phases)} epochs{last}, commit "
        f"`{found.versions.get('commit')}`, the medians add up to Spark {took[phases.SPARK]:.0f} ms, Kafka "
        f"{took[phases.KAFKA]:.0f} ms, onceonly {took[phases.OURS]:.0f} ms."
    )
    if not found.rows:
        return text
    now, least = (_waits(found.rows[which]) for which in (phases.ALL, phases.SPARK))
    with_kafka = (
        f" If only what onceonly itself does took none, {_waits(found.rows[phases.BOTH])} ms."
        if phases.BOTH in found.rows
        else ""
    )
    return (
        f"{text} A row waits for the end of the epoch that runs when it is due, and until the next one is visible: by "
        f"these epochs {now} ms. The floor: if what Kafka and onceonly do took no time at all, {least} ms.{with_kafka}"
    )


def _waits(waits: Mapping[str, float]) -> str:
    return ", ".join(
        f"{name.removesuffix('_ms')} {waits[name]:.0f}" for name in ("p50_ms", "p95_ms", "p99_ms")
    )


def _commit_floor(results: Results) -> str:
    """Say what remains of 64 transactions when our process takes no time but for the decision."""
    floor = floors.of_commit(results)
    if floor is None:
        return ""
    return (
        f"\n\nOf 64 transactions, the broker has {floor.broker_ms:.1f} ms of the {floor.cores} cores' time (for each, "
        f"its state is written twice and two partitions are marked), our process {floor.own_ms:.1f}. The floor: with "
        f"the decision, which takes {floor.decided_ms:.1f} ms, no fewer than {floor.ms:.1f} ms would pass if ours took "
        f"no time: {floor.ms / floor.few_ms:.1f} times as long as 4 take now."
    )


def _settings(results: Results) -> str:
    parts = ["## Settings\n\nWhat each contender was given beyond its defaults."]
    for name, settings in results.settings.items():
        listed = "\n".join(f"{key} = {value}" for key, value in settings.items())
        parts.append(f"`{name}`\n\n```text\n{listed}\n```")
    return "\n\n".join(parts)


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
