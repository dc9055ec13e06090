"""What runs in processes that are killed: lives of a query, or single steps of one. Arguments and results are JSON."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.model import Handle, Plan, Vote
from onceonly_proof.conformance.query import Query, Work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.conformance.subject import Subject


def life(suite: Subject, **work: Any) -> None:  # noqa: ANN401  the fields of ``Work``
    """Live as a driver that plans, writes and decides, until every epoch is completed."""
    with Query(suite, Work(**work)) as query:
        query.run_all()


def plan(suite: Subject, *, epoch: int, run: str, **work: Any) -> Any:  # noqa: ANN401  a Plan as JSON
    """Plan one epoch, as Spark's planner process does."""
    with Query(suite, Work(**work), run=run) as query:
        return msgspec.to_builtins(query.plan(epoch))


def slot(suite: Subject, *, planned: Any, number: int, run: str, **work: Any) -> Any:  # noqa: ANN401  JSON
    """Run one attempt of a slot, as an executor's worker does; return its vote."""
    with Query(suite, Work(**work), run=run) as query:
        return msgspec.to_builtins(query.slot(msgspec.convert(planned, Plan), suite.sink.name, number))


def decide(suite: Subject, *, planned: Any, votes: Any, run: str, **work: Any) -> None:  # noqa: ANN401  JSON
    """Decide one epoch, as Spark's commit process does."""
    with Query(suite, Work(**work), run=run) as query:
        known = msgspec.convert(planned, Plan)
        query.coordinator.decide(known, msgspec.convert(votes, list[Vote]))
        query.complete(known.epoch)


def prepare_and_die(suite: Subject, *, to: str, **work: Any) -> None:  # noqa: ANN401  as above
    """Prepare one slot of epoch 0, leave its handle as JSON in the file ``to``, and die by SIGKILL."""
    with Query(suite, Work(**work)) as query:
        vote = query.slot(query.plan(0), suite.sink.name, 0)
        assert vote.handle is not None  # noqa: S101  run_slot has seen to it
        text = json.dumps({"transaction": vote.handle.transaction, "data": dict(vote.handle.data)})
        Path(to).write_text(text, encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)


def commit(suite: Subject, *, handle: Mapping[str, Any], **work: Any) -> str:  # noqa: ANN401  as above
    """Commit a handle; return the outcome's name."""
    with Query(suite, Work(**work)) as query:
        given = Handle(transaction=handle["transaction"], data=handle["data"])
        return type(query.sinks[suite.sink.name].commit(given)).__name__
