"""A query without Spark that writes rows to files, with its checkpoint and its files wherever a test has them."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

from onceonly.coordinator.query import QueryCoordinator
from onceonly.executor.slot import run_slot
from onceonly.log.opening import look
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN
from onceonly.sinks.files import FilesSink
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from onceonly.executor.ballot import Ballot
    from onceonly.model import Plan

COLUMNS = (("id", "bigint"),)
ROWS = 2
"""How many rows each epoch has."""


class StoredQuery:
    """What Spark, its tasks and its driver do of a query; ``write`` is one epoch, of rows that its number tells."""

    def __init__(self, checkpoint: str, path: str, **options: str) -> None:
        self.checkpoint, self.path = checkpoint, path
        self.id = uuid.uuid4().hex
        self._options = {"path": path, "format": "json", **options}
        self._coordinator: QueryCoordinator | None = None
        self.next = 0
        """The epoch that Spark has in flight."""
        self._lives = 0
        self._run = ""

    def begin(self) -> None:
        """Make Spark's side of the checkpoint, with an epoch in flight."""
        self._spark("metadata", json.dumps({"id": self.id}))
        self._barrier(0)

    def start(self) -> QueryCoordinator:
        """Begin another life, in a new application."""
        self.close()
        self._lives += 1
        self._run = f"run-{self._lives}"
        settings = QuerySettings(checkpoint=self.checkpoint, history=10, commit_timeout_s=3)
        made = QueryCoordinator(settings, actor="driver", application=f"life-{self._lives}")
        made.enlist(SinkSettings(name="files", options=self._options), BUILT_IN["files"], COLUMNS)
        self._coordinator = made
        return made

    @property
    def life(self) -> QueryCoordinator:
        return self._coordinator or self.start()

    def plan(self, epoch: int) -> Plan:
        life = self.life
        return life.plan(epoch, run=self._run)

    def prepare(self, plan: Plan) -> Ballot:
        """Do what a task does: write the rows of the epoch, and prepare them."""
        sink = FilesSink(self._options)
        context = WriteContext(
            query=self.id, sink="files", run=self._run, epoch=plan.epoch, plan=plan.id, slot=0,
            attempt=uuid.uuid4().hex, guarantee=Guarantee.EXACTLY_ONCE, mode=plan.mode,
            facts=plan.facts["files"],
        )  # fmt: skip
        rows = pa.record_batch({"id": list(range(ROWS * plan.epoch, ROWS * plan.epoch + ROWS))})
        try:
            return run_slot(sink, plan, context, [rows])
        finally:
            sink.close()

    def decide(self, plan: Plan, ballot: Ballot) -> None:
        """Decide and commit an epoch; then Spark notes it, and begins the next one."""
        self.life.decide(plan, [ballot])
        self.note(plan.epoch)

    def note(self, epoch: int) -> None:
        """Do what Spark does once an epoch is through."""
        self._spark(f"commits/{epoch}", "v1\n{}")
        self._barrier(epoch + 1)

    def write(self, *epochs: int) -> None:
        """Write epochs as they are planned, whatever was decided of them before."""
        for epoch in epochs:
            plan = self.plan(epoch)
            self.decide(plan, self.prepare(plan))

    def newest(self) -> int | None:
        """Return the newest epoch that the log knows."""
        return look(self.checkpoint)[0].newest()

    def close(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
        self._coordinator = None

    def _barrier(self, epoch: int) -> None:
        self.next = epoch
        self._spark(f"offsets/{epoch}", f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}')

    def _spark(self, name: str, text: str) -> None:
        open_store(address_of(self.checkpoint)).replace(name, text.encode())
