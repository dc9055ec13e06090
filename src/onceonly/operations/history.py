"""The history of a query for auditors: what was decided in each epoch, as JSON lines. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onceonly.model import LinkKind, letters_of
from onceonly.operations import disk
from onceonly.protocol.deciding import totals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel


def lines(model: CheckpointModel) -> Iterator[str]:
    """Yield the history as JSON lines, oldest epoch first.

    The first line says what is kept: a line for every epoch, and checksums of those that have details.
    """
    epochs = list(reversed(model.epochs))
    detailed = [epoch.view.epoch for epoch in epochs if epoch.chain]
    yield json.dumps(
        {
            "query": model.query,
            "home": model.home,
            "first": epochs[0].view.epoch if epochs else None,
            "last": epochs[-1].view.epoch if epochs else None,
            "details_from": min(detailed, default=None),
            "retention": "a line for each epoch, for ever; ranges, and checksums where no columns are noted, of the "
            "newest epochs only, as many as onceonly.history says",
        }
    )
    for epoch in epochs:
        yield json.dumps(_line(epoch))


def _line(epoch: EpochModel) -> dict[str, Any]:
    view, last = epoch.view, epoch.chain[-1] if epoch.chain else None
    is_decided = last is not None and last.kind is LinkKind.COMMIT
    sums = totals(last.output) if last is not None and is_decided else {}
    return {
        "epoch": view.epoch,
        "state": view.state.value,
        "reason": view.reason,
        "sinks": {
            name: {
                "rows": rows,
                "transactions": count,
                "letters_of": letters_of(name),
                "checksum": sums[name][1] if name in sums else view.sums.get(name, (None, None))[1],
            }
            for name, (rows, count) in view.sinks.items()
        },
        "barrier": list(last.barrier) if last is not None else None,
        "outcomes": dict(view.outcomes),
        "at": disk.iso(epoch.at),
    }
