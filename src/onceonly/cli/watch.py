"""``onceonly watch``: a checkpoint in the terminal, live, for those who come by ssh. Reads only."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onceonly.cli import shared
from onceonly.words import n

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from onceonly.operations.find import Found
    from onceonly.operations.search import Problem
    from onceonly.view.values import View

_EVERY_S = 2.0
_EPOCHS = 15


@click.command()
@shared.path_argument
@click.option("--once", is_flag=True, help="Show it once, as without a terminal.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2),
    default=_EVERY_S,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=_EPOCHS, show_default=True, help="How many epochs."
)
def watch(path: str, *, once: bool, every: float, limit: int) -> int:
    """Watch a checkpoint: how it stands, what is in doubt, the newest epochs, rows per second. Ctrl-C ends it.

    Without a terminal, or with --once, it is shown once; the exit status is then 1 where something is stuck.
    """
    from onceonly.operations.find import find

    found = find(path)
    if once or not sys.stdout.isatty():
        views, problems = _views(found, limit)
        from onceonly.view import terminal

        shared.show(*shared.blocks(list(map(terminal.screen, views))))
        return max(shared.report(problems, others=bool(views)), _status(views))
    shared.report(found.problems, others=bool(found.checkpoints))
    return _live(replace(found, problems=()), every_s=every, limit=limit)


def _live(found: Found, *, every_s: float, limit: int) -> int:
    """Show it anew now and then, until somebody ends it. What cannot be read is said, and is read again."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from onceonly.view import terminal

    with Live(console=shared.stdout(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                views, problems = _views(found, limit)
                told = [Text(f"{each.path}: {each.error.what}", style="red") for each in problems]
                hint = Text(f"every {every_s:g} s; Ctrl-C ends it", style="dim")
                parts = [*told, *map(terminal.screen, views), hint]
                live.update(_fitted(live.console, shared.Legible(Group(*shared.blocks(parts)))), refresh=True)
                time.sleep(every_s)
        except KeyboardInterrupt:
            return 0


def _fitted(console: Console, whole: RenderableType) -> RenderableType:
    """Return what there is room for, and say that there is more: a screen does not scroll."""
    from rich.console import Group
    from rich.segment import SegmentLines
    from rich.text import Text

    lines = console.render_lines(whole, pad=False)
    more = len(lines) - console.height
    if more <= 0:
        return whole
    said = f"{n(more + 1, 'more line')}: make the terminal higher; Ctrl-C ends it"
    return Group(
        SegmentLines(lines[: -more - 1], new_lines=True),
        Text(said, "bold", overflow="ellipsis", no_wrap=True),
    )


def _views(found: Found, limit: int) -> tuple[list[View], tuple[Problem, ...]]:
    from onceonly.operations import look
    from onceonly.view import story

    done, problems = shared.each(
        found,
        lambda each: story.view(look.newest(each, limit=limit, history=False)),
        at_once=found.at_once,
    )
    # What is stuck comes first: it must not be what a low screen has no room for.
    return sorted((view for _, view in done), key=_is_not_stuck), problems


def _is_not_stuck(view: View) -> bool:
    from onceonly.view.values import Level

    return view.verdict.level is not Level.STUCK


def _status(views: list[View]) -> int:
    return 0 if all(map(_is_not_stuck, views)) else shared.EXIT_ANOMALY
