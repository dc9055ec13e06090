"""``onceonly stop``: a running query ends in order, from any machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from onceonly.cli import shared
from onceonly.cli.savepoint import progress
from onceonly.errors import OnceonlyError

if TYPE_CHECKING:
    from onceonly.savepoints import Savepoint


@click.command()
@shared.path_argument
@click.option(
    "--wait", "wait_s", metavar="TIME", callback=shared.span_option, default="10 minutes", show_default=True,
    help="How long to wait until the query has ended.",
)  # fmt: skip
@click.option(
    "--savepoint", "place", metavar="PLACE", help="Make a savepoint there once the query has ended."
)
@shared.because_option
@shared.json_option
def stop(path: str, *, wait_s: float, place: str | None, because: str, as_json: bool) -> int:
    """Let a running query end after the epoch in flight, and say when it has.

    Its driver may be on any machine. Exit status 0: nothing runs, and the newest epoch is whole; 1: nothing runs, and
    something is left for the next start; 2: it runs still.
    """
    from onceonly.operations import report
    from onceonly.operations import stop as operation
    from onceonly.operations.find import the_one
    from onceonly.savepoints import place as places
    from onceonly.savepoints import report as savepoints

    checkpoint = the_one(path)
    if place is not None:
        places.refuse_unfit(place, checkpoint.location)
    outcome = operation.stop(checkpoint, because=because, within_s=wait_s, tell=shared.tell)
    is_whole = outcome.is_down and outcome.is_settled
    why_not = operation.unnoted(checkpoint) if place is not None and is_whole else ""
    made: tuple[str, Savepoint] | None = None
    failed: OnceonlyError | None = None
    if place is not None and is_whole and not why_not:
        try:
            made = _made(checkpoint.location, place)
        except OnceonlyError as error:  # the query has ended all the same
            failed = error
    if as_json:
        shared.show_json({
            "path": checkpoint.path, "query": checkpoint.query, **report.stopped(outcome),
            "savepoint": made and savepoints.savepoint(*made),
        })  # fmt: skip
    else:
        told = [f"query {checkpoint.query}: {outcome.sentence}"] if outcome.is_down else []
        shared.show(*told, *([savepoints.sentence(*made)] if made else []))
    if outcome.next_step:
        shared.complain(f"query {checkpoint.query}: {outcome.sentence}", outcome.next_step)
    if why_not:
        shared.complain(
            why_not,
            f"start the query once, then: onceonly stop {shlex.quote(checkpoint.path)} --savepoint "
            f"{shlex.quote(place or '')}",
        )
        return shared.EXIT_ANOMALY
    if failed is not None:
        shared.complain(f"no savepoint was made: {failed.what}", failed.next_step)
        return shared.status_of(failed)
    if place is not None and made is None:
        shared.tell(
            "no savepoint was made: one is made of a query that has ended with all of its epochs whole"
        )
    if not outcome.is_down:
        return shared.EXIT_CANNOT_TELL
    return 0 if is_whole else shared.EXIT_ANOMALY


def _made(location: str, place: str) -> tuple[str, Savepoint]:
    from onceonly import savepoints

    with progress("copied") as told:
        made = savepoints.create(location, place, told=told)
    return savepoints.address_in(place, made.name), made
