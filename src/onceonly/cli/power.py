"""``onceonly verify --power-cuts``: queries on a disk that forgets, its table and its exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table

from onceonly.cli import shared

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.testing.power.outcome import Result


def cut(*, cuts: int, minutes: float | None, roads: tuple[str, ...], seed: int, json: Path | None) -> int:
    """Cut the power so often, print what was found, and give the exit status."""
    try:
        from onceonly.testing.power.run import PowerOptions, run_power
        from onceonly.testing.power.task import ROADS, Road
    except ModuleNotFoundError as error:
        raise shared.missing(error) from None
    try:
        chosen = tuple(Road.named(name) for name in roads) or ROADS
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    options = PowerOptions(roads=chosen, cuts=cuts, minutes=minutes, seed=seed, json=json)
    found = run_power(options, shared.tell)
    shared.show(table(found))
    for road in found.roads:
        for text in road.examples if not road.is_clean else ():
            shared.tell(f"{road.road}: {text}")
    return 0 if found.is_clean else shared.EXIT_ANOMALY


def table(found: Result) -> Table:
    """Draw what was found on each road."""
    drawn = Table(
        title=f"{found.cuts:,} power cuts, {found.states:,} different states",
        title_justify="left",
        box=box.SIMPLE,
    )
    drawn.add_column("road")
    for head in ("cuts", "states", "ordinals hit", "rows due", "lost", "doubled", "by hand"):
        drawn.add_column(head, justify="right")
    for each in found.roads:
        hit = f"{each.ordinals_hit} of {each.ordinals}"
        counts = (each.rows, each.lost, each.doubled, each.by_hand)
        texts = (f"{count:,}" for count in counts)
        drawn.add_row(each.road, f"{each.cuts:,}", f"{each.states:,}", hit, *texts)
    return drawn
