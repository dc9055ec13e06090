"""``onceonly verify like-kafka`` and ``recovery``: two single runs, their tables and their exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table

from onceonly.cli import shared
from onceonly_proof.cli.missing import missing

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.campaign.recovery import Recovery
    from onceonly_proof.campaign.shape import Shape

_STATUS = {
    "clean": 0,
    "measured": 0,
    "anomalies": shared.EXIT_ANOMALY,
    "inconclusive": shared.EXIT_CANNOT_TELL,
}


@click.command("like-kafka")
@click.option(
    "--messages", type=click.IntRange(min=1), default=100_000, show_default=True, help="How many go in."
)
@click.option(
    "--transaction", type=click.IntRange(min=1), default=750, show_default=True,
    help="How many messages each transaction carries.",
)  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses when what is bounced.")
@click.option("--json", "json_file", type=shared.NEW_FILE, help="The result.")
def like_kafka(*, messages: int, transaction: int, seed: int, json_file: Path | None) -> int:
    """Run Kafka's own transactions_test: job and broker bounced hard and cleanly in turn."""
    try:
        from onceonly_proof.campaign.shape_run import ShapeOptions, run_shape
    except ModuleNotFoundError as error:
        raise missing(error) from None
    options = ShapeOptions(messages=messages, transaction=transaction, seed=seed, json=json_file)
    found = run_shape(options, shared.tell)
    shared.show(shape_table(found))
    return _end(found.verdict, found.why)


@click.command("recovery")
@click.option(
    "--kills", type=click.IntRange(min=1), default=10, show_default=True, help="How many for each sink."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses the moments of the kills.")
@click.option("--json", "json_file", type=shared.NEW_FILE, help="The result.")
def recovery(*, kills: int, seed: int, json_file: Path | None) -> int:
    """Measure the time from SIGKILL to the first new row, beside Spark's own Kafka sink."""
    try:
        from onceonly_proof.campaign.recovery_run import RecoveryOptions, run_recovery
    except ModuleNotFoundError as error:
        raise missing(error) from None
    found = run_recovery(RecoveryOptions(kills=kills, seed=seed, json=json_file), shared.tell)
    shared.show(recovery_table(found))
    return _end(found.verdict, found.why)


def shape_table(found: Shape) -> Table:
    """Draw what was done and what was found."""
    table = Table(
        title="as Kafka's transactions_test", title_justify="left", box=box.SIMPLE, show_header=False
    )
    table.add_column("what")
    table.add_column("count", justify="right")
    full = found.transactions.get(found.transaction, 0)
    rows = {
        "messages in the input": found.messages,
        "visible in the end": found.rows,
        "seen by the reader meanwhile": found.seen_meanwhile,
        "transactions": sum(found.transactions.values()),
        f"of {found.transaction:,} messages": full,
        **{f"bounces, {kind}": count for kind, count in found.bounces.items()},
        "anomalies": sum(found.anomalies.values()),
    }
    for name, count in rows.items():
        table.add_row(name, f"{count:,}")
    table.add_row("seconds", f"{found.seconds:,.0f}")
    table.add_row("verdict", found.verdict)
    return table


def recovery_table(found: Recovery) -> Table:
    """Draw both sinks' figures, and how they compare."""
    table = Table(title="from SIGKILL to the first new row", title_justify="left", box=box.SIMPLE)
    table.add_column("sink")
    for name in ("kills", "median s", "worst s", "query alone: median s", "worst s", "rows again"):
        table.add_column(name, justify="right")
    for line in found.table:
        figures = (line.median_s, line.worst_s, line.query_median_s, line.query_worst_s)
        table.add_row(line.sink, f"{line.kills}", *(f"{each:.1f}" for each in figures), f"{line.again:,}")
    table.add_row("ratio", "", *(f"{each:.2f}" for each in found.ratio.values()), "")
    return table


def _end(verdict: str, why: tuple[str, ...]) -> int:
    for text in why:
        shared.tell(f"{verdict}: {text}")
    return _STATUS[verdict]
