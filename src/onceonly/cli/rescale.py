"""``onceonly rescale``: the state of a query that is down is dealt to another number of partitions."""

from __future__ import annotations

import contextlib

import click

from onceonly.cli import shared
from onceonly.cli.savepoint import progress
from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.words import n


@click.command()
@click.argument("checkpoint")
@shared.hadoop_option
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="How many there shall be.")
@click.option(
    "--savepoint", "place", metavar="PLACE", required=True, help="Where a savepoint is made before."
)
@click.option(
    "--conf", "settings", multiple=True, metavar="NAME=VALUE",
    help="A setting of Spark's, as the job has it; what it noted in the checkpoint is taken from there.",
)  # fmt: skip
@shared.because_option
@shared.yes_option
@click.option("--force", is_flag=True, help="Go on where it cannot be told whether a run is alive.")
@shared.json_option
def rescale(  # noqa: PLR0913  one parameter for each option
    checkpoint: str, *, partitions: int, place: str, settings: tuple[str, ...], because: str, yes: bool, force: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """With the job down: deal the state of CHECKPOINT to other partitions, by Spark itself, after a savepoint.

    For PySpark 4.2 or newer, and state in RocksDB. The next start goes on with the new number.
    """
    from onceonly import savepoints
    from onceonly.log.presence import Presence
    from onceonly.operations import rescale as operation
    from onceonly.operations.find import the_one
    from onceonly.savepoints import place as places
    from onceonly.savepoints import report
    from onceonly.spark import offline
    from onceonly.stores import opened

    given = dict(map(_setting, settings))
    offline.require()
    here = the_one(checkpoint)
    places.refuse_unfit(place, here.location)
    found = operation.prepare(here, partitions, force=force)
    shared.tell(
        f"query {here.query}: the state after chk-{found.epoch} is to be dealt to {n(partitions, 'partition')}"
        + (f" (of {found.partitions})" if found.partitions else "")
        + f", after a savepoint in {place}"
    )
    if not shared.agreed("Shall this be done?", yes=yes):
        return shared.EXIT_ANOMALY
    with progress("copied") as told:
        made = savepoints.create(here.location, place, told=told)
    where = savepoints.address_in(place, made.name)
    shared.tell(report.sentence(where, made))
    operation.prepare(here, partitions, force=force)  # a run may have begun meanwhile
    with contextlib.closing(Presence.hold(here.location, actor="onceonly rescale")):
        action = operation.begin(here, found, because=because)
        try:
            offline.repartition(
                here.location,
                partitions,
                settings={**opened.told().for_spark(), **found.settings, **given},
                local=here.folder is not None,
            )
        except OnceonlyError as error:
            operation.end(here, action, f"not done: {error.what}")
            raise
    after = f"{n(partitions, 'partition')} of state, from chk-{found.epoch + 1} on, which has no rows"
    operation.end(here, action, after)
    if as_json:
        shared.show_json({
            "path": here.path, "query": here.query, "epoch": found.epoch, "before": found.partitions,
            "partitions": partitions, "savepoint": report.savepoint(where, made),
        })  # fmt: skip
    else:
        shared.show(f"query {here.query}: {after}; start it again")
    return 0


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"{text!r} is no setting", next_step="write --conf NAME=VALUE")
    return name, value
