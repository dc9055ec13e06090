"""The model and the code's table name the same moves. Needs neither Java nor TLC."""

from __future__ import annotations

import re

from onceonly.protocol import transitions
from onceonly_proof.tla import formal

MODULE = (formal() / "Onceonly.tla").read_text(encoding="utf-8")


def definition(name: str) -> str:
    """Return the text of a definition, up to the next one."""
    found = re.search(rf"^{name}(?:\(\w+(?:, \w+)*\))? ==(.*?)(?=^\S|\Z)", MODULE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the model defines no {name}"
    return found[1]


def rows() -> list[tuple[str, str, frozenset[str]]]:
    text = re.search(r"^Rows == \{$(.*?)^\}$", MODULE, re.MULTILINE | re.DOTALL)
    assert text is not None
    found = re.findall(r'<<"(\w+)", "(\w+)", \{([^}]*)\}>>', text[1])
    return [(state, event, frozenset(re.findall(r'"(\w+)"', actions))) for state, event, actions in found]


def actions() -> set[str]:
    """Return all that ``Next`` is made of."""
    texts = " ".join(definition(name) for name in ("Step", "Failure", "Next"))
    return set(re.findall(r"\b([A-Z]\w+)\b", texts)) - {"Step", "Failure", "Drivers", "Slots", "DOMAIN"}


def test_the_model_has_the_rows_of_the_codes_table_and_no_others() -> None:
    known = [(state, event) for state, event, _ in rows()]
    assert len(known) == len(set(known))
    outside = re.findall(r'<<"(\w+)", "(\w+)">>', definition("Outside"))
    assert set(known) & set(outside) == set()
    known += outside
    table = {(state.__name__, event.__name__) for state, event in transitions._TABLE}
    assert set(known) - table == set(), "moves of the model that the code does not have"
    assert table - set(known) == set(), "moves of the code that the model does not have"


def test_each_action_of_the_model_takes_a_row_or_is_said_to_take_none() -> None:
    taking = frozenset[str]().union(*(found for _, _, found in rows()))
    without = set(re.findall(r'"(\w+)"', definition("NoRow")))
    # What else stops a driver is a crash as well.
    assert taking & without == set()
    assert taking | without == actions()
    for action in taking | without:
        definition(action)
