"""``onceonly doctor``: what is wrong, in sentences, each with a next step. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceonly.cli import shared, targets

if TYPE_CHECKING:
    from pathlib import Path

CATEGORIES = ("checkpoint", "log", "spark", "disk", "clocks", "lag", "transactions", "targets")
"""Those of the probes, which this module does not import before it is asked for one."""


@click.command()
@shared.path_argument
@targets.sink_options
@click.option(
    "--only", multiple=True, type=click.Choice(CATEGORIES), help="Probe this category; several times."
)
@click.option("--timeout", type=float, default=10.0, show_default=True, help="Seconds for each probe.")
@shared.yes_option
@shared.json_option
def doctor(  # noqa: PLR0913  one parameter for each option
    path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    only: tuple[str, ...], timeout: float, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Probe a checkpoint, its targets and its disk; change nothing. Exit status 1: something is sick; 2: unknown."""
    from onceonly.operations import doctor as operation
    from onceonly.operations import render, report
    from onceonly.operations.doctor import Health

    given = targets.given(options, options_file, classes, yes=yes)
    found = operation.examine(path, given, only=only, within_s=timeout)
    if as_json:
        shared.show_json({"path": path, "findings": list(map(report.probe, found))})
    else:
        shared.show(render.probes(found))
    healths = {each.health for each in found}
    if Health.SICK in healths:
        return shared.EXIT_ANOMALY
    return shared.EXIT_CANNOT_TELL if Health.UNKNOWN in healths else 0
