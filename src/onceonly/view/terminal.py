"""A view in a terminal: the verdict, what is in doubt, the newest epochs. Pure; gives what rich prints.

Everything is ``Text``: what comes from outside is never read as markup of rich's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from onceonly.operations.states import SETTLED
from onceonly.view.telling import UNKNOWN, moment, outcomes, since, took
from onceonly.view.values import COMMIT, Level
from onceonly.words import n

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onceonly.view.values import Epoch, Verdict, View

_STYLES: Final = {
    Level.SAFE: "bold green",
    Level.WORKING: "bold cyan",
    Level.WAITING: "bold yellow",
    Level.STUCK: "bold red",
    Level.UNKNOWN: "bold yellow",
}
_DOUBT_MAX: Final = 10
_HEARD: Final = "last heard of"
_WHOLE: Final = frozenset({"epoch", _HEARD})
"""Columns whose words stay in one line, so that an epoch has as few as can be."""


def screen(view: View) -> RenderableType:
    """Return all of it."""
    parts: list[RenderableType] = [
        Text.assemble(
            ("query ", "dim"), (view.called, "bold"), ("  run ", "dim"), view.run, f"  {view.address}"
        ),
        verdict(view.verdict),
    ]
    if view.in_doubt:
        parts.append(_in_doubt(view))
    if view.epochs:
        parts.append(_epochs(view))
    speed = rows_per_s(view)
    if speed is not None:
        parts.append(Text(f"{speed:,.1f} rows/s over the epochs that are shown"))
    parts += [Text(f"! {each}", style="red") for each in view.skew]
    return Group(*parts)


def verdict(found: Verdict) -> Text:
    """Return how a checkpoint stands."""
    text = Text.assemble((found.level.upper(), _STYLES[found.level]), ": ")
    if found.stuck:
        at = moment(found.since) if found.since is not None else ""
        text.append(f"{found.stuck}{since(found)}{at}\n")
    text.append(found.safe)
    text.append(f"\nwaiting for it: {found.waits}" if found.waits else "")
    text.append(f"\nnext: {found.next_step}" if found.next_step else "")
    if found.command:
        text.append(f"\n  {found.command}", style="bold")
    return text


def rows_per_s(view: View) -> float | None:
    """Return rows per second, from the first to the last settled epoch that is shown; None where that is not known."""
    settled = [each for each in view.epochs if each.state in SETTLED and each.at is not None]
    if len(settled) < 2:  # noqa: PLR2004  two ends of a span
        return None
    first, last = settled[0].at, settled[-1].at
    span = (last or 0.0) - (first or 0.0)
    rows = sum(each.rows or 0 for each in settled[1:])
    return rows / span if span > 0 else None


def _in_doubt(view: View) -> RenderableType:
    table = _table("in doubt", "sink", "slot", "rows", "transaction")
    for epoch, mark in view.in_doubt[:_DOUBT_MAX]:
        cells = (epoch.name, mark.sink, str(mark.slot), str(mark.rows), mark.transaction)
        table.add_row(*map(Text, cells), style="red")
    more = len(view.in_doubt) - _DOUBT_MAX
    return Group(table, Text(f"{n(more, 'more transaction')}", style="dim")) if more > 0 else table


def _epochs(view: View) -> Table:
    table = _table("epoch", "state", "rows", "write and decide", "commit", "commits", _HEARD)
    for each in reversed(view.epochs):
        rows = "" if each.rows is None else f"{each.rows:,}"
        style = "" if each.state in SETTLED else "yellow"
        seconds = [_or_empty(each.decided_s), _or_empty(each.phase(COMMIT))]
        state = f"{each.words}, folded" if each.folded else each.words
        cells = (each.name, state, rows, *seconds, outcomes(each.outcomes), _heard(each))
        table.add_row(*map(Text, cells), style=style)
    return table


def _heard(each: Epoch) -> str:
    """Say when, to the second, as a screen may be narrow."""
    return UNKNOWN if each.at is None else f"{moment(each.at)[:19].replace('T', ' ')}Z"


def _or_empty(span_s: float | None) -> str:
    return "" if span_s is None else took(span_s)


def _table(*names: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False, header_style="bold"
    )
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name in _WHOLE)
    return table
