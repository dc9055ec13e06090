"""``onceonly doctor``: what is wrong, in sentences, each with a next step. Reads only."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from onceonly.cli import shared, targets
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

CATEGORIES = (
    "checkpoint", "log", "spark", "disk", "clocks", "lag", "versions", "jars", "ids", "source", "transactions",
    "targets", "timeouts",
)  # fmt: skip
"""Those of the probes, which this module does not import before it is asked for one."""
BEFORE = ("options", "versions", "jars", "store", "disk", "source", "targets", "timeouts", "lag")
"""Those of the probes of a job that has not been started."""

_TRIES = (
    "The checkpoint's store is tried by a file that is removed, and the targets' checks make what a first start makes "
    "(a topic of markers, books, a folder)."
)


@click.command()
@shared.path_argument
@targets.sink_options
@targets.source_options
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(tuple(dict.fromkeys((*CATEGORIES, *BEFORE)))),
    help="Probe this category; several times.",
)
@targets.described_option("Probe a job before its first start, as this file describes it, and no checkpoint.")
@click.option(
    "--timeout", type=shared.SECONDS, default=10.0, show_default=True, help="Seconds for each probe."
)
@shared.yes_option
@shared.json_option
def doctor(  # noqa: PLR0913  one parameter for each option
    path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    sources: tuple[str, ...], source_file: Path | None,
    only: tuple[str, ...], described: Path | None, timeout: float, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Probe a checkpoint, its targets and its disk; change nothing. Exit status 1: something is sick; 2: unknown.

    With --for, a job before its first start: options, versions, jars, store, source, rights, time-outs.
    """
    from onceonly.operations import doctor as operation
    from onceonly.operations import render, report, sources_left
    from onceonly.operations.probes import Health

    strange = set(only) - set(CATEGORIES if described is None else BEFORE)
    if strange:
        raise ConfigurationError(
            f"nothing was probed: {', '.join(sorted(strange))} is probed of a "
            + ("job before its first start alone" if described is None else "checkpoint alone"),
            next_step="describe the job with --for" if described is None else "leave --for out",
        )
    if described is not None:
        if sources or source_file is not None:
            raise ConfigurationError(
                "nothing was probed: with --for, the file describes the source",
                next_step="leave --source and --source-file out",
            )
        from onceonly.operations import before_start, planned_job

        job = planned_job.read(described)
        if not yes:
            shared.tell(_TRIES)
        agreed = yes or (sys.stdin.isatty() and shared.agreed("Shall they?", yes=yes))
        found = before_start.examine(job, agreed=agreed, only=only, within_s=timeout)
    else:
        given = targets.given(options, options_file, classes, yes=yes)
        reached = sources_left.given(sources, source_file)
        found = operation.examine(path, given, sources=reached, only=only, within_s=timeout)
    if as_json:
        shared.show_json({"path": str(described or path), "findings": list(map(report.probe, found))})
    else:
        shared.show(render.probes(found))
    healths = {each.health for each in found}
    if Health.SICK in healths:
        return shared.EXIT_ANOMALY
    return shared.EXIT_CANNOT_TELL if Health.UNKNOWN in healths else 0
