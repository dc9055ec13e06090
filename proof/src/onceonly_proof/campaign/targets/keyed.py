"""What the options of every keyed sink of a campaign are: a row replaces its key's, the greatest input number stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onceonly_proof.campaign.workload import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly_proof.auditor import Input

SEQUENCE: Final = "number"
"""The column that a job adds for such a sink: the number of the input row."""
KEYED: Final = {"key": "key", "sequence": SEQUENCE}
_TEXT: Final = "cast(value as string)"
NUMBER: Final = f"cast(coalesce(get_json_object({_TEXT}, '$.id'), {_TEXT}) as bigint)"
"""The number of an input row, in SQL: a JSON object's ``id``, or all that it is."""
NUMBERED: Final = f"cast({NUMBER} as string)"
"""The key of rows of a source whose own keys are none, or do not say which row is newer: each has one of its own."""


def numbered(rows: Iterable[Input]) -> list[Input]:
    """Return input rows with the keys that ``NUMBERED`` gives them. Pure."""
    return [replace(each, key=b"%d" % number_of(each.value)) for each in rows]
