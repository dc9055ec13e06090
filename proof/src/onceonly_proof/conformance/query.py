"""A query without Spark: the real coordinator, slots and decision log, epoch by epoch, as Spark would call them.

Runs in the process of the tests and in those that are killed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from onceonly import failpoints
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import OnceonlyError
from onceonly.executor.slot import run_slot
from onceonly.log import open_log
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.settings.registry import build, settings_of, use_of
from onceonly_proof.conformance.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from onceonly.model import Plan, Vote
    from onceonly.ports import Sink
    from onceonly.settings.registry import SinkClass
    from onceonly_proof.conformance.subject import Subject

COMPANION = "companion"
"""The name of the second sink: the built-in file sink, parquet."""
_FILES = "onceonly.sinks.files:FilesSink"
_COMMIT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a query has to do. JSON: it travels to the processes that do it."""

    query: str
    checkpoint: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    guarantee: str = Guarantee.EXACTLY_ONCE.value
    epochs: int = 2
    slots: int = 1
    companion: str = ""
    """The folder of the second sink; empty where there is none."""
    attempts: int = 1
    """How often a slot is tried in one life, as Spark retries a task."""

    @property
    def load(self) -> Workload:
        return Workload(epochs=self.epochs, slots=self.slots)


class Query:
    """One life of a driver. ``close`` gives back its sinks."""

    def __init__(self, suite: Subject, work: Work, *, run: str = "") -> None:
        self.suite = suite
        self.work = work
        self.run = run or uuid.uuid4().hex
        self._last: Plan | None = None
        self.sinks: dict[str, Sink] = {}
        self.log = open_log(work.checkpoint, query=work.query, create=True)
        self.coordinator = Coordinator(
            log=self.log, actor="driver", application=uuid.uuid4().hex, commit_timeout_s=_COMMIT_TIMEOUT_S
        )
        self._join(suite.sink.name, suite.sink, work.options, columns=suite.columns_given())
        if work.companion:
            options = {"path": work.companion}
            self._join(COMPANION, _FILES, options, columns=suite.columns_given())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for sink in self.sinks.values():
            sink.close()

    # --- an epoch, step by step -----------------------------------------------------------------------------

    def plan(self, epoch: int) -> Plan:
        """Resolve an epoch; its barrier is the same at every replay, as Spark's is."""
        last, self._last = self._last, None
        continues = last.id if last is not None and last.epoch == epoch - 1 else None
        plan = self.coordinator.plan(epoch, barrier=(f'"{epoch}"',), run=self.run, continues=continues)
        self._last = plan
        return plan

    def slot(
        self, plan: Plan, name: str, slot: int, *, batches: Iterable[pa.RecordBatch] | None = None
    ) -> Vote:
        """Run one attempt."""
        if batches is None:
            batches = (self.suite.batch(rows) for rows in self.work.load.batches(plan.epoch, slot))
        context = WriteContext(
            query=self.work.query,
            sink=name,
            run=self.run,
            epoch=plan.epoch,
            plan=plan.id,
            slot=slot,
            attempt=uuid.uuid4().hex,
            guarantee=Guarantee(self.work.guarantee),
            mode=plan.mode,
            facts=plan.facts.get(name, {}),
            index=plan.index,
            early=self._shows_early(name),
        )
        return run_slot(self.sinks[name], plan, context, batches).vote

    def run_epoch(self, epoch: int) -> None:
        """Plan, write and decide; give the try up where a slot fails, as Spark does."""
        plan = self.plan(epoch)
        votes: list[Vote] = []
        try:
            for name in self.sinks:
                votes.extend(self._patiently(plan, name, slot) for slot in range(self.work.slots))
            self.coordinator.decide(plan, votes)
        except Exception:  # not a kill nor an interrupt: those are the next life's to sweep
            self.coordinator.abort(plan, votes, run=self.run)
            raise
        self.complete(epoch)

    def run_all(self) -> None:
        """Run every epoch that Spark has not completed."""
        for epoch in range(self.first_epoch(), self.work.epochs):
            self.run_epoch(epoch)

    # --- Spark's own checkpoint -----------------------------------------------------------------------------

    def first_epoch(self) -> int:
        """Return the first epoch whose ``commits/N`` is missing."""
        epoch = 0
        while (self._commits / str(epoch)).exists():
            epoch += 1
        return epoch

    def complete(self, epoch: int) -> None:
        """Write ``commits/N``."""
        self._commits.mkdir(parents=True, exist_ok=True)
        (self._commits / str(epoch)).touch()

    @property
    def _commits(self) -> Path:
        return Path(self.work.checkpoint) / "commits"

    def _patiently(self, plan: Plan, name: str, slot: int) -> Vote:
        for _ in range(self.work.attempts - 1):
            try:
                return self.slot(plan, name, slot)
            except (failpoints.FailpointError, OnceonlyError):
                continue
        return self.slot(plan, name, slot)

    def _shows_early(self, name: str) -> bool:
        is_exact = self.work.guarantee == Guarantee.EXACTLY_ONCE
        return self.suite.early and is_exact and name == self.suite.sink.name

    def _join(
        self,
        name: str,
        sink: SinkClass,
        options: Mapping[str, str],
        *,
        columns: tuple[tuple[str, str], ...],
    ) -> None:
        given = {**options, "onceonly.guarantee": self.work.guarantee}
        if self._shows_early(name):
            given |= self.suite.choice()
        settings = settings_of(given, name, sink).sink
        self.sinks[name] = build(settings, sink)
        participant = Participant(
            sink=self.sinks[name], guarantee=settings.guarantee, columns=columns, use=use_of(settings, sink)
        )
        self.coordinator.join(name, participant)
