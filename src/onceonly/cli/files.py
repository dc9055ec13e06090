"""``onceonly files``: what file sinks keep, and taking away what is old. Beside a running query or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onceonly.cli import shared
from onceonly.errors import OnceonlyError, typed
from onceonly.words import n

if TYPE_CHECKING:
    from onceonly.operations.expire import Place
    from onceonly.sinks.files.manifests.expiry import Due

_WORDS = {
    "expired": "leaves the manifests; its files stay for the grace time",
    "waiting": "has left the manifests; its files stay for the grace time",
    "removed": "its files are deleted",
}


@click.group()
def files() -> None:
    """Look after the files of file sinks."""


@files.command()
@click.argument("place", metavar="CHECKPOINT-or-TARGET")
@shared.hadoop_option
@click.option(
    "--older-than",
    "older_s",
    metavar="TIME",
    callback=shared.span_option,
    required=True,
    help="How old an epoch has to be: '7 days', 90m.",
)
@click.option(
    "--grace",
    "grace_s",
    metavar="TIME",
    callback=shared.span_option,
    default="1 hour",
    show_default=True,
    help="How long files stay once their epochs have left the manifests, for those who read them.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@shared.because_option
@shared.yes_option
@shared.json_option
def expire(
    place: str, *, older_s: float, grace_s: float, dry_run: bool, because: str, yes: bool, as_json: bool
) -> int:  # fmt: skip
    """Take old epochs out of the manifests, and delete the files of those that left them a grace time ago.

    Only whole epochs, from the oldest on, and only files that the manifests name. Run it again and again
    (cron): each call deletes what an earlier one took out. Killed anywhere, it is simply run again.
    """
    from onceonly.operations import expire as operation

    looked = [
        (each, operation.look(each, older_s=older_s, grace_s=grace_s)) for each in operation.places(place)
    ]
    due = [(each, found) for each, found in looked if found.expiring or found.removing]
    if dry_run or not due:
        _show(looked, dry_run=dry_run, as_json=as_json)
        return 0
    count = sum(len(old.files) for _, found in due for old in found.removing)
    epochs = sum(len(found.expiring) for _, found in due)
    shared.tell(f"{n(epochs, 'epoch is')} to leave the manifests, and {n(count, 'file is')} to be deleted")
    if not shared.agreed("Shall this be done?", yes=yes):
        return shared.EXIT_ANOMALY
    done: list[tuple[Place, Due]] = []
    status = 0
    for each, found in looked:
        try:
            expired, entry = operation.carry_out(each, found, because=because)
        except OnceonlyError as error:
            shared.complain(error.what, typed(error))
            status = max(status, shared.status_of(error))
        else:
            done.append((each, expired))
            for sentence in entry.told if entry is not None else ():
                shared.tell(sentence)
    _show(done, dry_run=False, as_json=as_json)
    return status


def _show(several: list[tuple[Place, Due]], *, dry_run: bool, as_json: bool) -> None:
    from rich.table import Table

    from onceonly.operations import expire as operation

    if as_json:
        shared.show_json(
            {"dry_run": dry_run, "sinks": [operation.as_json(place, due) for place, due in several]}
        )
        return
    parts: list[Any] = []
    for place, due in several:
        table = Table(
            title=f"sink {place.sink} of query {place.query} in {place.target}", title_justify="left"
        )
        for name in ("epoch", "files", "rows", "bytes"):
            table.add_column(name, justify="right")
        table.add_column("would be" if dry_run else "is")
        steps = operation.steps(due)
        for step, old in steps:
            table.add_row(
                f"chk-{old.epoch}",
                str(len(old.files)),
                str(old.rows),
                str(old.bytes),
                f"{step}: {_WORDS[step]}",
            )
        parts.append(
            table
            if steps
            else f"sink {place.sink} of query {place.query} in {place.target}: nothing is so old"
        )
    shared.show(*shared.blocks(parts))
