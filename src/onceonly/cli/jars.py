"""``onceonly jars``: resolve the jars of the broker and of Spark's Kafka connector once."""

from __future__ import annotations

import click
from rich.console import Console

from onceonly.jars.locked import cache_folder, connector_jars, ensure_jars


@click.command()
@click.option("--spark", is_flag=True, help="Print the connector's paths, comma-separated, for spark.jars.")
def jars(*, spark: bool) -> None:
    """Fetch the jars that the demo, the tests and Spark's Kafka connector need; instant the second time."""
    console = Console(stderr=True)
    found = ensure_jars(console)
    if spark:
        click.echo(",".join(str(path) for path in connector_jars()))
        return
    console.print(f"{len(found)} jars are in {cache_folder() / 'jars'}", highlight=False, soft_wrap=True)
