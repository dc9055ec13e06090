"""Telling who has written to a target before a query first does: it may be that query, begun anew. Driver, at start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.ports import BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.ports import QueryContext

log = logging.getLogger("onceonly")
_SHOWN_MAX = 3


def is_alone(query: str) -> bool:
    """Say whether nobody is told of a query: a batch. Pure."""
    return query.startswith(BATCH)


def tell(context: QueryContext, target: object, others: Sequence[str], *, place: str) -> None:
    """Warn of ``others``, each in words, where there are any; ``place`` is what another target is called."""
    if not others:
        return
    more = [f"{len(others) - _SHOWN_MAX} more"] if len(others) > _SHOWN_MAX else []
    log.warning(
        "Query %s, sink %s: this checkpoint has written nothing to %s yet, and others have: %s. If that was this "
        "query, with a checkpoint that is deleted or another one by now, rows that it reads again will be there twice: "
        "begin at the offsets at which it ended, or choose another %s. Queries that share a target on "
        "purpose simply go on.",
        context.query,
        context.sink,
        target,
        "; ".join([*others[:_SHOWN_MAX], *more]),
        place,
    )
