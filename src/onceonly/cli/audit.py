"""``onceonly audit``: what was decided, beside what stands in the targets; and the history, for auditors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onceonly.cli import shared, targets

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@shared.path_argument
@targets.sink_options
@click.option(
    "--timeout",
    type=shared.SECONDS,
    default=300.0,
    show_default=True,
    help="Seconds for each answer of a target, which may have to count all of its rows.",
)
@click.option("--counts", is_flag=True, help="Count rows alone: their values are not read.")
@click.option(
    "--export",
    type=shared.NEW_FILE,
    metavar="FILE",
    help="Write the history of the epochs as JSON lines, too: of one query.",
)
@shared.yes_option
@shared.json_option
def audit(  # noqa: PLR0913  one parameter for each option
    path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None, timeout: float,
    counts: bool, export: Path | None, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Compare what was decided with what stands in each target, with the job up or down. Exit status 1: it differs.

    1, too: the checkpoint has moved. 2: a target gave no answer. By epoch where the target tells its epochs apart, in
    total where it counts rows; by their values, too, where rows can be read back as they were written.
    """
    from onceonly.looking import write
    from onceonly.operations import audit as operation
    from onceonly.operations import history, render, report
    from onceonly.operations.find import find, single

    given = targets.given(options, options_file, classes, yes=yes)
    here = find(path)
    if export is not None:
        single(here, path)  # refuses several, and says what is wrong with one
    with shared.progress("asked") as told:
        found, problems = shared.each(
            here, lambda each: operation.audit(each, given, within_s=timeout, counts=counts, told=told)
        )
    for _, audited in found:
        if export is not None:
            write(export, "".join(f"{line}\n" for line in history.lines(audited.model)))
    if as_json:
        shared.show_json({
            "checkpoints": [
                {**report.checkpoint(audited.model), "findings": list(map(report.finding, audited.findings))}
                for _, audited in found
            ],
            "problems": report.problems(problems),
        })  # fmt: skip
    else:
        shared.show_each(
            [render.header(audited.model), render.findings(audited.findings)] for _, audited in found
        )
    differs = any(audited.differs for _, audited in found)
    is_silent = not all(audited.answered for _, audited in found)
    is_moved = any(audited.model.is_moved for _, audited in found)
    return max(
        shared.report(problems, others=bool(found)),
        shared.EXIT_ANOMALY if differs or is_moved else 0,
        shared.EXIT_CANNOT_TELL if is_silent else 0,
    )
