"""``onceonly transactions``: what is decided and not known to be committed, and ending it with the job down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from onceonly.cli import shared, targets
from onceonly.cli.hanging import hanging
from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.words import n

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.search import Problem
    from onceonly.operations.settle import Errand, Result
    from onceonly.operations.states import HandleView

_SHOWN_MAX = 50
_timeout = click.option(
    "--timeout", type=shared.SECONDS, default=60.0, show_default=True, help="Seconds for the commits."
)
_force = click.option(
    "--force",
    is_flag=True,
    help="Go on where it cannot be told whether a run is alive, or a run on a store was heard of a moment ago.",
)


@click.group()
def transactions() -> None:
    """Look at the transactions of queries, and end them while the job is down.

    PATH is a checkpointLocation (a path, s3a://, gs://, abfss://, hdfs://), or a folder above several; the current
    folder if it is left out.
    """


transactions.add_command(hanging)


@transactions.command("list")
@shared.path_argument
@click.option("--all", "everything", is_flag=True, help="Committed ones too, as far as details are kept.")
@click.option("--ask", is_flag=True, help="Ask the targets what is open there and named by no link.")
@targets.sink_options
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

    given = targets.given(options, options_file, classes, yes=yes)
    unanswered: list[Problem] = []

    def gather(checkpoint: Checkpoint) -> CheckpointModel:
        model = look.unsettled(checkpoint, everything=everything)
        try:
            return replace(model, open_outside=_open_outside(checkpoint, given)) if ask else model
        except OnceonlyError as error:
            # What the log says is shown in any case.
            unanswered.append(Problem(checkpoint.path, error))
            return model

    def shown(model: CheckpointModel) -> list[tuple[EpochModel, HandleView]]:
        return model.transactions if everything else model.in_doubt

    found, problems = shared.each(find(path), gather)
    problems = (*problems, *unanswered)
    if as_json:
        shared.show_json({
            "checkpoints": [
                {
                    **report.checkpoint(model),
                    "transactions": [report.transaction(epoch, handle) for epoch, handle in shown(model)],
                    "open_outside": None
                    if model.open_outside is None
                    else [{"sink": sink, "transaction": name} for sink, name in model.open_outside],
                }
                for _, model in found
            ],
            "problems": report.problems(problems),
        })  # fmt: skip
    elif found:
        shared.show_each(
            [
                render.header(model),
                render.transactions(shown(model)),
                *([] if model.open_outside is None else [render.opened(model.open_outside)]),
            ]
            for _, model in found
        )
    stuck = any(model.run.alive is not True and (model.open_outside or model.in_doubt) for _, model in found)
    return max(shared.report(problems, others=bool(found)), shared.EXIT_ANOMALY if stuck else 0)


@transactions.command()
@click.argument("name", metavar="TRANSACTION")
@shared.path_argument
@targets.sink_options
@click.option(
    "--timeout", type=shared.SECONDS, default=30.0, show_default=True, help="Seconds for the target's answer."
)
@shared.yes_option
@shared.json_option
def explain(  # noqa: PLR0913  one parameter for each option
    name: str, path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    timeout: float, yes: bool, as_json: bool,
) -> int:  # fmt: skip
    """Say in words what a transaction is, what its target has of it, what the next start does, and what to type.

    TRANSACTION is its name as `list` shows it, or the beginning of it. The target is asked; nothing is changed.
    """
    from onceonly.operations import explain as operation
    from onceonly.operations import render, report
    from onceonly.operations.find import find

    given = targets.given(options, options_file, classes, yes=yes)
    found, problems = shared.each(
        find(path), lambda checkpoint: operation.explain(checkpoint, name, given, within_s=timeout)
    )
    known = [(checkpoint, each) for checkpoint, each in found if each is not None]
    if as_json:
        shared.show_json({
            "transactions": [
                {"path": checkpoint.path, "query": checkpoint.query, **report.explanation(each)}
                for checkpoint, each in known
            ],
            "problems": report.problems(problems),
        })  # fmt: skip
    else:
        shared.show(
            *shared.blocks([render.explanation(checkpoint.query, each) for checkpoint, each in known])
        )
    status = shared.report(problems, others=bool(found))
    aborted = [each for checkpoint, _ in found for each in operation.aborted_by_hand(checkpoint, name)]
    if not known and aborted:
        shared.tell("\n".join(aborted))
    elif not known and not status:
        raise ConfigurationError(
            f"no checkpoint in {path} has a transaction {name!r} with details, and no target has one open",
            next_step="look at onceonly transactions list --all --ask; of older epochs the log keeps a line each",
        )
    return status


@transactions.command()
@click.argument("what", metavar="TRANSACTION|chk-N")
@shared.path_argument
@targets.sink_options
@_timeout
@shared.because_option
@shared.yes_option
@_force
@shared.json_option
def commit(what: str, path: str, *, because: str, **given: Any) -> int:  # noqa: ANN401  those of ``_settle``
    """With the job down: commit a decided epoch, all of its transactions, as the next start would.

    A transaction stands for its epoch. Whatever else the query has open is fenced and aborted.
    """
    return _settle(what, path, verb="commit", because=because, against=False, **given)


@transactions.command()
@click.argument("what", metavar="TRANSACTION|chk-N")
@shared.path_argument
@targets.sink_options
@_timeout
@shared.because_option
@click.option(
    "--against-decision",
    "against",
    is_flag=True,
    help="Abort an epoch that is decided: its rows are written again by the next start. Needs --because.",
)
@shared.yes_option
@_force
@shared.json_option
def abort(what: str, path: str, *, because: str, against: bool, **given: Any) -> int:  # noqa: ANN401
    """With the job down: fence and abort what an epoch that is not decided has open; the next start runs it again.

    A transaction stands for its epoch. Whatever else the query has open is fenced and aborted, too.
    """
    return _settle(what, path, verb="abort", because=because, against=against, **given)


def _settle(  # noqa: PLR0913  one parameter for each option
    what: str, path: str, *, verb: str, because: str, against: bool, classes: tuple[str, ...],
    options: tuple[str, ...], options_file: Path | None, timeout: float, yes: bool, force: bool, as_json: bool,
) -> int:  # fmt: skip
    from onceonly.operations import report, settle
    from onceonly.operations.find import find

    number = shared.epoch_of(what)
    order = settle.Order(
        verb=settle.Verb(verb), epoch=number, transaction="" if number is not None else what, because=because,
        against=against,
    )  # fmt: skip
    given = targets.given(options, options_file, classes, yes=yes)
    here = find(path)
    if number is not None and len(here.checkpoints) > 1:
        raise ConfigurationError(
            f"{path} leads to {n(len(here.checkpoints), 'query')}, and chk-{number} may be of any of them",
            next_step="name the checkpointLocation of one of them",
        )
    found, problems = shared.each(here, lambda each: settle.prepare(each, order, given, force=force))
    status = shared.report(problems, others=bool(found))
    errands = [(checkpoint, each) for checkpoint, each in found if each is not None]
    if not errands and not status:
        raise ConfigurationError(
            f"no checkpoint in {path} has a transaction {what!r}",
            next_step="look at onceonly transactions list --all --ask",
        )
    ready = [pair for pair in errands if not pair[1].is_done]
    for _, errand in errands:
        _announce(errand)
    results: list[tuple[Checkpoint, Result]] = []
    failures: list[Problem] = []
    consent = Consent()
    if ready or not errands:
        consent = _ask(yes=yes) if ready else Consent(refused="nothing can be done: see problems")
    if consent.given:
        results, failures = _carry_out(ready, given, timeout=timeout, force=force)
    if as_json:
        shared.show_json({
            "refused": consent.refused or None,
            "declined": consent.declined or None,
            "checkpoints": _as_json(results),
            "problems": report.problems((*problems, *failures)),
        })  # fmt: skip
    else:
        _show(results)
    status = max(status, consent.status, shared.report(failures, others=False))
    for checkpoint, result in results:
        for message in result.told:
            shared.tell(f"query {checkpoint.query}: {message}")
    lost = sum(result.lost for _, result in results)
    if lost:
        shared.tell(
            f"{n(lost, 'transaction was')} lost and fenced: the query's next run writes the rows again"
        )
        status = max(status, shared.EXIT_ANOMALY if not against else 0)
    return status


@transactions.command()
@click.argument("transaction")
@shared.path_argument
@targets.sink_options
@_timeout
@shared.because_option
@shared.yes_option
@_force
@shared.json_option
def divert(  # noqa: PLR0913  one parameter for each option
    transaction: str, path: str, *, classes: tuple[str, ...], options: tuple[str, ...], options_file: Path | None,
    timeout: float, because: str, yes: bool, force: bool, as_json: bool,
) -> int:  # fmt: skip
    """With the job down: make dead letters of rows that a target refuses after their decision, and commit the rest.

    TRANSACTION is decided and pending; the beginning of its name is enough. Which of its rows are refused is tried.
    """
    from onceonly.operations import divert as operation
    from onceonly.operations import report, settle
    from onceonly.operations.find import the_one

    given = targets.given(options, options_file, classes, yes=yes)
    checkpoint = the_one(path)
    shared.tell(
        f"query {checkpoint.query}: rows of {transaction} that its target refuses are to become dead letters"
    )
    consent = _ask(yes=yes)
    if not consent.given:
        return consent.status
    diverted = operation.divert(checkpoint, given, transaction, because=because, force=force)
    order = settle.Order(verb=settle.Verb.COMMIT, epoch=diverted.epoch, because=because)
    errand = settle.prepare(checkpoint, order, given, force=force)
    errands = [(checkpoint, errand)] if errand is not None else []
    results, failures = _carry_out(errands, given, timeout=timeout, force=force)
    if as_json:
        shared.show_json({
            "link": diverted.link,
            "kept": diverted.kept,
            "refused": [{"row": each.row, "why": each.why} for each in diverted.refused],
            "checkpoints": _as_json(results),
            "problems": report.problems(failures),
        })  # fmt: skip
    else:
        for each in diverted.refused[:_SHOWN_MAX]:
            shared.tell(f"row {each.row}: {each.why}")
        shared.tell(
            f"link {diverted.link}: {n(len(diverted.refused), 'dead letter')}, "
            f"{n(diverted.kept, 'is')} left to the sink"
        )
        _show(results)
    return shared.report(failures, others=False)


def _open_outside(checkpoint: Checkpoint, given: Given) -> tuple[tuple[str, str], ...]:
    from onceonly.operations.sinks import open_outside

    return tuple((sink, item.transaction) for sink, item in open_outside(checkpoint, given))


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


def _announce(errand: Errand) -> None:
    """Say what is going to be done, or that it is done."""
    model, epoch, order = errand.model, errand.epoch, errand.order
    if errand.record is not None:
        shared.tell(
            f"nothing to do: transaction {order.transaction} is already aborted: {errand.record.sentence}"
        )
        return
    if errand.is_done:
        shared.tell(f"nothing to do: {epoch.view.name} of query {model.query} is {epoch.view.state.value}")
        return
    for handle in epoch.owed[:_SHOWN_MAX]:
        shared.tell(f"to {order.verb}: {epoch.view.name} {handle.vote.sink} {handle.transaction}")
    rows = sum(handle.vote.rows for handle in epoch.owed)
    does = {
        "commit": f"{n(len(epoch.owed), 'decided transaction is')} to be committed",
        "abort": f"{n(len(epoch.owed), 'decided transaction is')} to be aborted against their decision, and the next "
        f"start writes their {n(rows, 'row')} again"
        if epoch.owed
        else f"what {epoch.view.name} has open is to be aborted, and the next start runs it again",
    }[order.verb]
    shared.tell(f"query {model.query} at {model.address}: {does}; whatever else it has open is to be aborted")


def _carry_out(
    errands: list[tuple[Checkpoint, Errand]], given: Given, *, timeout: float, force: bool
) -> tuple[list[tuple[Checkpoint, Result]], list[Problem]]:
    """Carry out one after the other; one that fails does not keep the others from it."""
    from onceonly.operations import settle
    from onceonly.operations.search import Problem

    results: list[tuple[Checkpoint, Result]] = []
    failures: list[Problem] = []
    for checkpoint, errand in errands:
        try:
            result = settle.settle(checkpoint, errand, given, timeout_s=timeout, force=force)
        except OnceonlyError as error:
            failures.append(Problem(checkpoint.path, error))
            continue
        results.append((checkpoint, result))
        if result.error is not None:
            failures.append(Problem(checkpoint.path, result.error))
    return results, failures


def _as_json(results: list[tuple[Checkpoint, Result]]) -> list[dict[str, Any]]:
    from onceonly.operations import look, report

    return [{**report.checkpoint(look.unsettled(each)), **report.result(result)} for each, result in results]


def _show(results: list[tuple[Checkpoint, Result]]) -> None:
    """Show what was done, below how each query stands now."""
    from onceonly.operations import look, render

    shared.show_each([render.header(look.unsettled(each)), render.done(result)] for each, result in results)
