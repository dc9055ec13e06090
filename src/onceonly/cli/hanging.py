"""``onceonly transactions hanging``: what targets have open and no log knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceonly.cli import shared, targets

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@shared.path_argument
@targets.sink_options
@shared.yes_option
@shared.json_option
def hanging(
    path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None, yes: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Find what the targets have open and no log in PATH knows, also what nobody can end.

    Exit status 1: something; 2: where this user may not look, it is unknown.
    The targets are asked; nothing is changed. What a running query has open is its own, and is left out.
    """
    from onceonly.operations import hanging as operation
    from onceonly.operations import render, report
    from onceonly.operations.find import find

    given = targets.given(options, options_file, classes, yes=yes)
    here = find(path)
    asked, problems = shared.each(here, lambda each: operation.hanging(each, given, beside=here.checkpoints))
    # Queries that share a target see the same.
    found = list(
        {
            (each.sink, each.transaction, each.blocks, each.query if each.is_open else each.told): each
            for _, some in asked
            for each in some
        }.values()
    )
    if as_json:
        shared.show_json(
            {"transactions": list(map(report.hung, found)), "problems": report.problems(problems)}
        )
    elif asked:
        shared.show(render.hung(found))
    return max(
        shared.report(problems, others=bool(asked)),
        shared.EXIT_ANOMALY if any(each.is_open for each in found) else 0,
        shared.EXIT_CANNOT_TELL if any(each.is_open is None for each in found) else 0,
    )
