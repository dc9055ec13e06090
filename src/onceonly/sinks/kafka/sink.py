"""The Kafka sink: options, columns and keys as in Spark's own, exactly once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from onceonly.model import Capabilities, Guarantee, Handle, Outcome
from onceonly.ports import Leftover, QueryContext, TwoPhaseCommitSink, WriteContext
from onceonly.sinks.kafka import auditing, committer, looking_up, writer
from onceonly.sinks.kafka.checks import ageing, hanging, past, target
from onceonly.sinks.kafka.options import DECLARED, KafkaOptions
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.prepared import parts_of
from onceonly.sinks.kafka.reading_back import Values
from onceonly.sinks.kafka.wire.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.options import Option
    from onceonly.ports import Refused
    from onceonly.ports.standing import Hanging, Held, Part, Standing

_CONNECT_S = 10.0
# From the look at what is prepared to its commit: a decision in the log, and what is before it in the queue.
_FRESH_S = 10.0


class _Fresh:
    """Which transactions were looked at a moment ago, in this process, and were not tried since. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: set[object] = set()
        self._since = 0.0

    def note(self, handles: Sequence[Handle]) -> None:
        """Take these for fresh, in place of all before."""
        with self._lock:
            self._tokens, self._since = {each.data.get("token") for each in handles}, time.monotonic()

    def take(self, handles: Sequence[Handle]) -> frozenset[str]:
        """Return the tokens of those that are fresh. They are not from now on."""
        with self._lock:
            tokens = {str(each.data.get("token")) for each in handles} & self._tokens
            self._tokens -= tokens
            is_recent = time.monotonic() - self._since < _FRESH_S
        return frozenset(str(token) for token in tokens) if is_recent else frozenset()


class KafkaSink(TwoPhaseCommitSink[writer.PlainWrite]):
    """Rows to Kafka topics. Its ``repr`` and ``options`` show no secret.

    Driver methods share one connection, which is made when first needed and closed by ``close``; so an
    instance that is kept between epochs saves 10 to 20 ms an epoch. What executors keep between attempts
    (producers, a connection) belongs to the worker process, not to the instance.
    """

    name: ClassVar[str] = "kafka"
    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset(Guarantee), recovers=True, commits_at_once=64, gives_back=True
    )
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    letter_columns: ClassVar[tuple[str, ...]] = ("key", "value")

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._kafka = KafkaOptions.parse(options)
        self._admin = Admin(self._kafka)
        self._fresh = _Fresh()

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        """Refuse wrong columns, topics, permissions and time-outs, and pin what the cluster speaks."""
        return target.check(self._admin, self._kafka, context)

    def identity(self) -> Mapping[str, str | int]:
        """Name the cluster, the topic, the prefix of ids and the marker's topic.

        The topic also by its id, asked for each epoch: one that was deleted and made anew is another one, what
        was prepared for the former is gone with it, and what is prepared from then on is the new one's.
        """
        cluster_id = self._admin.patiently(_CONNECT_S, "cluster id", lambda: self._admin.cluster_id)
        topic = self._kafka.topic
        return {
            "cluster": cluster_id,
            "topic": topic or "",
            "topic_id": target.topic_id(self._admin, topic) if topic is not None else "",
            "prefix": self._kafka.prefix,
            "marker_topic": self._kafka.marker_topic or "",
        }

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        """Say whether another one writes to this topic. Where rows carry their topics, nobody knows them yet."""
        own = self.identity()
        return all(own[name] == identity[name] for name in ("cluster", "topic"))

    def expect(self, context: WriteContext) -> None:
        """Begin to look up the marker that ours will replace: its answer is there before the rows."""
        writer.expect(context, self._kafka)

    def begin_transaction(self, context: WriteContext) -> writer.PlainWrite:
        """Take an initialised producer and begin, once the marker that ours will replace is known."""
        return writer.begin(context, self._kafka)

    def write(self, transaction: writer.PlainWrite, batch: pa.RecordBatch) -> Sequence[Refused]:
        """Produce the rows of a batch; give back what Kafka will never take."""
        return transaction.write(batch)

    def pre_commit(self, transaction: writer.PlainWrite) -> Handle | None:
        """Flush and put the marker in; at least once, flush only."""
        return transaction.pre_commit()

    def discard(self, transaction: writer.PlainWrite) -> None:
        """Destroy the attempt's producer; the driver sweeps its transaction."""
        transaction.discard()

    def expiring(self, handles: Sequence[Handle], facts: Mapping[str, str | int], age_s: float) -> str:
        """Ask the brokers for transactions that may have come near their time-out."""
        found = ageing.expiring(self._admin, handles, facts, age_s)
        self._fresh.note(handles)
        return found

    def commit(self, handle: Handle) -> Outcome:
        """Send EndTxn, and ask the marker where its answer does not say enough.

        Unless it is the first try and right after the decision, the partitions are asked before.
        """
        return committer.commit(self._admin, handle, is_first=bool(self._fresh.take([handle])))

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        """Send EndTxn of all, and then wait: half the time of one by one."""
        return committer.commit_many(self._admin, handles, first=self._fresh.take(handles))

    def abort(self, handle: Handle) -> None:
        """Abort and fence by InitProducerId."""
        committer.abort(self._admin, handle)

    def look_up(self, handle: Handle) -> Standing:
        """Ask the coordinator, the partitions' leaders and the marker."""
        return looking_up.look_up(self._admin, handle)

    @classmethod
    def parts(cls, handle: Handle, rows: int) -> Iterable[Part]:
        """Name the topics' partitions; how many rows each has is known where it is one alone."""
        return parts_of(handle, rows)

    def held(self, handles: Sequence[Handle]) -> Held | None:
        """Read the partitions from where the epoch's rows begin, and count them."""
        return auditing.held(self._admin, handles)

    def read_back(self, context: QueryContext, handles: Sequence[Handle]) -> Held | None:
        """Read the records, too, and add them up; None without handles, as others write to a topic, too."""
        if not handles:
            return None
        values = Values(context.columns, names_topic=self._kafka.topic is not None)
        return auditing.held(self._admin, handles, values)

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:  # noqa: ARG002  brokers' users
        """Ask the broker what it lets this user do with topic, markers and transactions."""
        if context.guarantee is not Guarantee.AT_LEAST_ONCE:
            target.require_rights(self._admin, self._kafka, context)
        return ""

    def hanging(self) -> Iterable[Hanging]:
        """Ask the coordinators for our ids, and the partitions' leaders for what no coordinator knows."""
        return hanging.hanging(self._admin, self._kafka)

    def newest_epoch(self, context: QueryContext) -> int | None:
        """Ask the brokers for the markers of this query's sink."""
        newest = marker.newest_epoch(self._admin, target.id_prefix(self._kafka, context.query, context.sink))
        return None if newest < 0 else newest

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        """List the open transactions of this query's sink, on all brokers.

        Their names tell no epoch, so the newest that the sink has committed is given: a checkpoint that is older
        than that must not sweep.
        """
        prefix = target.id_prefix(self._kafka, context.query, context.sink)
        found = committer.recover(self._admin, prefix)
        if not found:
            return found
        # The groups of markers are named as the transactions are.
        newest = marker.newest_epoch(self._admin, prefix)
        return [replace(each, committed=newest) for each in found]

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        """Compare the markers with the newest epoch that is committed by the log: a cluster may go back."""
        past.look_back(self._admin, self._kafka, context, epoch, handles)

    def close(self) -> None:
        """Close the driver's connections."""
        self._admin.close()
