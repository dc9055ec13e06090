"""The producers of one worker process: each is initialised, carries one transaction, and is thrown away.

A late duplicate of an EndTxn request ends whatever transaction its producer id and epoch have open, so
no two transactions may share them. Initialising costs 6 to 50 ms, sometimes 500; so once one
transaction is prepared, a *spare* is initialised in the background for the next.

A transactional id is used again only in a later epoch: then, by protocol, every handle of the former
epoch is resolved. A machine thus needs as many ids as it runs slots in an epoch, and one a worker for its spare.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import WriteFailedError
from onceonly.events import record
from onceonly.sinks.kafka.checks.target import id_prefix
from onceonly.sinks.kafka.outcomes.marker import part
from onceonly.sinks.kafka.outcomes.standing import describe
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.direct_producer import DirectProducer
from onceonly.sinks.kafka.producers.leases import Leases
from onceonly.sinks.kafka.producers.reach import Reach
from onceonly.sinks.kafka.producers.transaction import ENDING_S, StillEndingError
from onceonly.sinks.kafka.records.record_batches import Identity
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly.sinks.kafka.wire.answers import NONE, PutOffError, refuse_forbidden

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from onceonly.ports import WriteContext
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.producers.leases import Lease
    from onceonly.sinks.kafka.producers.reach import Producer

log = logging.getLogger("onceonly")

_DESCRIBE_S = 10.0
_CONNECT_S = 2.0
# Kafka forgets idle transactional ids after 7 days, brokers are moved; a spare is not kept for long.
_SPARE_AGE_S_MAX = 600.0
# Rows wait for votes, decision and commits, and a spare would take their processor, and the broker's. Most often that
# takes less than this where epochs are short, and it is twice as long until the next rows come (benchmarks.phases).
_SPARE_WAITS_S = 0.02
# What was looked up longer ago is looked up again.
_EXPECTED_S_MAX = 5.0
_SHORT_LIVED = {
    # A fresh client asks for its coordinator at once: 14 instead of 54 ms to initialise (measured).
    "reconnect.backoff.ms": "1",
    # With both, librdkafka would try a broker that is down a hundred times a second.
    "metadata.recovery.strategy": "none",
}
# After so many ids whose last transactions do not end, one is waited for.
_STILL_ENDING_MAX = 2
_POOLS_MAX = 64
_CLIENTS_MAX = 64


def transactional_client(options: KafkaOptions, transactional_id: str, timeout_ms: int) -> dict[str, str]:
    """Return librdkafka's configuration for one transaction. Pure.

    librdkafka refuses a delivery or socket time-out longer than the transaction's.
    """
    client = {**_SHORT_LIVED, **options.client}
    client["transactional.id"] = transactional_id
    client["transaction.timeout.ms"] = str(timeout_ms)
    client["delivery.timeout.ms"] = str(min(options.delivery_timeout_ms, timeout_ms))
    # 60 s is librdkafka's default; it wants 100 ms less than the transaction has.
    client["socket.timeout.ms"] = str(
        max(min(int(client.get("socket.timeout.ms", "60000")), timeout_ms - 100), 10)
    )
    return client


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A producer that is initialised and has carried no transaction."""

    producer: Producer
    lease: Lease
    producer_id: int
    producer_epoch: int
    born: float

    @property
    def transactional_id(self) -> str:
        return self.lease.transactional_id


@dataclass(frozen=True, slots=True)
class _Spare:
    """A producer in preparation for epochs after ``epoch``; begun after a while, or as soon as it is ``wanted``."""

    epoch: int
    wanted: threading.Event
    future: Future[Ready | None]


@dataclass(frozen=True, slots=True)
class _Expected:
    """A look-up for an attempt whose rows have not come yet."""

    context: WriteContext
    began: float
    answer: Future[str | None]


class Pool:
    """The producers of one (query, sink, run) in this process. Executor; thread-safe."""

    def __init__(self, context: WriteContext, reach: Reach, timeout_ms: int) -> None:
        self._leases = Leases(f"{id_prefix(reach.options, context.query, context.sink)}{part(context.run)}.")
        self._context = context
        self._reach = reach
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        # How many transactions were begun for an epoch.
        self._taken: Counter[int] = Counter()
        self._spare: _Spare | None = None
        self._expected: _Expected | None = None

    def expect(self, context: WriteContext, look_up: Callable[[], str | None]) -> None:
        """Begin a look-up for an attempt that waits for its rows; not after an attempt whose rows did not come.

        A spare that still waits is begun, too.
        """
        with self._lock:
            spare = self._spare
        if spare is not None:
            spare.wanted.set()
        if self._expected is None:
            began = time.monotonic()
            self._expected = _Expected(context, began, background.begin("onceonly-expect", look_up))

    def expected(self, context: WriteContext) -> str | None:
        """Return what was looked up for an attempt, once; None where it has to look itself.

        That is where nothing was found or the look-up failed: it was done once only, and things may be better now.
        """
        expected, self._expected = self._expected, None
        if expected is None or expected.context is not context:
            return None
        with contextlib.suppress(Exception):
            found = expected.answer.result()
            if time.monotonic() - expected.began < _EXPECTED_S_MAX:
                return found
        return None

    def take(self, epoch: int) -> Ready:
        """Return an initialised producer for a transaction of ``epoch``: the spare, or a new one.

        Raises ``WriteFailedError``, ``ConfigurationError``, ``UnavailableError``.
        """
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.wanted.set()
            # The thread is bounded by max.block.ms; waiting for it is never slower than starting anew.
            ready = spare.future.result()
            # The spare's id was chosen as free for epochs from its own on.
            if (
                ready is not None
                and epoch >= spare.epoch
                and time.monotonic() - ready.born < _SPARE_AGE_S_MAX
            ):
                ready.lease.use(epoch)
                self._count(epoch)
                return ready
            if ready is not None:
                ready.lease.give_back()
        self._count(epoch)
        return self._new(epoch)

    def prepare_spare(self, epoch: int) -> None:
        """See that the next producer is initialised in the background, once ``epoch`` is prepared here.

        A moment later, after the epoch is decided; at once where this worker runs several slots of an epoch, in this
        one or in the one before: the next slot may come any moment.
        """
        with self._lock:
            if self._spare is not None:
                return
            several = max(self._taken[epoch], self._taken[epoch - 1]) > 1
            wanted, waits_s = threading.Event(), 0.0 if several else _SPARE_WAITS_S
            future = background.begin("onceonly-spare", self._fill, epoch, wanted, waits_s)
            self._spare = _Spare(epoch, wanted, future)

    def drop(self) -> None:
        """Throw the spare away. It has no transaction, so nothing is left open."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.wanted.set()
            spare.future.add_done_callback(_give_back)

    def _count(self, epoch: int) -> None:
        with self._lock:
            self._taken[epoch] += 1
            for former in [each for each in self._taken if each < epoch - 1]:
                del self._taken[former]

    def _fill(self, epoch: int, wanted: threading.Event, waits_s: float) -> Ready | None:
        wanted.wait(waits_s)
        # The next take meets the same error, where somebody hears it.
        with contextlib.suppress(Exception):
            ready = self._new(epoch)
            record(
                "spare.ready",
                actor="executor",
                query=self._context.query,
                run=self._context.run,
                sink=self._context.sink,
                transaction=ready.transactional_id,
            )
            return ready
        return None

    def _new(self, epoch: int) -> Ready:
        """Take a free id; one whose last transaction does not end is left alone for a long time, and another is taken.

        What is decided of that one is decided (see ``committer``); only its coordinator is behind.
        """
        for _ in range(_STILL_ENDING_MAX):
            try:
                return self._initialise(self._leases.claim(epoch), ENDING_S)
            except StillEndingError as error:
                log.warning(
                    "%s: another id is taken. Next: see that all brokers run; if they do, restart the one that "
                    "coordinates it (kafka-transactions.sh describe).", error,
                )  # fmt: skip
        # Where a broker has just died, all are being ended until others lead its partitions.
        return self._initialise(self._leases.claim(epoch))

    def _initialise(self, lease: Lease, ending_s: float = math.inf) -> Ready:
        """Take the id; what is still open on it was voted void, and is aborted."""
        begin = self._direct if self._reach.is_direct() else self._by_librdkafka
        kafka = import_confluent()
        transactional_id = lease.transactional_id
        try:
            producer, by = begin(transactional_id, ending_s)
        except kafka.KafkaException as error:
            lease.give_back()
            refuse_forbidden(error.args[0].code(), transactional_id)
            raise WriteFailedError(
                f"Transactional id {transactional_id} could not be initialised: {error.args[0].str()}.",
                next_step="see that the brokers run; Spark runs the task again",
            ) from error
        except StillEndingError:
            lease.rest()
            lease.give_back()
            raise
        except BaseException:
            lease.give_back()
            raise
        return Ready(
            producer=producer,
            lease=lease,
            producer_id=by.producer_id,
            producer_epoch=by.producer_epoch,
            born=time.monotonic(),
        )

    def _direct(self, transactional_id: str, ending_s: float) -> tuple[Producer, Identity]:
        producer = DirectProducer(self._reach, transactional_id, self._timeout_ms)
        producer.connect()
        return producer, producer.take_id(self._reach.options.max_block_ms / 1000, ending_s)

    def _by_librdkafka(self, transactional_id: str, _ending_s: float) -> tuple[Producer, Identity]:
        options, admin = self._reach.options, self._reach.admin
        producer = self._reach.by_librdkafka(
            transactional_client(options, transactional_id, self._timeout_ms)
        )
        # The first metadata replaces the bootstrap connection by the broker's own; a search for the coordinator that
        # is in flight then fails, and librdkafka repeats it after 500 ms (in 16 of 120 clients; with the second
        # request, which waits for the new connection, in 0 of 120).
        for _ in range(2):
            producer.connect(options.marker_topic, _CONNECT_S)
        try:
            producer.init_transactions(options.max_block_ms / 1000)
        except import_confluent().KafkaException:
            producer.close()
            raise
        # librdkafka tells its producer id only in statistics, which would pile up in an idle spare.
        return producer, admin.patiently(
            _DESCRIBE_S, f"description of {transactional_id}", lambda: _describe(admin, transactional_id)
        )


def _give_back(spare: Future[Ready | None]) -> None:
    ready = spare.result()
    if ready is not None:
        ready.lease.give_back()


def _describe(admin: Admin, transactional_id: str) -> Identity:
    """Read the producer id and epoch that the coordinator has just given out for an id of ours."""
    state = describe(admin, transactional_id)
    if state.error_code != NONE:
        raise PutOffError(state.error_code)
    return Identity(state.producer_id, state.producer_epoch)


class Worker:
    """All that one process keeps between attempts. One instance a process, made anew after a fork."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        # In each, the longest unused first.
        self._reaches: dict[object, Reach] = {}
        self._pools: dict[tuple[str, str], tuple[object, Pool]] = {}

    def reach(self, options: KafkaOptions) -> Reach:
        """Return how this process reaches the brokers; of too many, the longest unused one is closed.

        Its threads would stay.
        """
        key = _key(options)
        with self._lock:
            found = self._reaches.pop(key, None) or Reach(options, Admin(options), Admin(options))
            self._reaches[key] = found
            is_full = len(self._reaches) > _CLIENTS_MAX
            surplus = self._reaches.pop(next(iter(self._reaches))) if is_full else None
        if surplus is not None:
            surplus.close()
        return found

    def pool(self, context: WriteContext, options: KafkaOptions, timeout_ms: int) -> Pool:
        """Return the pool of a run; the pool of the query's former run is dropped."""
        place = (context.query, context.sink)
        key = (context.run, _key(options), timeout_ms)
        reach = self.reach(options)
        with self._lock:
            known = self._pools.pop(place, None)
            if known is not None and known[0] != key:
                known[1].drop()
                known = None
            pool = Pool(context, reach, timeout_ms) if known is None else known[1]
            self._pools[place] = (key, pool)
            if len(self._pools) > _POOLS_MAX:
                self._pools.pop(next(iter(self._pools)))[1].drop()
            return pool


def _key(options: KafkaOptions) -> object:
    """Return what is equal where options say the same."""
    values = (getattr(options, each.name) for each in fields(options))
    return tuple(frozenset(each.items()) if isinstance(each, Mapping) else each for each in values)


_worker: Worker | None = None


def this_worker() -> Worker:
    """Return what this process keeps. A forked child starts with nothing: threads do not survive a fork."""
    global _worker  # noqa: PLW0603  one a process
    if _worker is None or _worker.pid != os.getpid():
        _worker = Worker()
    return _worker
