"""``onceonly verify``: a campaign of faults against the sinks, and its report."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from onceonly.cli import power, shapes, shared, unaligned
from onceonly.model import Guarantee

if TYPE_CHECKING:
    from types import FrameType

_COMMANDLINE = click.core.ParameterSource.COMMANDLINE
_CONNECTORS = ("kafka", "files", "kafka+files")
_QUERIES = ("unchanged", "letters", "hdfs", "rocksdb")
# A mode is one run of its own kind, and takes these options alone.
_MODES = {
    "is_unaligned": ("--unaligned", "--seed, --json and --picture", {"seed", "json_file", "picture"}),
    "like_kafka": (
        "--like-kafka",
        "--messages, --transaction, --seed and --json",
        {"messages", "transaction", "seed", "json_file"},
    ),
    "recovery": ("--recovery", "--kills, --seed and --json", {"kills", "seed", "json_file"}),
    "power_cuts": (
        "--power-cuts",
        "--road, --minutes, --seed and --json",
        {"roads", "minutes", "seed", "json_file"},
    ),
}
_OWNED = {
    "messages": "--like-kafka",
    "transaction": "--like-kafka",
    "kills": "--recovery",
    "roads": "--power-cuts",
}
_STATUS = {"clean": 0, "anomalies": shared.EXIT_ANOMALY, "inconclusive": shared.EXIT_CANNOT_TELL}


@click.command()
@click.option(
    "--sink", "sinks", type=click.Choice(_CONNECTORS), multiple=True, default=_CONNECTORS, show_default=True,
    help="What is attacked, in turn; + puts both under one decision. Can be given several times.",
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
    "--minutes", type=click.FloatRange(min=0, min_open=True), help="Begin no round after so many minutes."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses workloads and faults.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False),
    help="The report, written after each round; one that is there is gone on with.",
)  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="The report as a page.")
@click.option(
    "--round", "number", type=click.IntRange(min=1), help="Run this round of the seed again, and no other."
)
@click.option(
    "--dear/--no-dear", default=True, show_default=True,
    help="Whether to kill drivers and brokers too, which takes seconds each.",
)  # fmt: skip
@click.option(
    "--unaligned", "is_unaligned", is_flag=True,
    help="Instead, show what barrier alignment is for: counts with and without it, under the same kills.",
)  # fmt: skip
@click.option(
    "--picture", type=click.Path(path_type=Path, dir_okay=False), help="With --unaligned: both counts as SVG."
)
@click.option(
    "--like-kafka", is_flag=True,
    help="Instead, one run as Kafka's own transactions_test: job and broker bounced hard and cleanly in turn.",
)  # fmt: skip
@click.option(
    "--messages", type=click.IntRange(min=1), default=100_000, show_default=True,
    help="With --like-kafka: how many go in.",
)  # fmt: skip
@click.option(
    "--transaction", type=click.IntRange(min=1), default=750, show_default=True,
    help="With --like-kafka: how many messages each transaction carries.",
)  # fmt: skip
@click.option(
    "--recovery", is_flag=True,
    help="Instead, measure the time from SIGKILL to the first new row, beside Spark's own Kafka sink.",
)  # fmt: skip
@click.option(
    "--kills", type=click.IntRange(min=1), default=10, show_default=True,
    help="With --recovery: how many for each sink.",
)  # fmt: skip
@click.option(
    "--broker", default="4.2", show_default=True, metavar="RELEASE[+tls][+quotas]",
    help="Kafka 4.2, 3.9 or 3.3; sinks come over TLS; clients are throttled.",
)  # fmt: skip
@click.option(
    "--power-cuts", type=click.IntRange(min=1),
    help="Instead, run queries on a disk that forgets what was not synced, until so many different cuts were tried.",
)  # fmt: skip
@click.option(
    "--road", "roads", multiple=True,
    help="With --power-cuts: SOURCE-STATE-SINK, for example files-rocksdb-kafka. Can be given several times.",
)  # fmt: skip
@click.option(
    "--query", type=click.Choice(_QUERIES),
    help="What every query does: rows unchanged, dead letters, or a state in one of Spark's stores. Otherwise drawn.",
)  # fmt: skip
@click.option("--each", is_flag=True, help="In every round one fault of each kind, instead of a draw.")
@click.option(
    "--trace", is_flag=True,
    help="Hold each round's event log against the model, too. In the source tree, and exactly-once, only.",
)  # fmt: skip
def verify(  # noqa: PLR0913  one parameter for each option
    *,
    sinks: tuple[str, ...],
    guarantee: str,
    crashes: int | None,
    minutes: float | None,
    seed: int,
    json_file: Path | None,
    html: Path | None,
    number: int | None,
    dear: bool,
    broker: str,
    each: bool,
    is_unaligned: bool,
    picture: Path | None,
    like_kafka: bool,
    messages: int,
    transaction: int,
    recovery: bool,
    kills: int,
    power_cuts: int | None,
    roads: tuple[str, ...],
    query: str | None,
    trace: bool,
) -> int:
    """Kill jobs and brokers at every step of the protocol, and audit what readers see.

    Runs seeded workloads on real Spark and Kafka until --crashes or --minutes are reached. Needs Java 17+ and the
    extra onceonly[demo]. Exit status: 0 clean, 1 an anomaly, 2 a fault that was armed did not fire, or nothing
    could be told.
    """
    _refuse_mixed()
    # A polite kill cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    if is_unaligned:
        return unaligned.show(seed=seed, json=json_file, picture=picture)
    if like_kafka:
        return shapes.like_kafka(messages=messages, transaction=transaction, seed=seed, json=json_file)
    if recovery:
        return shapes.recovery(kills=kills, seed=seed, json=json_file)
    if power_cuts is not None:
        return power.cut(cuts=power_cuts, minutes=minutes, roads=roads, seed=seed, json=json_file)
    try:
        from onceonly.testing.campaign import tables
        from onceonly.testing.campaign.broker import BrokerKind
        from onceonly.testing.campaign.run import CampaignOptions, run_campaign
    except ModuleNotFoundError as error:
        raise shared.missing(error) from None
    if crashes is None and minutes is None and number is None:
        raise click.UsageError("say how long: --crashes N, --minutes M or --round R")
    options = CampaignOptions(
        connectors=sinks,
        guarantee=Guarantee(guarantee),
        crashes=crashes,
        minutes=minutes,
        seed=seed,
        json=json_file,
        html=html,
        dear=dear,
        each=each,
        broker=BrokerKind.parse(broker),
        trace=trace,
        number=number,
        query=query or "",
    )
    found = run_campaign(options, Console(stderr=True))
    shared.show(tables.table(found), tables.faults_table(found))
    return _STATUS[found.verdict]


def _refuse_mixed() -> None:
    """Refuse a mode with options that it does not use, and a mode's options without it."""
    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is _COMMANDLINE}
    for mode, (flag, words, takes) in _MODES.items():
        if context.params[mode] and not given <= {mode, *takes}:
            raise click.UsageError(f"{flag} is one run: it takes {words} alone")
    if any(context.params[mode] for mode in _MODES):
        return
    if "picture" in given:
        raise click.UsageError("--picture belongs to --unaligned; a campaign's report is drawn by --html")
    for name in sorted(given & _OWNED.keys()):
        raise click.UsageError(f"--{name} belongs to {_OWNED[name]}")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
