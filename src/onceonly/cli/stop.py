"""``onceonly stop``: a running query ends in order, from any machine."""

from __future__ import annotations

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError


@click.command()
@shared.path_argument
@click.option(
    "--wait", "wait_s", metavar="TIME", callback=shared.span_option, default="10 minutes", show_default=True,
    help="How long to wait until the query has ended.",
)  # fmt: skip
@click.option("--because", default="", metavar="TEXT", help="Why, for the record.")
@shared.json_option
def stop(path: str, *, wait_s: float, because: str, as_json: bool) -> int:
    """Let a running query end after the epoch in flight, and say when it has.

    Its driver may be on any machine. Exit status 0: nothing runs, and the newest epoch is whole; 1: nothing runs, and
    something is left for the next start; 2: it runs still.
    """
    from onceonly.operations import report
    from onceonly.operations import stop as operation
    from onceonly.operations.find import find

    here = find(path)
    if len(here.checkpoints) != 1:
        status = shared.report(here.problems, others=False)
        if status:
            return status
        raise ConfigurationError(
            f"{path} leads to {len(here.checkpoints)} queries",
            next_step="name the checkpointLocation of one of them",
        )
    [checkpoint] = here.checkpoints
    outcome = operation.stop(checkpoint, because=because, within_s=wait_s, tell=shared.tell)
    if as_json:
        shared.show_json({"path": checkpoint.path, "query": checkpoint.query, **report.stopped(outcome)})
    elif outcome.is_down:
        shared.show(f"query {checkpoint.query}: {outcome.sentence}")
    if outcome.next_step:
        shared.complain(f"query {checkpoint.query}: {outcome.sentence}", outcome.next_step)
    if not outcome.is_down:
        return shared.EXIT_CANNOT_TELL
    return 0 if outcome.is_settled else shared.EXIT_ANOMALY
