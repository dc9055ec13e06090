"""``onceonly ui``: a page of checkpoints in a browser of this machine."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from onceonly.cli import shared
from onceonly.errors import SetupError

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="CHECKPOINT...")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port; a free one by default.")
@click.option("--no-browser", is_flag=True, help="Open no browser, and only print the address.")
@click.option(
    "--prefix",
    default="",
    metavar="PATH",
    help="Where a proxy shows the page: its path, or its whole address where it passes its own name on.",
)
@shared.events_option
@shared.hadoop_option
def ui(paths: tuple[str, ...], *, port: int, no_browser: bool, prefix: str, events: Path | None) -> int:
    """Show queries in a browser, with the job up or down, until Ctrl-C. Only reads; needs no Spark.

    CHECKPOINT is a checkpointLocation, or a folder above several. The address stands alone on a line of standard
    output; the token in it lets in, so it is for you alone.
    """
    from onceonly.operations.find import find

    try:
        from onceonly.ui import opening, serving
    except ModuleNotFoundError as error:
        raise SetupError(
            f"onceonly ui needs the package {error.name}, which is not installed",
            next_step="run: pip install 'onceonly[ui]'",
        ) from error
    each = [find(path) for path in dict.fromkeys(paths)]
    problems = [problem for found in each for problem in found.problems]
    checkpoints = {item.location: item for found in each for item in found.checkpoints}
    status = shared.report(problems, others=bool(checkpoints))
    if not checkpoints:
        return status
    served = serving.listen(port=port, prefix=prefix)
    click.echo(served.address)
    shared.tell("this page only reads; Ctrl-C ends it")
    shown = not no_browser and shared.has_screen()
    with opening.opened(served.address, shared.tell) if shown else nullcontext():
        serving.serve(served, list(checkpoints.values()), paths, events=events, problems=problems)
    return 0
