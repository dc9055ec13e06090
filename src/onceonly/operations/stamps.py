"""When an epoch's steps were, by the clocks of those who took them: for stores, whose times are too coarse to compare.

S3 tells when an object was put to the second; of Spark's own files nothing else tells. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.model import seconds_of
from onceonly.operations.disk import SETTLED, Step, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.model import Link, Receipt


def steps(chain: Sequence[Link], receipt: Receipt | None) -> list[Step]:
    """Return the steps of an epoch in their order, without those that an older onceonly did not stamp."""
    found = [
        step
        for link in chain
        for step in (
            Step(f"plan of link {link.name}", seconds_of(link.planned)),
            Step(put(link), seconds_of(link.stamp)),
        )
    ]
    found += [Step(SETTLED, seconds_of(receipt.stamp))] if receipt is not None else []
    return [step for step in found if step.at]
