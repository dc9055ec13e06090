"""``onceonly journal``: receiving a feed beside a job, looking at journals, and giving one up."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from types import FrameType

_POLL_S = 0.2


@click.group()
def journal() -> None:
    """Receive feeds that cannot be replayed, beside a job."""


@journal.command()
@click.argument("feed")
@shared.hadoop_option
@click.option("-o", "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the feed.")
@click.option(
    "--options-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with such lines: what nobody should see in a list of processes.",
)
def run(feed: str, *, options: tuple[str, ...], options_file: Path | None) -> int:
    """Write a FEED (such as socket) into its journal, until it is stopped by a signal.

    A query reads the journal with the same options and receiver=outside. What is durable stays while it is down.
    """
    from onceonly.operations.given import lines
    from onceonly.sources.asked import ask
    from onceonly.sources.journal.receiver import Receiver

    pairs = _pairs([*lines(options_file), *options])
    try:
        asked = ask(feed, {"receiver": "outside", **pairs})
    except ConfigurationError as error:
        how = "options are given with -o NAME=VALUE, or as such lines in --options-file"
        raise ConfigurationError(error.what, next_step=f"{error.next_step.rstrip('.')}; {how}") from error
    if asked.inside:
        raise ConfigurationError(
            "receiver=inside is for a query, whose receiver is this command otherwise",
            next_step="leave the option receiver out here, and give the query receiver=outside",
        )
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)
    receiver = Receiver(asked.feed, asked.journal, asked.limits)
    receiver.start()
    receiver.opened()
    shared.tell(f"{asked.feed.name} {asked.feed.of} goes into the journal {asked.journal.where}")
    while receiver.is_alive() and not ended.wait(_POLL_S):
        pass
    receiver.stop()
    receiver.require_alive()
    return 0


@journal.command("list")
@click.argument("places", nargs=-1, required=True, metavar="JOURNAL...")
@shared.hadoop_option
@shared.json_option
def list_(places: tuple[str, ...], *, as_json: bool) -> int:
    """Show journals: what is unread in them, and who writes and reads them. Damaged ones are named."""
    from rich.table import Table

    from onceonly.errors import OnceonlyError, typed
    from onceonly.operations import journals

    seen: list[journals.Seen] = []
    status = 0
    for place in places:
        try:
            seen.append(journals.look(place))
        except OnceonlyError as error:
            shared.complain(error.what, typed(error))
            status = max(status, shared.status_of(error))
    if as_json:
        shared.show_json([journals.as_json(each) for each in seen])
        return status
    table = Table()
    for name in ("journal", "feed", "segments", "unread rows", "bytes", "written by", "read by"):
        table.add_column(name)
    for each in seen:
        table.add_row(
            each.where,
            f"{each.feed} {each.of}",
            str(each.segments),
            str(each.unread),
            str(each.bytes),
            each.writer or "nobody",
            each.reader or "nobody",
        )
    if seen:
        shared.show(table)
    return status


_record_option = click.option(
    "--checkpoint",
    metavar="CHECKPOINT",
    help="Whose log gets the record. Default: it is put beside the journal.",
)


@journal.command()
@click.argument("place", metavar="JOURNAL")
@shared.hadoop_option
@click.option("--reader", is_flag=True, help="Forget only who reads it, so that another query may.")
@_record_option
@shared.because_option
@shared.yes_option
def drop(place: str, *, reader: bool, checkpoint: str | None, because: str, yes: bool) -> int:
    """Give up a journal with all that is in it; with --reader, only the query that reads it."""
    from onceonly.operations import journals
    from onceonly.operations.find import the_one

    here = the_one(checkpoint) if checkpoint is not None else None
    what = (
        f"Another query will read {place} from the oldest segment that is kept."
        if reader
        else f"All that is in {place} and was not read is lost."
    )
    shared.tell(what)
    if not shared.agreed("Shall this be done?", yes=yes):
        return shared.EXIT_ANOMALY
    entry = (journals.drop_reader if reader else journals.drop)(place, checkpoint=here, because=because)
    for sentence in entry.told:
        shared.tell(sentence)
    return 0


@journal.command("accept-move")
@click.argument("place", metavar="JOURNAL")
@click.argument("address", metavar="ADDRESS")
@shared.hadoop_option
@_record_option
@shared.because_option
@shared.yes_option
def accept_move(place: str, address: str, *, checkpoint: str | None, because: str, yes: bool) -> int:
    """Accept that the feed of a journal is at another ADDRESS now, as its refusal of the journal shows it."""
    from onceonly.operations import journals
    from onceonly.operations.find import the_one

    here = the_one(checkpoint) if checkpoint is not None else None
    shared.tell(f"What comes from {address} goes on where {place} ends: it must be the same feed as before.")
    if not shared.agreed("Is it?", yes=yes):
        return shared.EXIT_ANOMALY
    entry = journals.accept_move(place, address, checkpoint=here, because=because)
    for sentence in entry.told:
        shared.tell(sentence)
    return 0


def _pairs(texts: list[str]) -> dict[str, Any]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(
                f"the option {name!r} has no value", next_step="write it as NAME=VALUE, such as port=9999"
            )
        pairs[name.strip()] = value.strip()
    return pairs
