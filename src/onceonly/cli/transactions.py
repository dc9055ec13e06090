"""``onceonly transactions``: what is decided and not known to be committed, and resolving it with the job down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.operations.given import OPTIONS_FILE, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.look import Transaction
    from onceonly.operations.resolve import Result
    from onceonly.operations.search import Problem

_SHOWN_MAX = 50


@click.group()
def transactions() -> None:
    """Look at the transactions of queries, and resolve them while the job is down.

    PATH is a checkpointLocation (a path, s3a://, gs://, abfss://, hdfs://), or a folder above several; the current
    folder if it is left out.
    """


def _sink_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that tell how a target is reached."""
    for option in (
        click.option(
            "--sink", "classes", multiple=True, metavar="SINK=CLASS",
            help="What a sink of yours is, package.module:Class: none is imported because a checkpoint names it.",
        ),
        click.option(
            "--options-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file of lines NAME=VALUE, as for --option, for what should not be on a command line. "
            f"Default: the file that {OPTIONS_FILE} names.",
        ),
        click.option(
            "--option", "options", multiple=True, metavar="[SINK:]NAME=VALUE",
            help="An option of a sink that the log does not hold: a secret one, or one that has changed.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


@transactions.command("list")
@shared.path_argument
@click.option("--all", "everything", is_flag=True, help="Committed ones too, as far as details are kept.")
@click.option("--ask", is_flag=True, help="Ask the targets what is open there and named by no link.")
@_sink_options
@shared.yes_option
@shared.json_option
def list_(  # noqa: PLR0913  one parameter for each option
    path: str, *, everything: bool, ask: bool, classes: tuple[str, ...], options: tuple[str, ...],
    options_file: Path | None, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """List what is decided and not known to be committed. Exit status 1 if that is so with the job down."""
    from onceonly.operations import look, render, report
    from onceonly.operations.find import find
    from onceonly.operations.search import Problem

    given = read(options, options_file, classes, agree=_agreeing(yes=yes))
    unanswered: list[Problem] = []

    def gather(checkpoint: Checkpoint) -> tuple[list[Transaction], list[tuple[str, str]] | None]:
        named = look.transactions(checkpoint, everything=everything)
        try:
            return named, _open_outside(checkpoint, given) if ask else None
        except OnceonlyError as error:
            # What the log says is shown in any case.
            unanswered.append(Problem(checkpoint.path, error))
            return named, None

    found, problems = shared.each(find(path), gather)
    problems = (*problems, *unanswered)
    if as_json:
        shared.show_json({
            "checkpoints": [
                {
                    **report.checkpoint(checkpoint),
                    "transactions": list(map(report.transaction, named)),
                    "open_outside": None
                    if outside is None
                    else [{"sink": sink, "transaction": transaction} for sink, transaction in outside],
                }
                for checkpoint, (named, outside) in found
            ],
            "problems": report.problems(problems),
        })  # fmt: skip
    elif found:
        parts: list[Any] = []
        for checkpoint, (named, outside) in found:
            parts += [render.header(checkpoint), render.transactions(named)]
            parts += [] if outside is None else [render.opened(outside)]
        shared.show(*shared.blocks(parts))
    stuck = any(
        checkpoint.run.alive is not True and (outside or look.transactions(checkpoint, everything=False))
        for checkpoint, (_, outside) in found
    )
    return max(shared.report(problems, others=bool(found)), shared.EXIT_ANOMALY if stuck else 0)


@transactions.command()
@shared.path_argument
@_sink_options
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds for the commits.")
@shared.yes_option
@shared.force_option
@shared.json_option
def resolve(  # noqa: PLR0913  one parameter for each option
    path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    timeout: float, yes: bool, force: bool, as_json: bool,
) -> int:  # fmt: skip
    """With the job down: commit what is decided, fence and abort what is not.

    The query goes on from there as from any failure. What cannot be told is left as it is (exit status 1).
    """
    from onceonly.operations import look, render, report
    from onceonly.operations.find import find
    from onceonly.operations.resolve import refuse_if_alive, refuse_if_unfit

    given = read(options, options_file, classes, agree=_agreeing(yes=yes))

    def prepare(checkpoint: Checkpoint) -> list[Transaction]:
        refuse_if_alive(checkpoint, force=force)
        refuse_if_unfit(checkpoint)
        return look.transactions(checkpoint, everything=False)

    ready, problems = shared.each(find(path), prepare)
    status = shared.report(problems, others=bool(ready))
    for checkpoint, named in ready:
        _announce(checkpoint, named)
    results: list[tuple[Checkpoint, Result]] = []
    failures: list[Problem] = []
    consent = _ask(yes=yes) if ready else Consent(refused="no checkpoint can be resolved: see problems")
    if consent.given:
        results, failures = _resolve(
            [checkpoint for checkpoint, _ in ready], given, timeout=timeout, force=force
        )
    if as_json:
        shared.show_json({
            "refused": consent.refused or None,
            "declined": consent.declined or None,
            "checkpoints": [
                {**report.checkpoint(checkpoint), **report.result(result)} for checkpoint, result in results
            ],
            "problems": report.problems((*problems, *failures)),
        })  # fmt: skip
    else:
        parts = ((render.header(checkpoint), render.done(result)) for checkpoint, result in results)
        shared.show(*shared.blocks([part for pair in parts for part in pair]))
    status = max(status, consent.status, shared.report(failures, others=False))
    for checkpoint, result in results:
        for message in result.told:
            shared.tell(f"query {checkpoint.query}: {message}")
    lost = sum(result.lost for _, result in results)
    if lost:
        shared.tell(
            f"{lost} transactions were lost, and are fenced: the query's next run writes their rows again"
        )
        status = max(status, shared.EXIT_ANOMALY)
    return status


@transactions.command()
@click.argument("transaction")
@shared.path_argument
@_sink_options
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds for the commits.")
@shared.yes_option
@shared.force_option
@shared.json_option
def divert(  # noqa: PLR0913  one parameter for each option
    transaction: str, path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    timeout: float, yes: bool, force: bool, as_json: bool,
) -> int:  # fmt: skip
    """With the job down: make dead letters of rows that a target refuses after their decision, and commit the rest.

    TRANSACTION is decided and pending; the beginning of its name is enough. Which of its rows are refused is tried.
    """
    from onceonly.operations import divert as operation
    from onceonly.operations import render, report
    from onceonly.operations.find import find

    given = read(options, options_file, classes, agree=_agreeing(yes=yes))
    found = find(path).checkpoints
    if len(found) != 1:
        raise ConfigurationError(f"{path} leads to {len(found)} checkpoints", next_step="name one of them")
    [checkpoint] = found
    shared.tell(
        f"query {checkpoint.query}: rows of {transaction} that its target refuses are to become dead letters"
    )
    consent = _ask(yes=yes)
    if not consent.given:
        return consent.status
    diverted = operation.divert(checkpoint, given, transaction, force=force)
    results, failures = _resolve([checkpoint], given, timeout=timeout, force=force)
    if as_json:
        shared.show_json({
            "link": diverted.link,
            "kept": diverted.kept,
            "refused": [{"row": each.row, "why": each.why} for each in diverted.refused],
            "checkpoints": [{**report.checkpoint(each), **report.result(result)} for each, result in results],
            "problems": report.problems(failures),
        })  # fmt: skip
    else:
        for each in diverted.refused[:_SHOWN_MAX]:
            shared.tell(f"row {each.row}: {each.why}")
        shared.tell(
            f"link {diverted.link}: {len(diverted.refused)} rows are dead letters, {diverted.kept} are left to the sink"
        )
        shared.show(
            *shared.blocks(
                [part for each, result in results for part in (render.header(each), render.done(result))]
            )
        )
    return shared.report(failures, others=False)


def _open_outside(checkpoint: Checkpoint, given: Given) -> list[tuple[str, str]]:
    from onceonly.operations.sinks import open_outside

    return open_outside(checkpoint, given)


def _agreeing(*, yes: bool) -> Callable[[str], None]:
    """Make what asks the operator before a secret is sent; each address once."""
    known: set[str] = set()

    def agree(what: str) -> None:
        if what in known:
            return
        shared.tell(what)
        if not shared.agreed("Shall it be sent there?", yes=yes):
            raise ConfigurationError(
                f"it was not agreed to: {what}",
                next_step="give the address yourself with --option, or agree",
            )
        known.add(what)

    return agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Whether anything may be done, and why not."""

    refused: str = ""
    declined: str = ""
    status: int = 0

    @property
    def given(self) -> bool:
        return not (self.refused or self.declined)


def _ask(*, yes: bool) -> Consent:
    try:
        agreed = shared.agreed("Shall this be done?", yes=yes)
    except ConfigurationError as error:
        shared.complain(error.what, error.next_step)
        return Consent(refused=error.what, status=shared.EXIT_USAGE)
    if agreed:
        return Consent()
    return Consent(declined="it was not agreed to, and nothing was done", status=shared.EXIT_ANOMALY)


def _announce(checkpoint: Checkpoint, named: list[Transaction]) -> None:
    """Say what is going to be done."""
    for item in named[:_SHOWN_MAX]:
        shared.tell(f"to commit: chk-{item.epoch} {item.handle.vote.sink} {item.handle.transaction}")
    shared.tell(
        f"query {checkpoint.query} at {checkpoint.address}: {len(named)} decided transactions are to be "
        "committed; whatever else it has open is to be aborted"
    )


def _resolve(
    checkpoints: list[Checkpoint], given: Given, *, timeout: float, force: bool
) -> tuple[list[tuple[Checkpoint, Result]], list[Problem]]:
    """Resolve one after the other; one that fails does not keep the others from it."""
    from onceonly.operations import resolve as operation
    from onceonly.operations.search import Problem

    results: list[tuple[Checkpoint, Result]] = []
    failures: list[Problem] = []
    for checkpoint in checkpoints:
        try:
            result = operation.resolve(checkpoint, given, timeout_s=timeout, force=force)
        except OnceonlyError as error:
            failures.append(Problem(checkpoint.path, error))
            continue
        results.append((checkpoint, result))
        if result.error is not None:
            failures.append(Problem(checkpoint.path, result.error))
    return results, failures
