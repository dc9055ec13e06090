"""What all rows of a sink add up to, by its log, and when that says nothing of what a target has."""

from __future__ import annotations

from typing import Any

import pytest

from onceonly.log.history import Summary, columns_digest
from onceonly.model import Link, LinkKind, Receipt, SinkUse, Vote
from onceonly.operations import states, values
from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
from onceonly.operations.values import Decided
from onceonly.ports.standing import NO_COLUMNS, Held

COLUMNS = (("id", "bigint"), ("name", "string"))
OTHERS = (("id", "bigint"),)


def checksum(number: int) -> str:
    return f"murmur64:{number % 2**64:016x}"


def detailed(
    epoch: int, *numbers: int, columns: tuple[tuple[str, str], ...] = COLUMNS, name: str = "sql"
) -> EpochModel:
    """Return an epoch with a vote of two rows for each number, that it adds up to."""
    votes = tuple(
        Vote(
            sink=name, epoch=epoch, slot=slot, plan="p", run="r", attempt=str(slot), rows=2, checksum=checksum(number)
        )
        for slot, number in enumerate(numbers)
    )  # fmt: skip
    link = Link(
        epoch=epoch, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=votes,
        uses={name: SinkUse(sink="sql", columns=columns)},
    )  # fmt: skip
    view = states.describe(epoch, (link,), Receipt(epoch=epoch, index=0, plan="p"), noted=True)
    return EpochModel(view=view, chain=(link,))


def folded(epoch: int, number: int, columns: tuple[tuple[str, str], ...] = COLUMNS) -> EpochModel:
    sums = {"sql": (columns_digest(columns), checksum(number))} if columns else {}
    line = Summary(epoch=epoch, kind=LinkKind.COMMIT, links=1, sinks={"sql": (2, 1)}, sums=sums)
    return EpochModel(view=states.folded(line))


def model(*epochs: EpochModel) -> CheckpointModel:
    nobody: Any = None
    return CheckpointModel(
        path="cp", address="file:///cp", query="q", home="file:///cp", is_moved=False, run=nobody, epochs=epochs[::-1]
    )  # fmt: skip


def test_details_and_history_are_added_up_whoever_wrote_what_part() -> None:
    known = model(folded(0, 2**64 - 1), folded(1, 7), detailed(2, 10, 100))
    assert values.in_all(known, "sql") == Decided(columns=COLUMNS, checksum=checksum(116))
    assert values.of_epoch(known.epochs[0], "sql") == Decided(columns=COLUMNS, checksum=checksum(110))


@pytest.mark.parametrize(
    ("epochs", "why"),
    [
        ((folded(0, 1, ()), detailed(1, 2)), "the log has not noted the columns of chk-0"),
        ((detailed(0, 1, columns=()), detailed(1, 2)), "the log has not noted the columns of chk-0"),
        ((folded(0, 1, OTHERS), detailed(1, 2)), "chk-0 has written other columns than the newest epoch"),
        ((folded(0, 1), folded(1, 1)), "the log has no details any more of an epoch that wrote there"),
    ],
)
def test_what_cannot_be_compared_is_said(epochs: tuple[EpochModel, ...], why: str) -> None:
    assert values.in_all(model(*epochs), "sql") == Decided(unknown=why)


def test_letters_are_not_what_the_log_has_checksums_of() -> None:
    known = model(detailed(0, 1, name="sql.letters"))
    for found in (values.in_all(known, "sql.letters"), values.of_epoch(known.epochs[0], "sql.letters")):
        assert (found.columns, "of the letters that tell of them" in found.unknown) == ((), True)


def test_an_epoch_whose_columns_are_not_noted_has_no_sum() -> None:
    assert values.of_epoch(detailed(0, 1, columns=()), "sql") == Decided(unknown=NO_COLUMNS)


@pytest.mark.parametrize(
    ("held", "decided", "is_same", "told"),
    [
        (Held(rows=2, checksum="a"), Decided(checksum="a"), True, ""),
        (Held(rows=2, checksum="a", unread="NaN"), Decided(checksum="a"), True, ""),
        (Held(rows=2, checksum="b"), Decided(checksum="a"), False, "at least one was changed"),
        (Held(rows=2, checksum="b", unread="NaN"), Decided(checksum="a"), True, "not compared: NaN"),
        (Held(rows=2, unread="no columns"), Decided(unknown="letters"), True, "not compared: letters"),
        (Held(rows=2), Decided(unknown="letters"), True, ""),
    ],
)
def test_only_a_sum_that_nothing_else_explains_is_a_difference(
    held: Held, decided: Decided, is_same: bool, told: str  # noqa: FBT001
) -> None:  # fmt: skip
    found, sentences = values.compared(held, decided)
    assert (found, bool(sentences)) == (is_same, bool(told))
    assert told in " ".join(sentences)
