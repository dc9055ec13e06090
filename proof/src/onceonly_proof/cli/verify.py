"""``onceonly verify``: a campaign of faults against the sinks, and its report."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click
from rich.console import Console

from onceonly.cli import shared
from onceonly.model import Guarantee
from onceonly_proof.cli import power, shapes, unaligned
from onceonly_proof.cli.missing import missing

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

_CONNECTORS = ("kafka", "files", "kafka+files")
_DATABASES = ("sqlite", "duckdb", "mysql", "postgres")
_TABLES = ("delta", "iceberg")
_BY_KEY = ("redis", "redis-cluster", "cassandra", "opensearch", "elasticsearch")
_AT_LEAST_ONCE = ("kinesis", "socket", "console")
_SINKS = ("kafka", "files", *_DATABASES, *_TABLES, *_BY_KEY, *_AT_LEAST_ONCE)
_OF_RABBITMQ = ("rabbitmq", "rabbitmq-no-ids", "rabbitmq-stream")
_SOURCES = ("kafka", "kinesis", *_OF_RABBITMQ, "http", "http-no-resume", "socket", "collection", "files")
_VISIBLE = ("decided", "early")
_STORES = ("folder", "s3", "moto", "hdfs", "s3+journals", "moto+journals", "hdfs+journals")
_QUERIES = ("unchanged", "letters", "hdfs", "rocksdb", "window")
_STATUS = {"clean": 0, "anomalies": shared.EXIT_ANOMALY, "inconclusive": shared.EXIT_CANNOT_TELL}


def _known(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is attacked, or name what of it there is not, with all that there is."""
    from onceonly_proof.campaign.way import sink_of

    for connector in given:
        sinks = connector.split("+")
        for sink in sinks:
            if sink not in _SINKS:
                raise click.BadParameter(f"{sink!r} is not one of {', '.join(_SINKS)}.", param=parameter)
        if len(set(map(sink_of, sinks))) < len(sinks):
            raise click.BadParameter(f"{connector!r} names a sink twice.", param=parameter)
    return given


@click.group(invoke_without_command=True, subcommand_metavar="[KIND [OPTIONS]]")
@click.option(
    "--sink", "sinks", callback=_known, metavar="SINK[+SINK…]", multiple=True, default=_CONNECTORS,
    show_default=True,
    help="What is attacked; + puts several under one decision, and what is given several times is attacked in turn: "
    f"{', '.join(_SINKS)}.",
)  # fmt: skip
@click.option(
    "--source", type=click.Choice(_SOURCES), default=_SOURCES[0], show_default=True,
    help="What queries read. Servers beside Kafka are started for it, and die, too; a collection and files have none.",
)  # fmt: skip
@click.option(
    "--guarantee",
    type=click.Choice([each.value for each in Guarantee]),
    default=Guarantee.EXACTLY_ONCE.value,
    show_default=True,
    help="What the sinks promise, and what the audit holds them to.",
)
@click.option("--crashes", type=click.IntRange(min=1), help="Go on until the report holds so many crashes.")
@click.option(
    "--replays", type=click.IntRange(min=1),
    help="Go on, also, until it holds so many epochs whose input was read again.",
)  # fmt: skip
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Begin no round after so many minutes."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses workloads and faults.")
@click.option(
    "--json", "json_file", type=shared.NEW_FILE,
    help="The report, written after each round; one that is there is gone on with.",
)  # fmt: skip
@click.option("--html", type=shared.NEW_FILE, help="The report as a page.")
@click.option(
    "--round", "number", type=click.IntRange(min=1), help="Run this round of the seed again, and no other."
)
@click.option(
    "--dear/--no-dear", default=True, show_default=True,
    help="Whether to kill drivers and brokers too, which takes seconds each.",
)  # fmt: skip
@click.option(
    "--broker", default="4.2", show_default=True, metavar="RELEASE[+tls][+quotas]",
    help="Kafka 4.2, 3.9 or 3.3; sinks come over TLS; clients are throttled.",
)  # fmt: skip
@click.option(
    "--checkpoint", type=click.Choice(_STORES), default=_STORES[0], show_default=True,
    help="Where checkpoints and files are: on an S3 server or an HDFS started for it, whose servers die, too; moto's "
    "S3 does not. With +journals, the journals and ranges of sources are there, too.",
)  # fmt: skip
@click.option(
    "--visible", type=click.Choice(_VISIBLE), default=_VISIBLE[0], show_default=True,
    help="When rows by key are seen: when they are decided, or at once, so that the next try takes their place.",
)  # fmt: skip
@click.option(
    "--query", type=click.Choice(_QUERIES),
    help="What every query does: rows unchanged, dead letters, a state in one of Spark's stores, or windows of rows. "
    "Otherwise drawn, but for windows.",
)  # fmt: skip
@click.option(
    "--executors", type=click.IntRange(min=0), default=0, show_default=True,
    help="So many executors in processes of their own, which die, too, in place of threads of the driver.",
)  # fmt: skip
@click.option(
    "--speculation", is_flag=True,
    help="Each executor has a host of its own, where Spark starts second attempts of slow tasks; some tasks are held "
    "until it does. A round without any proves nothing. With --executors 2 or more.",
)  # fmt: skip
@click.option("--each", is_flag=True, help="In every round one fault of each kind, instead of a draw.")
@click.option(
    "--trace", is_flag=True,
    help="Hold each round's event log against the model, too. In the source tree, and exactly-once, only.",
)  # fmt: skip
@click.pass_context
def verify(  # noqa: PLR0913  one parameter for each option
    context: click.Context,
    *,
    sinks: tuple[str, ...],
    source: str,
    guarantee: str,
    crashes: int | None,
    replays: int | None,
    minutes: float | None,
    seed: int,
    json_file: Path | None,
    html: Path | None,
    number: int | None,
    dear: bool,
    broker: str,
    checkpoint: str,
    visible: str,
    executors: int,
    speculation: bool,
    each: bool,
    query: str | None,
    trace: bool,
) -> int:
    """Kill jobs and brokers at every step of the protocol, and audit what readers see.

    Runs seeded workloads on real Spark and Kafka until --crashes, --replays or --minutes are reached; the commands
    below are runs of other kinds, with options of their own. Needs Java 17+. Exit status: 0 clean, 1 an anomaly, 2 a
    fault that was armed did not fire, or nothing could be told.
    """
    # A polite kill cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    if context.invoked_subcommand is not None:
        _refuse_mixed(context)
        return 0
    try:
        from onceonly_proof.campaign import tables
        from onceonly_proof.campaign.broker import BrokerKind
        from onceonly_proof.campaign.run import CampaignOptions, run_campaign
    except ModuleNotFoundError as error:
        raise missing(error) from None
    if crashes is replays is minutes is number is None:
        raise click.UsageError("say how long: --crashes N, --replays N, --minutes M or --round R")
    options = CampaignOptions(
        connectors=sinks,
        source=source,
        guarantee=Guarantee(guarantee),
        crashes=crashes,
        replays=replays,
        minutes=minutes,
        seed=seed,
        json=json_file,
        html=html,
        dear=dear,
        each=each,
        executors=executors,
        speculation=speculation,
        broker=BrokerKind.parse(broker),
        store=checkpoint,
        early=visible == _VISIBLE[1],
        trace=trace,
        number=number,
        query=query or "",
    )
    found = run_campaign(options, Console(stderr=True))
    shared.show(tables.table(found), tables.faults_table(found))
    return _STATUS[found.verdict]


def _refuse_mixed(context: click.Context) -> None:
    """Refuse options of a campaign before a run of another kind, which would not use them."""
    given = click.core.ParameterSource.COMMANDLINE
    for parameter in context.command.params:
        if parameter.name and context.get_parameter_source(parameter.name) is given:
            raise click.UsageError(
                f"{parameter.opts[0]} belongs to a campaign; {context.invoked_subcommand} takes those after its name"
            )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


verify.add_command(power.power_cuts)
verify.add_command(shapes.like_kafka)
verify.add_command(shapes.recovery)
verify.add_command(unaligned.unaligned)
