"""``onceonly savepoint``: copies of what a query needs to start again after a decided epoch."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import click

from onceonly.cli import shared, targets
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onceonly.log.actions import Withdrawn
    from onceonly.operations.restoring import Made

_place = click.argument("place")


@click.group()
def savepoint() -> None:
    """Make savepoints of checkpoints, beside a running job or with it down, and start again from them.

    CHECKPOINT is a checkpointLocation, PLACE where savepoints are, or one of them: a path, s3a://, gs://, abfss:// or
    hdfs://.
    """


@savepoint.command()
@click.argument("checkpoint")
@_place
@click.option("--epoch", metavar="chk-N", help="Of this epoch. Default: the newest that is complete.")
@shared.hadoop_option
@shared.json_option
def create(checkpoint: str, place: str, *, epoch: str | None, as_json: bool) -> int:
    """Make a savepoint of CHECKPOINT in PLACE; the running job goes on."""
    from onceonly import savepoints
    from onceonly.operations.find import the_one
    from onceonly.operations.stop import unnoted
    from onceonly.savepoints import place as places
    from onceonly.savepoints import report

    here = the_one(checkpoint)
    places.refuse_unfit(place, here.location)
    number = shared.epoch_named(epoch) if epoch is not None else None
    why_not = unnoted(here) if number is None and here.run.alive is False else ""
    if why_not:
        raise ConfigurationError(
            why_not,
            next_step="start the query once, and run this again; or name an earlier epoch with --epoch, if it is meant",
        )
    with progress("copied") as told:
        made = savepoints.create(here.location, place, epoch=number, told=told)
    where = savepoints.address_in(place, made.name)
    if as_json:
        shared.show_json(report.savepoint(where, made))
    else:
        shared.show(report.sentence(where, made))
    return 0


@savepoint.command("list")
@_place
@shared.hadoop_option
@shared.json_option
def list_(place: str, *, as_json: bool) -> int:
    """List the savepoints in PLACE, those of later epochs first. Exit status 1: one is not whole."""
    from onceonly.savepoints import place as places
    from onceonly.savepoints import report

    found = places.some(place)
    if as_json:
        shared.show_json({
            "savepoints": [
                report.row(each.address.shown, each.savepoint) for each in found if each.savepoint is not None
            ],
            "not_whole": [each.address.shown for each in found if each.savepoint is None],
        })  # fmt: skip
    else:
        shared.show(*report.table(found))
    for each in found:
        if each.savepoint is None:
            why = "it is being made, or its making or dropping was broken off"
            shared.tell(
                f"{each.address.shown} is not whole: {each.damaged.what if each.damaged else why}; "
                f"onceonly savepoint drop {shlex.quote(each.address.shown)} takes it away"
            )
    return shared.EXIT_ANOMALY if any(each.savepoint is None for each in found) else 0


@savepoint.command()
@_place
@shared.hadoop_option
@shared.json_option
def show(place: str, *, as_json: bool) -> int:
    """Show one savepoint: whose, after which epoch, its offsets, watermark, sinks and files."""
    from onceonly.savepoints import place as places
    from onceonly.savepoints import report

    address, found = places.the_one(place)
    if as_json:
        shared.show_json(report.savepoint(address.shown, found))
    else:
        shared.show(*shared.blocks(report.detail(address.shown, found)))
    return 0


@savepoint.command()
@_place
@shared.hadoop_option
@shared.json_option
def verify(place: str, *, as_json: bool) -> int:
    """Read every file of the savepoints in PLACE, and compare size and checksum. Exit status 1 where one differs.

    2, where a manifest is damaged, so that nobody can tell.
    """
    from onceonly.savepoints import place as places

    found = places.standing(place)
    if not any(each.damaged for each in found):
        places.whole(place)  # refuses where there is none
    wrong: dict[str, list[str]] = {}
    for each in found:
        if each.damaged is not None:
            wrong[each.address.shown] = [each.damaged.what]
        if each.savepoint is not None:
            with progress("read") as told:
                found_wrong = places.wrong(each.address, each.savepoint, told=told)
            now = places.at(each.address) if found_wrong else each
            if now is None or (now.savepoint is None and now.damaged is None):
                shared.tell(f"{each.address.shown} was dropped meanwhile")
                continue
            wrong[each.address.shown] = found_wrong
    if as_json:
        shared.show_json(
            {"savepoints": [{"path": path, "wrong": sentences} for path, sentences in wrong.items()]}
        )
    else:
        for path, sentences in wrong.items():
            shared.show(f"{path}: {'; '.join(sentences) or 'whole'}")
    if any(each.damaged for each in found):
        return shared.EXIT_CANNOT_TELL
    return shared.EXIT_ANOMALY if any(wrong.values()) else 0


@savepoint.command()
@_place
@shared.hadoop_option
@shared.because_option
@shared.yes_option
def drop(place: str, *, because: str, yes: bool) -> int:
    """Delete one savepoint, its own files only. PLACE is its folder."""
    from onceonly.operations import records
    from onceonly.savepoints import place as places

    found = places.folder_of_one(place)
    address = found.address
    shared.tell(f"savepoint {address.shown}")
    if not shared.agreed("Delete it?", yes=yes):
        return shared.EXIT_ANOMALY
    book, before = records.of_savepoint(found), f"it stood at {address.shown}"
    with records.kept(book, command="savepoint drop", because=because, before=before) as entry:
        left = places.drop(address)
        entry.after = "deleted"
    shared.tell("deleted")
    for sentence in entry.told:
        shared.tell(sentence)
    for name in left:
        shared.tell(f"left where it is, as it is not of a savepoint: {address.below(name).shown}")
    return 0


_to = click.option(
    "--to", required=True, metavar="CHECKPOINT", help="Where the new checkpoint shall be: an empty place."
)


@savepoint.command()
@_place
@_to
@click.option(
    "--output", type=click.Choice(["again", "withdraw"]),
    help="What becomes of output that was decided after the savepoint. again: the job goes on under an id of its own, "
    "and writes it again. withdraw: it is taken back, of files, Delta and Iceberg.",
)  # fmt: skip
@click.option(
    "--moved-to", default="", metavar="CHECKPOINT",
    help="Where the query's checkpoint is now, if it was moved by hand since the savepoint.",
)  # fmt: skip
@click.option(
    "--force", is_flag=True,
    help="Go on beside a run that is alive, or may be: it ends as superseded; and where a target of the former run "
    "cannot be asked. With --output again, also where the former checkpoint cannot.",
)  # fmt: skip
@targets.source_options
@targets.sink_options
@shared.hadoop_option
@shared.yes_option
@shared.json_option
def restore(  # noqa: PLR0913  one parameter for each option
    place: str, to: str, *, output: str | None, moved_to: str, force: bool, sources: tuple[str, ...],
    source_file: Path | None, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None, yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Make CHECKPOINT from a savepoint: the same job, at an earlier point. The former one does not go on.

    Where output was decided after the savepoint, it refuses and says what stands where. Before it takes any back, it
    says what, and asks.
    """
    from onceonly.operations import restoring, sources_left

    given = targets.given(options, options_file, classes, yes=yes)
    reached = sources_left.given(sources, source_file)
    wanted = restoring.Output(output) if output else None

    def agree(to_go: Sequence[Withdrawn]) -> None:
        for each in to_go:
            shared.tell(f"to be withdrawn {each.sentence}")
        if to_go and not shared.agreed("Shall it be taken back for good?", yes=yes):
            click.get_current_context().exit(shared.EXIT_ANOMALY)

    with progress("restored") as told:
        made = restoring.restore(
            place,
            to,
            given,
            output=wanted,
            sources=reached,
            moved_to=moved_to,
            force=force,
            told=told,
            agree=agree,
        )
    return _made(made, as_json=as_json)


@savepoint.command()
@_place
@_to
@click.option("--same-targets", is_flag=True, help="Let the fork write to the targets of the original, too.")
@targets.source_options
@shared.hadoop_option
@shared.json_option
def fork(
    place: str,
    to: str,
    *,
    same_targets: bool,
    sources: tuple[str, ...],
    source_file: Path | None,
    as_json: bool,
) -> int:
    """Make CHECKPOINT of another job, with ids of its own, that begins with a savepoint. The original goes on.

    At its first start, the fork refuses to write to targets of the original.
    """
    from onceonly.operations import restoring, sources_left

    reached = sources_left.given(sources, source_file)
    with progress("forked") as told:
        made = restoring.fork(place, to, same_targets=same_targets, sources=reached, told=told)
    return _made(made, as_json=as_json)


def _made(made: Made, *, as_json: bool) -> int:
    for sentence in made.told:
        shared.tell(sentence)
    if as_json:
        shared.show_json({
            "path": made.path, "query": made.query, "epoch": made.savepoint.epoch, "savepoint": made.savepoint.name,
            "of": made.savepoint.query, "told": made.told,
        })  # fmt: skip
    else:
        other = f", as query {made.query}" if made.anew else ""
        shared.show(f"{made.path} goes on after chk-{made.savepoint.epoch}{other}: start the job there")
    return 0


@contextlib.contextmanager
def progress(verb: str) -> Iterator[Callable[[int, int, int], None]]:
    """Show how far a copy has come: files of how many, and their bytes."""
    from rich.filesize import decimal

    with shared.progress(verb) as shown:
        yield lambda done, total, size: shown(done, total, decimal(size))
