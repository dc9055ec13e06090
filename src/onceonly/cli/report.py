"""``onceonly report``: a run as one file to keep, to send, and to open without a network. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

EXPORTS = ("perfetto", "shiviz")
"""Those of ``view.exports``, which this module does not import before it is asked for one."""


@click.command()
@shared.path_argument
@click.option(
    "--out", type=shared.NEW_FILE, metavar="FILE", help="Write the report there: one HTML file; - is stdout."
)
@click.option(
    "--export", "exports", multiple=True, metavar="FORMAT FILE", type=(click.Choice(EXPORTS), shared.NEW_FILE),
    help="Write a file for another viewer, too: perfetto (ui.perfetto.dev) or shiviz.",
)  # fmt: skip
@shared.events_option
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many of the newest epochs.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 100),
    help="How many of the newest runs; by default 10 on a store, else 100.",
)
def report(
    path: str,
    *,
    out: Path | None,
    exports: tuple[tuple[str, Path], ...],
    events: Path | None,
    limit: int,
    runs: int | None,
) -> int:
    """Write a report of a checkpoint: how it stands, its time line, figures, and its epochs, in one HTML file.

    The file needs no network, no script and no server. The job may be up or down. Exit status 1: something is stuck.
    """
    from onceonly import events as event_log
    from onceonly.looking import seen, write
    from onceonly.operations.find import the_one
    from onceonly.view import trace
    from onceonly.view.exports import Export, export
    from onceonly.view.page import report as page
    from onceonly.view.values import Level

    if out is None and not exports:
        raise ConfigurationError("nothing was asked for", next_step="say where to: --out run.html")
    files = [file.absolute() for file in (out, *(file for _, file in exports)) if file is not None]
    twice = next((file for number, file in enumerate(files) if file in files[:number]), None)
    if twice is not None:
        raise ConfigurationError(f"{twice} was named twice", next_step="name a file for each of them")
    view = seen(the_one(path), epochs=limit, runs=runs)
    lines = trace.of_query(view, event_log.read(events)) if events is not None else []
    if events is not None and not lines:
        shared.tell(f"no line of {events} is of the query {view.query}: the event log adds nothing")
    view = trace.with_events(view, lines)
    texts = [(out, page(view))] if out is not None else []
    for file, text in (*texts, *((file, export(Export(form), view, lines)) for form, file in exports)):
        if str(file) == "-":
            click.echo(text, nl=False)
        else:
            shared.tell(f"wrote {write(file, text)}")
    return shared.EXIT_ANOMALY if view.verdict.level is Level.STUCK else 0
