"""The code's table answers as the model does what drivers meet there; each of its answers is met or named."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from tests.formal import table, told
from tests.formal.bounds import Bound
from tests.formal.test_model import TWO_EPOCHS

from onceonly.protocol import states, transitions
from onceonly.protocol.messages import StopReason
from onceonly_proof.tla import check, formal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.formal.table import Compared

    Answer = tuple[str, str, str]

pytestmark = pytest.mark.integration

SMALL = (TWO_EPOCHS, Bound(epochs=1, faults=2, drivers=2, sinks=1))
LARGER = (
    Bound(epochs=2, faults=2, drivers=2, sinks=1),
    Bound(epochs=1, faults=2, drivers=3, sinks=1),
)
PROTOCOL = "onceonly.protocol"
INSTEAD = "CONSTANTS\n    Step <- ToldStep\n    Failure <- ToldFailure\n"

# Steps that the code answers otherwise than the model, each with its reason.
OTHERWISE = {
    (
        "Read",
        "SUPERSEDED",
    ): "the code ends a run for good after which another application has put links; in the model it "
    "starts again, as a driver of its own: it tells runs apart, and not who supervises them",
}

# What the table can answer and no step of the model asks for, in any bound, by its reason: state, event, and the next
# state or why it stops.
NEVER: dict[str, set[Answer]] = {
    "no driver of the model finds an epoch missing: the law NoGap": {
        ("Reading", "ChainRead", "GAP"),
        ("Draining", "ChainRead", "GAP"),
    },
    "in the model nobody's application has several planners, nor is a link of an operator's command": {
        ("Reading", "ChainRead", "OVERTAKEN"),
        ("Draining", "ChainRead", "SUPERSEDED"),
        ("Deciding", "LinkTaken", "OVERTAKEN"),
        ("SweepingStart", "LinkTaken", "OVERTAKEN"),
        ("SweepingNext", "LinkTaken", "OVERTAKEN"),
    },
    "the sinks of the model, their targets and the guarantee stay what they are": {
        ("Reading", "ChainRead", "BRANCH"),
        ("Reading", "ChainRead", "OWED"),
        ("Reading", "ChainRead", "SETTINGS"),
        ("Reading", "ChainRead", "SHARED"),
        ("Resolving", "Resolved", "SETTINGS"),
        ("Checking", "Checked", "EXCHANGED"),
    },
    "each slot of the model has a row, and each sink promises exactly-once: a decision commits something": {
        ("Deciding", "LinkPersisted", "Receipting"),
        ("Syncing", "LinkPersisted", "Receipting"),
    },
    "in the model the user takes over what Spark has noted, unless it was decided": {
        ("Reading", "ChainRead", "PASSED"),
        ("Resolving", "Resolved", "PASSED"),
        ("Receipting", "ReceiptPersisted", "Reading"),
    },
    "a replay of the model gives the rows that were decided, and refuses none; a drain takes no votes": {
        ("Running", "VotesCollected", "Done"),
        ("Running", "VotesCollected", "REPLAY"),
        ("Running", "VotesCollected", "MISMATCH"),
        ("Running", "VotesCollected", "LETTERS"),
    },
    "votes come by the plan that travels with them: those of another one are a mutant of the model": {
        ("Running", "VotesCollected", "FOREIGN_VOTE"),
    },
    "the model does not tell who is down from who refuses, nor late from not durable": {
        ("Checking", "Checked", "UNSYNCED"),
        ("Committing", "Resolved", "REFUSED"),
        ("Resolving", "Resolved", "REFUSED"),
        ("SweepingStart", "SweepFailed", "UNSWEPT"),
        ("SweepingNext", "SweepFailed", "UNSWEPT"),
    },
    "each decision of the model holds what it read; that a list of files is too long is a fault of restoring": {
        ("Reading", "ChainRead", "BARRIER"),
    },
}

# What takes two faults in two epochs, or three drivers.
RARE: set[Answer] = {
    ("Reading", "ChainRead", "Skipped"),
    ("Skipping", "LinkTaken", "OVERTAKEN"),
    ("SweepingNext", "LinkTaken", "SUPERSEDED"),
    ("Withdrawing", "LinkTaken", "OVERTAKEN"),
}


def searched(bounds: tuple[Bound, ...]) -> list[Compared]:
    """Search the model, its laws too, and take each of its steps in the code."""
    found: list[Compared] = []
    for bound in bounds:
        # With as many faults as drivers, nobody may be left to go on.
        config = bound.config().replace("CONSTANTS\n", INSTEAD) + "CHECK_DEADLOCK FALSE\n"
        done = check("Table", config, workers=2, timeout_s=580.0)
        assert done.violated == "", done.output[-4000:]
        steps = list(told.told(done.output))
        assert len(steps) > 100, "TLC tells of what it finds"
        found += [each for step in steps for each in table.compare(step)]
    return found


@pytest.fixture(scope="module")
def small() -> list[Compared]:
    return searched(SMALL)


def differing(found: list[Compared]) -> tuple[set[tuple[str, str]], list[Compared]]:
    """Return which exceptions are met, and what differs beside them."""
    others = [each for each in found if not each.is_same]
    met = {(each.action, each.answer) for each in others} & OTHERWISE.keys()
    return met, [each for each in others if (each.action, each.answer) not in met]


def answers(found: list[Compared]) -> set[Answer]:
    return {(*each.rows[-1], each.answer) for each in found} | {
        (*before, after[0]) for each in found for before, after in zip(each.rows, each.rows[1:], strict=False)
    }


def possible() -> set[Answer]:
    """Read from the functions of the table, and those that they call, where each row can lead."""
    return {
        (state.__name__, event.__name__, answer)
        for (state, event), row in transitions._TABLE.items()
        for answer in led_to(row, set())
    }


def led_to(function: Callable[..., Any], known: set[Callable[..., Any]]) -> set[str]:
    known.add(function)
    found: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "StopReason"
        ):
            found.add(StopReason[node.attr].name)
        if not isinstance(node, ast.Call):
            continue
        called: Any = None
        if isinstance(node.func, ast.Name):
            called = function.__globals__.get(node.func.id)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            called = getattr(function.__globals__.get(node.func.value.id), node.func.attr, None)
        if inspect.isclass(called) and called.__module__ == states.__name__:
            found.add(called.__name__)
        elif inspect.isfunction(called) and called.__module__.startswith(PROTOCOL) and called not in known:
            found |= led_to(called, known)
    return found - {"Context", "Stopped"}


def test_the_table_answers_as_the_model_does(small: list[Compared]) -> None:
    met, others = differing(small)
    assert others[:5] == []
    assert met == OTHERWISE.keys(), "an exception that is met no more is none"


def test_each_answer_of_the_table_is_met_in_the_model_or_named_with_its_reason(small: list[Compared]) -> None:
    named = set[tuple[str, str, str]]().union(*NEVER.values())
    assert sum(map(len, NEVER.values())) == len(named), "each has one reason"
    assert possible() - answers(small) == named | RARE


@pytest.mark.long
def test_larger_bounds_meet_the_rare_answers_too_and_differ_nowhere() -> None:
    found = searched(LARGER)
    met, others = differing(found)
    assert others[:5] == []
    assert met == OTHERWISE.keys()
    assert answers(found) >= RARE
    named = set[tuple[str, str, str]]().union(*NEVER.values())
    assert answers(found) & named == set(), "what is met has no reason not to be"


def test_an_action_of_the_model_takes_the_rows_that_it_is_said_to_take(small: list[Compared]) -> None:
    text = (formal() / "Onceonly.tla").read_text(encoding="utf-8")
    rows = re.findall(r'<<"(\w+)", "(\w+)", \{([^}]*)\}>>', text)
    said = {(action, (state, event)) for state, event, names in rows for action in re.findall(r"\w+", names)}
    assert {(each.action, row) for each in small for row in each.rows} <= said
