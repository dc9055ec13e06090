"""TLC finds the laws of ``formal/Onceonly.tla`` kept, everything settled, and each of its mutants guilty."""

from __future__ import annotations

import re

import pytest
from tests.formal.bounds import Bound

from onceonly_proof.tla import formal

pytestmark = pytest.mark.integration

TINY = Bound(epochs=1, faults=0, drivers=1)
TWO_DRIVERS = Bound(epochs=1, faults=1, drivers=2)
TWO_EPOCHS = Bound(epochs=2, faults=1, drivers=2)
TWO_SLOTS = Bound(epochs=1, faults=1, drivers=2, slots=2)
TWO_FAULTS = Bound(epochs=1, faults=2, drivers=3)
ONE_SINK = Bound(epochs=2, faults=1, drivers=2, sinks=1)
LOST_RECEIPTS = Bound(epochs=2, faults=2, drivers=3, sinks=1)

MUTANTS = (
    ("link not synced", "DecisionFirst", TINY),
    ("found link not synced", "DecisionFirst", TWO_DRIVERS),
    ("commit before its link", "DecisionFirst", TINY),
    ("no ABORT link before the sweep", "DecidedNeverAborted", TWO_DRIVERS),
    ("the sweep of a voted handle", "DecidedNeverAborted", TWO_DRIVERS),
    ("the sweep looks before it lists", "DecidedNeverAborted", TWO_DRIVERS),
    ("second transaction on one producer epoch", "NoRowTwice", TWO_DRIVERS),
    ("absent marker taken for lost", "AbortedNeverVisible", TWO_FAULTS),
    ("initialise before resolve", "DecidedNeverAborted", TWO_DRIVERS),
    ("abort after failed commit taken literally", "DecidedNeverAborted", TWO_DRIVERS),
    ("unknown outcome taken for lost", "AbortedNeverVisible", TWO_FAULTS),
    ("lost without a fence", "AbortedNeverVisible", TWO_FAULTS),
    ("receipt before all handles are committed", "SettledIsWhole", TINY),
    ("a taken link number ignored", "AbortedNeverVisible", TWO_DRIVERS),
    ("drain writes again", "AbortedNeverVisible", TWO_DRIVERS),
    ("votes of an older run accepted", "DecidedNeverAborted", TWO_DRIVERS),
    ("only one sink's handles committed", "SettledIsWhole", TINY),
    ("claim over a decision", "AbortedNeverVisible", TWO_DRIVERS),
    ("a part lost taken for all", "AbortedNeverVisible", TWO_DRIVERS),
    ("a repair writes everything", "NoRowTwice", TWO_DRIVERS),
    ("offsets not synced before the link", "InputsFirst", TINY),
    ("moved offsets decided", "InputsFirst", ONE_SINK),
    ("offsets removed without a claim", "InputsFirst", LOST_RECEIPTS),
    ("offsets removed under an old claim", "InputsFirst", LOST_RECEIPTS),
    ("offsets not compared with the decisions", "NoInputLost", ONE_SINK),
    ("Spark not asked where it began", "NoInputLost", LOST_RECEIPTS),
    ("offsets not restored", "Settles", ONE_SINK),
    ("found receipt not synced", "NoGap", LOST_RECEIPTS),
    ("a skipped epoch taken for a gap", "NoGap", ONE_SINK),
)
"""Each with the law that it breaks, in the smallest bound in which TLC finds it."""


@pytest.mark.parametrize(
    "bound",
    [
        pytest.param(TWO_EPOCHS, id="two epochs"),
        pytest.param(TWO_SLOTS, id="two slots"),
        pytest.param(TWO_FAULTS, id="two faults", marks=pytest.mark.long),
        pytest.param(LOST_RECEIPTS, id="two epochs and two faults", marks=pytest.mark.long),
    ],
)
def test_the_laws_hold_in_every_state_and_none_is_stuck(bound: Bound) -> None:
    found = bound.check()
    assert found.violated == "", found.output[-4000:]
    assert found.states > 1000


def test_whatever_can_go_on_settles() -> None:
    found = TWO_EPOCHS.check(lively=True)
    assert found.violated == "", found.output[-4000:]


@pytest.mark.parametrize(
    "sight", ["NeverTakenOver", "NeverVoided", "NeverRepaired", "NeverSkipped", "NeverRestored"]
)
def test_what_the_laws_are_about_does_happen(sight: str) -> None:
    bound = ONE_SINK if sight == "NeverSkipped" else TWO_DRIVERS
    assert bound.check(instead=sight).violated == sight


@pytest.mark.parametrize(
    ("mutant", "law", "bound"),
    [
        # In the largest bound one takes a minute, and each law has a smaller one besides.
        pytest.param(*each, id=each[0], marks=[pytest.mark.long] if each[2] is LOST_RECEIPTS else [])
        for each in MUTANTS
    ],
)
def test_a_mutant_is_caught_with_a_counterexample(mutant: str, law: str, bound: Bound) -> None:
    # Where rows move from one range to another, several laws break at once, and where two runs' votes are mixed: which
    # of them is found first is chance.
    several = bound is ONE_SINK or mutant == "votes of an older run accepted"
    alone = law if several and law != "Settles" else ""
    found = bound.check(mutant=mutant, lively=law == "Settles", instead=alone)
    assert found.violated == law, found.output[-4000:]
    # An epoch that Spark passed by is met by the first plan of all.
    assert found.steps > (3 if bound is ONE_SINK else 5)


def test_every_defect_that_the_model_knows_is_tried() -> None:
    text = (formal() / "Onceonly.tla").read_text(encoding="utf-8")
    assert {name for name, _, _ in MUTANTS} == set(re.findall(r'\bM\("([^"]+)"\)', text))


def test_the_page_of_the_model_names_each_mutant_with_its_law() -> None:
    page = (formal().parent / "docs" / "explanation" / "model.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?<=\| broken by \|\n\|---\|---\|---\|\n)(?:.+\n)+", page)[0].splitlines()
    cells = [re.split(r" ?\| ?", row) for row in rows]
    shown = {re.findall(r"`(\w+)`", laws)[-1]: names.split("; ") for _, laws, _, names, _ in cells if names}
    laws = dict.fromkeys(law for _, law, _ in MUTANTS)
    assert shown == {law: [name for name, broken, _ in MUTANTS if broken == law] for law in laws}
