"""``onceonly metrics``: the metrics of a query from its log; the alert rules and the dashboard that read them."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from onceonly.operations.find import Checkpoint
    from onceonly.telemetry.figures import Observed


@click.group()
def metrics() -> None:
    """Tell the metrics of checkpoints, and print what reads them: alert rules, a dashboard."""


@metrics.command()
@shared.path_argument
@click.option("--name", help="What the job calls the query: the label of its series. Default: its id.")
@shared.json_option
def show(path: str, *, name: str | None, as_json: bool) -> int:
    """Print the metrics of each query once, in Prometheus' text format, with the job up or down."""
    from onceonly.operations.find import find
    from onceonly.telemetry.figures import families
    from onceonly.telemetry.from_log import observe

    here = find(path)
    if name is not None and len(here.checkpoints) > 1:
        raise ConfigurationError(
            f"{path} leads to {len(here.checkpoints)} checkpoints, and a name is of one",
            next_step="leave --name out, or name the checkpointLocation of one query",
        )

    def look(checkpoint: Checkpoint) -> Observed:
        return observe(checkpoint.location, name=name or checkpoint.query, is_running=checkpoint.run.alive)

    found, problems = shared.each(here, look, at_once=here.at_once)
    known = [observed for _, observed in found]
    if as_json:
        shared.show_json({
            family.name: [{"labels": dict(labels), "value": value} for labels, value in family.samples]
            for family in families(known)
            if family.samples
        })  # fmt: skip
    elif known:
        from onceonly.telemetry.exposition import Registry

        shared.show(Registry(lambda: known).text().rstrip("\n"))
    return shared.report(problems, others=bool(found))


@metrics.command()
@click.option(
    "--docs",
    default="docs",
    show_default=True,
    metavar="URL",
    help="Where these pages are, for the links to runbooks.",
)
def alerts(docs: str) -> None:
    """Print alert rules for Prometheus: for a file that its rule_files name."""
    shared.show(_shipped("alerts.yml").replace("runbook_url: docs/", f"runbook_url: {docs.rstrip('/')}/"))


@metrics.command()
def dashboard() -> None:
    """Print a dashboard for Grafana: import it there."""
    shared.show(_shipped("dashboard.json"))


def _shipped(name: str) -> str:
    return (resources.files("onceonly.telemetry") / name).read_text(encoding="utf-8").rstrip("\n")
