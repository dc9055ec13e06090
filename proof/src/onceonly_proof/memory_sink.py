"""A two-phase sink in memory, with as many faults as a test asks for. For tests.

A ``MemoryStore`` is the outside world: it outlives drivers and tasks, and every sink of a test opens it by name.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import UnavailableError, WriteFailedError
from onceonly.model import (
    AlreadyCommitted,
    Capabilities,
    Committed,
    Guarantee,
    Handle,
    Lost,
    Outcome,
    RetryLater,
    Unknown,
)
from onceonly.options import Option
from onceonly.ports import Leftover, QueryContext, Refused, TwoPhaseCommitSink, WriteContext

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

Row = tuple[object, ...]

OPEN, PREPARED, COMMITTED, ABORTED = "open", "prepared", "committed", "aborted"


@dataclass(slots=True)
class MemoryTransaction:
    """One transaction of a ``MemoryStore``. ``state`` is open, prepared, committed or aborted."""

    name: str
    query: str
    context: WriteContext
    rows: list[Row] = field(default_factory=list)
    state: str = OPEN


@dataclass(slots=True, kw_only=True)
class MemoryStore:
    """The outside world of ``MemorySink``. Any thread.

    ``answers`` are given to the next commits of a transaction, first in first out, instead of acting: an
    outcome, or an exception to raise. ``acted`` names transactions that are committed although the answer says
    otherwise. With ``reachable`` false every call from the driver raises. ``calls`` is what was asked, in order.
    A row with one of the values in ``refuses`` is refused.
    """

    transactions: dict[str, MemoryTransaction] = field(default_factory=dict)
    answers: dict[str, deque[Outcome | Exception]] = field(default_factory=lambda: defaultdict(deque))
    acted: set[str] = field(default_factory=set)
    reachable: bool = True
    calls: list[tuple[str, str]] = field(default_factory=list)
    refuses: set[object] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def visible(self, *, epoch: int | None = None) -> Counter[Row]:
        """Count each visible row, of one epoch or of all."""
        with self.lock:
            return Counter(
                row
                for each in self.transactions.values()
                if each.state == COMMITTED and epoch in {None, each.context.epoch}
                for row in each.rows
            )

    def pending(self) -> list[str]:
        """Name what is open or prepared."""
        with self.lock:
            return [each.name for each in self.transactions.values() if each.state in {OPEN, PREPARED}]

    def expire(self, name: str) -> None:
        """Drop a transaction, as a server does whose time-out is over."""
        with self.lock:
            if self.transactions[name].state in {OPEN, PREPARED}:
                self.transactions[name].state = ABORTED

    def asked(self, call: str, name: str) -> None:
        """Note a call from the driver; refuse it while the store is out of reach."""
        with self.lock:
            self.calls.append((call, name))
            if not self.reachable:
                raise UnavailableError("the memory store is out of reach", next_step="make it reachable")


class MemorySink(TwoPhaseCommitSink[MemoryTransaction]):
    """Keeps rows in a ``MemoryStore``, which ``MemorySink.stores`` holds by the option ``store``.

    A row with one of the store's ``refuses`` in it is refused.
    """

    name: ClassVar[str] = "memory"
    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset(Guarantee), recovers=True, gives_back=True
    )
    declared: ClassVar[tuple[Option, ...]] = (
        Option(name="store", doc="the name of the MemoryStore", default="default"),
    )
    stores: ClassVar[dict[str, MemoryStore]] = defaultdict(MemoryStore)

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.store = self.stores[self.options["store"]]

    def identity(self) -> Mapping[str, str | int]:
        return {"store": self.options["store"]}

    def begin_transaction(self, context: WriteContext) -> MemoryTransaction:
        with self.store.lock:
            name = f"{context.sink}.{context.run}.{len(self.store.transactions)}"
            transaction = MemoryTransaction(name, context.query, context)
            if context.guarantee is Guarantee.AT_LEAST_ONCE:
                transaction.state = COMMITTED
            self.store.transactions[name] = transaction
        return transaction

    def write(self, transaction: MemoryTransaction, batch: pa.RecordBatch) -> Sequence[Refused] | None:
        refused: list[Refused] = []
        with self.store.lock:
            for place, row in enumerate(batch.to_pylist()):
                values = tuple(row.values())
                if self.store.refuses.isdisjoint(values):
                    transaction.rows.append(values)
                else:
                    refused.append(Refused(row=place, code="UNWANTED", why=f"the store refuses {values}"))
        return refused

    def pre_commit(self, transaction: MemoryTransaction) -> Handle | None:
        with self.store.lock:
            if transaction.context.guarantee is Guarantee.AT_LEAST_ONCE:
                return None
            if transaction.state != OPEN:
                raise WriteFailedError(f"{transaction.name} was fenced", next_step="let the epoch run again")
            transaction.state = PREPARED
        return Handle(transaction=transaction.name)

    def discard(self, transaction: MemoryTransaction) -> None:
        with self.store.lock:
            if transaction.state in {OPEN, PREPARED}:
                transaction.state = ABORTED

    def commit(self, handle: Handle) -> Outcome:
        name = handle.transaction
        self.store.asked("commit", name)
        with self.store.lock:
            transaction = self.store.transactions.get(name)
            if transaction is None:
                return Unknown(f"the store does not know {name}")
            if self.store.answers[name]:
                answer = self.store.answers[name].popleft()
                if name in self.store.acted and transaction.state == PREPARED:
                    transaction.state = COMMITTED
                if isinstance(answer, Exception):
                    raise answer
                return answer
            if transaction.state == COMMITTED:
                return AlreadyCommitted()
            if transaction.state == ABORTED:
                return Lost(f"{name} is aborted in the store")
            if transaction.state == OPEN:
                return RetryLater(f"{name} is not prepared")
            transaction.state = COMMITTED
            return Committed()

    def abort(self, handle: Handle) -> None:
        self.store.asked("abort", handle.transaction)
        if handle.transaction in self.store.transactions:
            self.store.expire(handle.transaction)

    def recover(self, context: QueryContext) -> list[Leftover]:
        self.store.asked("recover", context.sink)
        with self.store.lock:
            return [
                Leftover(transaction=each.name)
                for each in self.store.transactions.values()
                if each.state in {OPEN, PREPARED}
                and (each.query, each.context.sink) == (context.query, context.sink)
            ]
