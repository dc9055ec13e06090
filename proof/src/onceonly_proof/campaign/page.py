"""A campaign's report as one HTML file without anything from outside: no script, no network, light and dark.

From the top: the verdict, the figures, the guarantee matrix, every round, what recovery took, how often each fault
fired, what the auditor looked for and what it found, and how to run all or one round of it again. Its words and
their order are in ``page.html.jinja``.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from onceonly.words import n
from onceonly_proof import charts
from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.campaign.folding import listed, spread, total
from onceonly_proof.campaign.result import save
from onceonly_proof.pages import render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from onceonly_proof.campaign.values import Result, Round

_WHY_MAX = 12
_ROUNDS_MAX = 50
"""Of those that are not clean, told in full."""
_WORDS = {
    "clean": ("Clean", "After every crash the output is what the guarantee promises."),
    "anomalies": ("Anomalies", "The output is not what the guarantee promises."),
    "inconclusive": ("Inconclusive", "Nothing wrong was seen, and that is not enough for a proof."),
}
_BINS = 40
_WIDTH, _HEIGHT, _SIDE = 1200, 190, 64


def write(path: Path, result: Result) -> None:
    """Write the page. Raises ``UnavailableError`` where that is not possible."""
    save(path, draw(result).encode())


def draw(result: Result) -> str:
    """Return the page. Pure, but for the templates, which are read from beside this module."""
    word, meaning = _WORDS[result.verdict]
    names = sorted({*result.armed, *result.faults}, key=lambda name: (_group(name), name))
    groups = [(group, list(members)) for group, members in groupby(names, _group)]
    times = sorted(s for each in result.rounds for s in each.recovery_s)
    commits = sorted({each.commit for each in result.rounds if each.commit})
    return render(
        "onceonly_proof.campaign",
        "page.html.jinja",
        result=result,
        word=word,
        meaning=meaning,
        facts=_facts(result),
        when=_when(result),
        why_max=_WHY_MAX,
        tiles=_tiles(result, times),
        most_crashes=max((1, *(row.crashes for row in result.matrix))),
        lanes=[
            (row, [each for each in result.rounds if _lane(each) == (row.way, row.promise)])
            for row in result.matrix
        ],
        recovery=times and charts.svg(recovery(times)),
        groups=sorted(groups, key=lambda each: -len(each[1])),
        by={
            row.way: total(each.faults for each in result.rounds if each.way == row.way)
            for row in result.matrix
        },
        most_faults=max((1, *result.armed.values(), *result.faults.values())),
        anomalies=sorted(result.anomalies.items(), key=lambda each: (-each[1], each[0])),
        sentences={str(anomaly): anomaly.sentence for anomaly in Anomaly},
        bad=[each for each in result.rounds if each.verdict != "clean"],
        rounds_max=_ROUNDS_MAX,
        again=_again(result),
        versions={**result.versions, **({"commits": ", ".join(commits)} if len(commits) > 1 else {})},
        kind=_kind,
        listed=listed,
        tell=_tell,
    )


@charts.styled
def recovery(times: Sequence[float]) -> Figure:
    """Draw how long it took from a death to the first new row: how many times of each length. Pure.

    Raises:
        ValueError: there is none.
    """
    median, worst = spread(times)
    if median is None or worst is None:
        raise ValueError("nothing to draw")
    most = max(worst, 0.001)
    told = f"median {median:.1f} s, worst {worst:.1f} s of {len(times):,}"
    figure = charts.sheet(_WIDTH, _HEIGHT, told)
    axes = charts.panel(figure, _SIDE, 40, _WIDTH - 2 * _SIDE, _HEIGHT - 70)
    axes.hist(times, bins=_BINS, range=(0, most), color=charts.BLUE, rwidth=0.9)
    axes.axvline(median, color=charts.INK, linewidth=1, linestyle=(0, (3, 3)))
    axes.set_xlim(0, most)
    axes.xaxis.set_major_formatter("{x:g} s")
    charts.levels(axes.yaxis)
    return figure


def _facts(result: Result) -> str:
    crashes, rows = result.crashes, sum(each.rows for each in result.rounds)
    found = sum(result.anomalies.values())
    facts = f"{n(crashes, 'crash')} · {n(rows, 'row')} checked · "
    return facts + f"{n(found, 'anomaly')}"


def _when(result: Result) -> str:
    if not result.rounds:
        return ""
    first, last = result.rounds[0].started, max(each.started for each in result.rounds)
    days = first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"
    seeds = ", ".join(str(seed) for seed in sorted({each.seed for each in result.rounds}))
    return f"{days} · seed {seeds} · onceonly {result.versions.get('onceonly', '?')}"


def _tiles(result: Result, times: Sequence[float]) -> dict[str, str]:
    median, worst = spread(times)
    return {
        "crashes": f"{result.crashes:,}",
        "faults fired, of armed": f"{sum(result.faults.values()):,} / {sum(result.armed.values()):,}",
        "rows checked": f"{sum(each.rows for each in result.rounds):,}",
        "epochs": f"{sum(each.epochs for each in result.rounds):,}",
        "rounds": f"{len(result.rounds):,}",
        "recovery, median": _seconds(median),
        "recovery, worst": _seconds(worst),
        "under attack for": _span(sum(each.seconds for each in result.rounds)),
    }


def _lane(each: Round) -> tuple[str, str]:
    return each.way, each.promise


def _group(fault: str) -> str:
    """Return the first word of a fault's name."""
    return fault.partition(" ")[0]


def _kind(connector: str) -> str:
    """Return a connector's class in the style sheet: its name in letters only."""
    return "".join(each if each.isalnum() else "-" for each in connector)


def _tell(each: Round) -> str:
    lines = [
        f"{each.name} · {each.way}, {each.promise}{each.query and f', {each.query}'} · {each.verdict}",
        f"{n(each.crashes, 'crash')}, {n(each.rows, 'row')}, {n(each.epochs, 'epoch')} in {each.seconds:.0f} s",
        *([n(each.second_attempts, "second attempt")] if each.speculation else []),
        f"fired: {listed(each.faults) or 'none'}",
        *([f"found: {listed(each.anomalies)}"] if sum(each.anomalies.values()) else []),
        *each.doubts,
    ]
    return "\n".join(lines)


def _again(result: Result) -> str:
    calls: dict[tuple[int, str, bool, str, str, str, int, bool], list[Round]] = {}
    for each in result.rounds:
        name = (
            *(each.seed, each.guarantee, each.dear, each.visible),
            *(each.source, each.other_query, each.executors, each.speculation),
        )
        calls.setdefault(name, []).append(each)
    lines = "\n".join(_call(rounds) for _, rounds in sorted(calls.items()))
    return lines or f"onceonly verify --crashes 1000 --seed {result.seed}"


def _call(rounds: list[Round]) -> str:
    """Return the call that runs these rounds: sinks take turns in the order in which they are named."""
    sinks = dict.fromkeys(each.connector for each in sorted(rounds, key=lambda each: each.number))
    words = [
        "onceonly verify",
        *(f"--sink {sink}" for sink in sinks),
        f"--guarantee {rounds[0].guarantee}",
        *([f"--visible {rounds[0].visible}"] if rounds[0].visible else []),
        *([f"--source {rounds[0].source}"] if rounds[0].source else []),
        *([f"--query {rounds[0].other_query}"] if rounds[0].other_query else []),
        *([f"--executors {rounds[0].executors}"] if rounds[0].executors else []),
        *(["--speculation"] if rounds[0].speculation else []),
        f"--crashes {sum(each.crashes for each in rounds)} --seed {rounds[0].seed}",
        *([] if rounds[0].dear else ["--no-dear"]),
        "--json result.json --html result.html",
    ]
    return " ".join(words)


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} s"


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004
