"""``onceonly checkpoints``: what the decision log of a query tells, with the job up or down, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError, OnceonlyError

if TYPE_CHECKING:
    from onceonly.operations.find import Checkpoint


@click.group()
def checkpoints() -> None:
    """Look at checkpoints: chk-N is the N-th epoch of a query.

    PATH is a checkpointLocation (a path, s3a://, gs://, abfss://, hdfs://), or a folder above several; the current
    folder if it is left out.
    """


@checkpoints.command("list")
@shared.path_argument
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many epochs of each query.",
)
@click.option("--all", "everything", is_flag=True, help="All epochs, those that are folded into history too.")
@shared.json_option
def list_(path: str, *, limit: int, everything: bool, as_json: bool) -> int:
    """List the newest epochs of each query, newest first."""
    from onceonly.operations import look, render, report
    from onceonly.operations.find import find

    here = find(path)
    found, problems = shared.each(
        here,
        lambda each: look.newest(each, limit=None if everything else limit, history=everything),
        at_once=here.at_once,
    )
    if as_json:
        shared.show_json({
            "checkpoints": [
                {
                    **report.checkpoint(model),
                    "epochs_known": model.known,
                    "epochs": list(map(report.row, model.epochs)),
                }
                for _, model in found
            ],
            "problems": report.problems(problems),
        })  # fmt: skip
    elif found:
        shared.show_each([render.header(model), render.epochs(model)] for _, model in found)
    moved = any(model.is_moved for _, model in found)
    return max(shared.report(problems, others=bool(found)), shared.EXIT_ANOMALY if moved else 0)


@checkpoints.command()
@click.argument("name", metavar="chk-N")
@shared.path_argument
@shared.json_option
def show(name: str, path: str, *, as_json: bool) -> int:
    """Show one epoch: barrier, decision chain, handles and their outcomes, state, time per step."""
    from onceonly.operations import look, render, report
    from onceonly.operations.find import find

    epoch = shared.epoch_named(name)
    here = find(path)
    found, problems = shared.each(here, lambda each: look.epoch(each, epoch), at_once=here.at_once)
    if as_json:
        shared.show_json({
            "checkpoints": [
                {**report.checkpoint(model), "epoch": report.detail(model)} for _, model in found
            ],
            "problems": report.problems(problems),
        })  # fmt: skip
    elif found:
        shared.show_each([render.header(model), render.detail(model)] for _, model in found)
    if found:
        # Of several queries, one may not have come as far.
        problems = tuple(item for item in problems if not isinstance(item.error, ConfigurationError))
    return shared.report(problems, others=bool(found))


@checkpoints.command("accept-move")
@shared.path_argument
@shared.yes_option
@click.option(
    "--force", is_flag=True,
    help="Go on where it cannot be told whether a run is alive, or whether the former place still has the log.",
)  # fmt: skip
def accept_move(path: str, *, yes: bool, force: bool) -> int:
    """Make a checkpoint that was moved on purpose at home where it is now."""
    from onceonly.operations import move
    from onceonly.operations.find import find
    from onceonly.operations.search import Problem

    def prepare(checkpoint: Checkpoint) -> bool:
        if checkpoint.moved is None:
            return False
        move.refuse_unless_moved(checkpoint, force=force)
        return True

    found, problems = shared.each(find(path), prepare)
    status = shared.report(problems, others=bool(found))
    moved = [checkpoint for checkpoint, has_moved in found if has_moved]
    if found and not moved:
        shared.tell("nothing to do: every checkpoint is where it is at home")
    for checkpoint in moved:
        shared.tell(f"query {checkpoint.query}\n  from {checkpoint.home}\n  to   {checkpoint.address}")
        if shared.agreed("Is this where it shall be at home?", yes=yes):
            try:
                lacking = move.accept(checkpoint, force=force)
            except OnceonlyError as error:
                status = max(status, shared.report([Problem(checkpoint.path, error)], others=False))
            else:
                shared.tell(f"accepted{lacking}")
        else:
            status = max(status, shared.EXIT_ANOMALY)
    return status
