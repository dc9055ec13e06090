"""Writing and preparing one attempt at one slot. Executor; nothing here ever commits."""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from onceonly.errors import (
    ConfigurationError,
    EpochTimeoutError,
    RecordRefusedError,
    WriteFailedError,
)
from onceonly.families.behind import refuse_ahead
from onceonly.model import Guarantee, Handle
from onceonly.sinks.kafka.checks import topic_ids
from onceonly.sinks.kafka.options import BATCH_BYTES
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.prepared import Prepared, spell
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.failures import Failure
from onceonly.sinks.kafka.producers.pool import this_worker
from onceonly.sinks.kafka.records import named_partitions, refusals
from onceonly.sinks.kafka.records.fields import RECORD_BYTES_MAX
from onceonly.sinks.kafka.records.record_batches import BATCH_BYTES as EMPTY_BATCH_BYTES
from onceonly.sinks.kafka.wire.answers import (
    GROUP_FORBIDDEN,
    ID_FORBIDDEN,
    Meaning,
    meaning,
    refuse_forbidden,
)
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from onceonly.ports import Refused, WriteContext
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.producers.pool import Pool, Ready
    from onceonly.sinks.kafka.producers.reach import Producer

_CLUSTER_S = 10.0


def expect(context: WriteContext, options: KafkaOptions) -> None:
    """Begin to look up the marker that an attempt's own will replace; ``begin`` waits for it."""
    options = fitted(context, options)
    if context.guarantee is not Guarantee.AT_LEAST_ONCE:
        _pool(context, options).expect(
            context,
            partial(
                marker.read_once,
                this_worker().reach(options).admin,
                _group(context, options),
                _marker_topic(context, options),
            ),
        )


def begin(context: WriteContext, options: KafkaOptions) -> PlainWrite | TransactionalWrite:
    """Begin an attempt in the way that its guarantee asks for."""
    options = fitted(context, options)
    _require_cluster(context, options)
    if context.guarantee is Guarantee.AT_LEAST_ONCE:
        return PlainWrite(context, options)
    return TransactionalWrite(context, options)


def fitted(context: WriteContext, options: KafkaOptions) -> KafkaOptions:
    """Return options by which no batch is larger than the topic takes, if ``check`` found out what that is. Pure."""
    limit = int(context.facts.get("max_message_bytes", 0))
    if not 0 < limit < int(options.client.get("batch.size", BATCH_BYTES)):
        return options
    return replace(options, client={**options.client, "batch.size": str(limit)})


class PlainWrite:
    """One attempt's rows through a living producer; visible at once. At least once."""

    def __init__(self, context: WriteContext, options: KafkaOptions) -> None:
        self.context = context
        self.options = options
        self.rows = 0
        self._reach = this_worker().reach(options)
        self._timeout_s = options.delivery_timeout_ms / 1000
        self._released = False
        self._sieve = refusals.sieve(options, self._reach.told) if context.gives_back else None
        try:
            self.producer = self._take_producer()
        except import_confluent().KafkaException as error:
            self._raise_failure(Failure(error.args[0]))

    @property
    def name(self) -> str:
        """What errors call it."""
        context = self.context
        return f"query {context.query}, sink {context.sink}, epoch {context.epoch}, slot {context.slot}"

    def write(self, batch: pa.RecordBatch) -> Sequence[Refused]:
        """Hand the rows to the producer, which sends them in the background. Memory is bounded by its buffer.

        Gives back what Kafka would refuse, where that is asked for.
        """
        refused: Sequence[Refused] = ()
        if self._sieve is not None:
            batch, refused = self._sieve.part(batch)
            if not batch.num_rows:
                return refused
        self._produce(batch)
        return refused

    def _produce(self, batch: pa.RecordBatch) -> None:
        try:
            named_partitions.refuse_unknown(batch, self.options.topic, self.rows, self._partitions)
            self.producer.write(batch, self.options.topic, self.rows, wait_s=self.options.max_block_ms / 1000)
        except BufferError as error:
            why = f": {error}" if str(error) else ", and no broker has said why"
            raise WriteFailedError(
                f"{self.name}: the producer's buffer stayed full for {self.options.max_block_ms} ms{why}.",
                next_step="see that the brokers keep up; kafka.buffer.memory and kafka.max.block.ms "
                "bound this wait",
            ) from error
        except import_confluent().KafkaException as error:  # of a client, or of a topic that was looked at
            self._raise_failure(Failure(error.args[0]))
        self._raise_failed()
        self.rows += batch.num_rows

    def pre_commit(self) -> Handle | None:
        """Wait until every row is acknowledged by all in-sync replicas."""
        self._flush()
        self._released = True
        self._reach.keep_plain(self.producer)
        return None

    def discard(self) -> None:
        """Drop what is still buffered, so that the next attempt does not wait for it; that one has another producer."""
        if not self._released:
            self._released = True
            self.producer.close()

    def _partitions(self, topic: str, at_least: int) -> int:
        topics, admin = self._reach.topics, self._reach.rows
        wait_s = self.options.max_block_ms / 1000
        count = len(admin.patiently(wait_s, f"topic {topic}", lambda: topics.leaders(topic)))
        if count < at_least:
            topics.forget(topic)  # partitions may have been added
            count = len(admin.patiently(wait_s, f"topic {topic}", lambda: topics.leaders(topic)))
        return count

    def _take_producer(self) -> Producer:
        return self._reach.take_plain()

    def _flush(self) -> None:
        try:
            left = self.producer.flush(self._timeout_s)
        except import_confluent().KafkaException as error:
            self._raise_failure(Failure(error.args[0]))
        self._raise_failed()
        if left:
            trouble = self.producer.failures.trouble()
            why = f": {trouble}" if trouble else ", and no broker has said why"
            raise WriteFailedError(
                f"{self.name}: {n(left, 'row was')} not acknowledged within {self._timeout_s:g} s{why}.",
                next_step="see that the brokers run; kafka.delivery.timeout.ms bounds this wait",
            )

    def _raise_failed(self) -> None:
        if self.producer.failures.first is not None:
            self._raise_failure(self.producer.failures.first)

    def _raise_failure(self, failure: Failure) -> NoReturn:
        error = failure.error
        if meaning(error.code()) is Meaning.REFUSED:
            raise RecordRefusedError(
                f"{self.name}: a row of {failure.row_bytes or 0} bytes is refused ({error.str()}).",
                next_step="mend the row as the broker says; a compacted topic takes rows with a key only",
            )
        if meaning(error.code()) is Meaning.TOO_LARGE:
            self._refuse_row(failure)
        # What only a person can mend is not for a restart.
        self._refuse_forbidden(error.code())
        raise WriteFailedError(
            f"{self.name}: {error.name()}: {error.str()}.",
            next_step="Spark runs the task again; if it goes on, look at the brokers' logs",
        )

    def _refuse_row(self, failure: Failure) -> NoReturn:
        if self._sieve is not None and (lowered := self._reach.told.lowered()):
            raise WriteFailedError(
                f"{self.name}: a row or its batch is refused ({failure.error.str()}): max.message.bytes of topic "
                f"{', '.join(lowered)} was lowered a moment ago.",
                next_step="nothing: the next try takes the rows that are too large now for dead letters",
            )
        ours, batch_bytes = (
            self.options.record_bytes_max,
            int(self.options.client.get("batch.size", BATCH_BYTES)),
        )
        limit = int(self.context.facts.get("max_message_bytes", 0))
        of_topic = (
            f"{limit}"
            if limit
            else "not known, as DESCRIBE_CONFIGS on it is not granted or rows carry their topics"
        )
        size = failure.row_bytes or 0
        # As it is stored, alone in a batch, where it has no headers.
        stored = size + RECORD_BYTES_MAX + EMPTY_BATCH_BYTES
        is_the_row = failure.is_alone or size > ours or stored > (limit or batch_bytes // 2)
        if is_the_row:
            raise RecordRefusedError(
                f"{self.name}: a row of {size} bytes is refused ({failure.error.str()}); the limits are "
                f"kafka.max.request.size, {ours}, and max.message.bytes of the topic, {of_topic}, which counts "
                f"{stored - size} bytes more at most for a row without headers.",
                next_step="raise the limit that it is beyond, or make the row smaller",
            )
        # With all that shared its batch: the topic takes less than we have put together.
        if limit >= batch_bytes:
            raise WriteFailedError(
                f"{self.name}: a batch is refused ({failure.error.str()}): it had up to {batch_bytes} bytes, and "
                f"max.message.bytes of the topic, {limit} when the query was started, has been lowered since.",
                next_step="start the query again, as a supervised one does: it reads the limit anew",
            )
        raise RecordRefusedError(
            f"{self.name}: a batch is refused ({failure.error.str()}): max.message.bytes of the topic ({of_topic}) "
            f"is below kafka.batch.size, {batch_bytes}.",
            next_step="set kafka.batch.size below max.message.bytes of the topic, or raise that",
        )

    def _refuse_forbidden(self, code: int) -> None:
        """Raise ``ConfigurationError`` where the broker says that a permission is missing: only a person grants it."""
        refuse_forbidden(code, self.options.topic or "the topics of its rows")


class TransactionalWrite(PlainWrite):
    """One attempt's rows in a transaction of its own, prepared and never ended here."""

    def __init__(self, context: WriteContext, options: KafkaOptions) -> None:
        facts = context.facts
        self._cluster_id = str(facts["cluster_id"])
        self._end_txn_version = int(facts["end_txn_version"])
        self._timeout_ms = _timeout_ms(context)
        self._pool = _pool(context, options)
        self._marker_topic = _marker_topic(context, options)
        self._group = _group(context, options)
        # Before anything is begun: the token that ours will replace is half of a proof of loss.
        self._predecessor = self._pool.expected(context) or marker.read_or_seed(
            this_worker().reach(options).admin, self._group, self._marker_topic
        )
        refuse_ahead(context, marker.epoch_of(self._predecessor), to="Kafka")
        self._ready: Ready = self._pool.take(context.epoch)
        self._began = time.monotonic()
        self._marking: Future[None] = Future()
        self._marking.set_result(None)
        try:
            super().__init__(context, options)
            self._timeout_s = min(options.delivery_timeout_ms, self._timeout_ms) / 1000
            self._call(self.producer.begin_transaction, self._group)
        except BaseException:
            # Nobody has this attempt, so nobody else would give its id back.
            self._ready.lease.give_back()
            self._ready.producer.close()
            raise

    @property
    def name(self) -> str:
        return f"{super().name}, transaction {self._ready.transactional_id}"

    def pre_commit(self) -> Handle:
        """Flush, and put the marker into the transaction meanwhile. Afterwards any process can commit it."""
        if self._released:
            raise WriteFailedError(f"{self.name}: prepared twice.", next_step="report a defect in onceonly")
        context, ready = self.context, self._ready
        token = marker.new_token(context.epoch)
        self._marking = self.producer.begin_offset(self._marker_topic, marker.OFFSET, token, self._timeout_s)
        try:
            self._flush()
        finally:
            if not self._marking.cancel():  # what is under way in another thread cannot be cancelled
                wait([self._marking])
        self._call(self._marking.result)
        written = spell(self.producer.written())
        ids = topic_ids.spell(self.producer.topic_ids()) if self.options.topic is None else ""
        self._release()
        self._pool.prepare_spare(context.epoch)
        return Prepared(
            cluster_id=self._cluster_id,
            transactional_id=ready.transactional_id,
            producer_id=ready.producer_id,
            producer_epoch=ready.producer_epoch,
            end_txn_version=self._end_txn_version,
            group=self._group,
            marker_topic=self._marker_topic,
            token=token,
            predecessor=self._predecessor,
            written=written,
            topic_ids=ids,
        ).handle()

    def discard(self) -> None:
        """Let go of the producer. Its transaction stays open until the driver sweeps it."""
        self._release()

    def _take_producer(self) -> Producer:
        return self._ready.producer

    def _raise_failure(self, failure: Failure) -> NoReturn:
        if meaning(failure.error.code()) is Meaning.ENDED:
            lived_s = time.monotonic() - self._began
            what = f"{self.name}: {failure.error.name()} after {lived_s:.1f} s"
            if lived_s * 1000 >= self._timeout_ms:
                raise EpochTimeoutError(
                    f"{what}: the broker has dropped it, as it was open for longer than kafka.transaction.timeout.ms, "
                    f"{self._timeout_ms} ms.",
                    next_step="raise kafka.transaction.timeout.ms (and the broker's transaction.max.timeout.ms), or "
                    "make epochs shorter; the epoch is run again",
                )
            raise WriteFailedError(
                f"{what}: somebody else has ended the transaction or taken its id: the driver, which has given this "
                f"attempt up, a newer run on this checkpoint, or an operator.",
                next_step="nothing where the attempt was one too many or a newer run is wanted; else see who uses ids "
                "that begin with onceonly.transactional.id.prefix",
            )
        super()._raise_failure(failure)

    def _release(self) -> None:
        # Destroyed, neither committed nor aborted: a living producer could do both behind the driver's back. Not while
        # the marker is sent, which an interrupt may have left alone: librdkafka waits for ever in such a client's end.
        self._released = True
        self._marking.cancel()
        self._marking.add_done_callback(lambda _done: self.producer.close())
        # Of this epoch no other takes it. In the next one, what is open on it is resolved or void.
        self._ready.lease.give_back()

    def _refuse_forbidden(self, code: int) -> None:
        things = {GROUP_FORBIDDEN: self._group, ID_FORBIDDEN: self._ready.transactional_id}
        refuse_forbidden(code, things.get(code, self.options.topic or "the topics of its rows"))

    def _call(self, method: Any, *arguments: Any) -> None:  # noqa: ANN401
        try:
            method(*arguments)
        except import_confluent().KafkaException as error:
            if method == self._marking.result:
                refuse_forbidden(error.args[0].code(), self._group, topic=self._marker_topic)
            self._raise_failure(Failure(error.args[0]))


def _pool(context: WriteContext, options: KafkaOptions) -> Pool:
    return this_worker().pool(context, options, _timeout_ms(context))


def _timeout_ms(context: WriteContext) -> int:
    return int(context.facts["transaction_timeout_ms"])


def _marker_topic(context: WriteContext, options: KafkaOptions) -> str:
    return str(context.facts.get("marker_topic") or options.marker_topic)


def _group(context: WriteContext, options: KafkaOptions) -> str:
    return marker.group_name(options.prefix, context.query, context.sink, context.slot)


def _require_cluster(context: WriteContext, options: KafkaOptions) -> None:
    """Refuse to write where this machine's names lead to another cluster than the driver's."""
    admin = this_worker().reach(options).admin
    found = admin.patiently(_CLUSTER_S, "cluster id", lambda: admin.cluster_id)
    if found != context.facts["cluster_id"]:
        raise ConfigurationError(
            f"Query {context.query}, sink {context.sink}: {options.servers} leads this executor to Kafka cluster "
            f"{found}, and the driver to {context.facts['cluster_id']}. Nothing was written.",
            next_step="give names that mean the same on driver and executors",
        )
