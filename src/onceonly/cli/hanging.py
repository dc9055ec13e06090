"""``onceonly transactions hanging``: what targets have open and no log knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from onceonly.cli import shared, targets
from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.operations.search import Problem


@click.command()
@shared.path_argument
@targets.sink_options
@targets.described_option(
    "Ask the target of the job that this file describes, as for doctor: no checkpoint that names it is needed."
)
@shared.yes_option
@shared.json_option
def hanging(
    path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    described: Path | None, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Find what the targets have open and no log in PATH knows, also what nobody can end.

    Exit status 1: something; 2: where this user may not look, it is unknown. With --for, one target is asked, and PATH
    has the checkpoints that are known, none by default.
    The targets are asked; nothing is changed. What a running query has open is its own, and is left out.
    """
    from onceonly.operations import hanging as operation
    from onceonly.operations import planned_job, render, report
    from onceonly.operations.find import find

    given = targets.given(options, options_file, classes, yes=yes)
    problems: tuple[Problem, ...] = ()
    if described is None:
        here = find(path)
        asked, problems = shared.each(
            here, lambda each: operation.hanging(each, given, beside=here.checkpoints)
        )
        told = [some for _, some in asked]
    else:
        if classes or options or options_file is not None:
            raise ConfigurationError(
                "nothing was asked: with --for, the file describes the sink",
                next_step="leave --sink, --option and --options-file out",
            )
        is_given = click.get_current_context().get_parameter_source("path") is not ParameterSource.DEFAULT
        beside = find(path) if is_given else None
        told = [operation.in_target(planned_job.read(described), beside=beside.checkpoints if beside else ())]
        problems = beside.problems if beside else ()
    # Queries that share a target see the same.
    found = list(
        {
            (each.sink, each.transaction, each.blocks, each.query if each.is_open else each.told): each
            for some in told
            for each in some
        }.values()
    )
    if as_json:
        shared.show_json(
            {"transactions": list(map(report.hung, found)), "problems": report.problems(problems)}
        )
    elif told:
        shared.show(render.hung(found))
    return max(
        shared.report(problems, others=bool(told)),
        shared.EXIT_ANOMALY if any(each.is_open for each in found) else 0,
        shared.EXIT_CANNOT_TELL if any(each.is_open is None for each in found) else 0,
    )
