"""A query whose epochs are decided without Spark, for what looks at its log: barriers of one Kafka source."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from onceonly.coordinator.query import QueryCoordinator
from onceonly.executor.ballot import Ballot
from onceonly.model import Guarantee, Vote
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import remember
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from pathlib import Path


class DecidedQuery:
    """One query on a checkpoint; ``decide`` does what Spark and the sink do of an epoch."""

    def __init__(self, checkpoint: Path, query: str = "") -> None:
        remember(MemorySink)
        self.id = query or uuid.uuid4().hex
        self.checkpoint = checkpoint
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": self.id}))
        self._coordinator: QueryCoordinator | None = None

    def decide(self, epoch: int, ends: dict[str, dict[int, int]]) -> None:
        """Decide an epoch that ends there, and commit it. Raises what a crash point does."""
        (self.checkpoint / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")
        if self._coordinator is None:
            settings = QuerySettings(checkpoint=str(self.checkpoint))
            self._coordinator = QueryCoordinator(settings, actor="driver", application="a")
            self._coordinator.enlist(SinkSettings(name="memory"), MemorySink, ())
        plan = self._coordinator.plan(epoch, run="r")
        sink = MemorySink({})
        attempt = WriteContext(
            query=self.id, sink="memory", run="r", epoch=epoch, plan=plan.id, slot=0, attempt=uuid.uuid4().hex,
            guarantee=Guarantee.EXACTLY_ONCE,
        )  # fmt: skip
        vote = Vote(
            sink="memory", epoch=epoch, slot=0, plan=plan.id, run="r", attempt=attempt.attempt, rows=1,
            checksum="xxh3:0", handle=sink.pre_commit(sink.begin_transaction(attempt)),
        )  # fmt: skip
        self._coordinator.decide(plan, [Ballot(vote=vote)])
        (self.checkpoint / "commits" / str(epoch)).write_text("v1\n{}")
