"""A campaign's report on a terminal: the guarantee matrix, and how often each fault fired. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from onceonly.words import n
from onceonly_proof.campaign.folding import listed, spread

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onceonly_proof.campaign.values import Result

_STYLES = {"clean": "bold green", "anomalies": "bold red", "inconclusive": "bold yellow"}
_WHY_MAX = 10


def table(result: Result) -> RenderableType:
    """Return the guarantee matrix with the verdict under it, why, and how to see each finding again."""
    shown = Table(title="guarantee matrix", title_justify="left", box=box.SIMPLE)
    for name in ("sink", "guarantee"):
        shown.add_column(name)
    for name in ("rounds", "crashes survived", "faults", "rows checked", "anomalies"):
        shown.add_column(name, justify="right")
    shown.add_column("verdict")
    for row in result.matrix:
        found = listed(row.anomalies)
        shown.add_row(
            row.way,
            row.promise,
            *(f"{count:,}" for count in (row.rounds, row.crashes, sum(row.faults.values()), row.rows)),
            Text(found or "0", style="red" if found else "green"),
            Text(row.verdict, style=_STYLES[row.verdict]),
        )
    return Group(shown, _verdict(result), *_because(result))


def faults_table(result: Result) -> RenderableType:
    """Return how often each fault was armed and fired, one line each."""
    shown = Table(title="faults", title_justify="left", box=box.SIMPLE)
    shown.add_column("fault")
    shown.add_column("armed", justify="right")
    shown.add_column("fired", justify="right")
    for name in sorted({*result.armed, *result.faults}):
        armed, fired = result.armed.get(name, 0), result.faults.get(name, 0)
        shown.add_row(
            Text(name), f"{armed:,}", Text(f"{fired:,}", style="bold yellow" if fired < armed else "")
        )
    shown.add_section()
    shown.add_row("all", f"{sum(result.armed.values()):,}", f"{sum(result.faults.values()):,}")
    return shown


def _verdict(result: Result) -> Text:
    median, worst = spread(s for each in result.rounds for s in each.recovery_s)
    times = f" · recovery {median:.1f} s median, {worst:.1f} s worst" if median is not None else ""
    traces = f" · traces: {listed(result.traces)}" if result.traces else ""
    return Text.assemble(
        (result.verdict.upper(), _STYLES[result.verdict]),
        f" · {n(result.crashes, 'crash')} · {n(len(result.rounds), 'round')}{times}{traces}",
    )


def _because(result: Result) -> list[Text]:
    lines = [Text(f"  {why}") for why in result.why[:_WHY_MAX]]
    more = len(result.why) - _WHY_MAX
    lines += [Text(f"  and {more:,} more")] if more > 0 else []
    lines += [Text(f"  {example}", style="red") for example in result.examples]
    bad = [each for each in result.rounds if each.verdict == "anomalies"]
    return lines + [Text(f"  again: {each.command}") for each in bad[:_WHY_MAX]]
