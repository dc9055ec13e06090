"""``onceonly verify power-cuts``: queries on a disk that forgets, its table and its exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table

from onceonly.cli import shared
from onceonly_proof.cli.missing import missing

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.power.outcome import Result


@click.command("power-cuts")
@click.argument("cuts", type=click.IntRange(min=1))
@click.option(
    "--pipeline", "pipelines", multiple=True,
    help="SOURCE-STATE-SINK, for example files-rocksdb-kafka. Can be given several times.  [default: all]",
)  # fmt: skip
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Make no cut after so many minutes."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses workloads and cuts.")
@click.option(
    "--json", "json_file", type=shared.NEW_FILE,
    help="The result, written after each cut; one that is there is gone on with.",
)  # fmt: skip
def power_cuts(
    *, cuts: int, pipelines: tuple[str, ...], minutes: float | None, seed: int, json_file: Path | None
) -> int:
    """Run queries on a disk that forgets at a power cut what was not synced.

    Goes on until so many different CUTS were tried. Exit status: 0 clean, 1 an anomaly.
    """
    try:
        from onceonly_proof.power.run import PowerOptions, run_power
        from onceonly_proof.power.task import PIPELINES, Pipeline
    except ModuleNotFoundError as error:
        raise missing(error) from None
    try:
        chosen = tuple(Pipeline.named(name) for name in pipelines) or PIPELINES
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    options = PowerOptions(pipelines=chosen, cuts=cuts, minutes=minutes, seed=seed, json=json_file)
    found = run_power(options, shared.tell)
    shared.show(table(found))
    for pipeline in found.pipelines:
        for text in pipeline.examples if not pipeline.is_clean else ():
            shared.tell(f"{pipeline.pipeline}: {text}")
    return 0 if found.is_clean else shared.EXIT_ANOMALY


def table(found: Result) -> Table:
    """Draw what was found on each pipeline."""
    drawn = Table(
        title=f"{found.cuts:,} power cuts, {found.states:,} different states",
        title_justify="left",
        box=box.SIMPLE,
    )
    drawn.add_column("pipeline")
    for head in ("cuts", "states", "ordinals hit", "rows due", "lost", "doubled", "by hand"):
        drawn.add_column(head, justify="right")
    for each in found.pipelines:
        hit = f"{each.ordinals_hit} of {each.ordinals}"
        counts = (each.rows, each.lost, each.doubled, each.by_hand)
        texts = (f"{count:,}" for count in counts)
        drawn.add_row(each.pipeline, f"{each.cuts:,}", f"{each.states:,}", hit, *texts)
    return drawn
