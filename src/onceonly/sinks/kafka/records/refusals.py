"""Which rows Kafka will never take, found before they are sent: a transaction with a refused row cannot be committed.

Executor, and only where there is a place for dead letters: else the producers stop at the first of them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.ports import Refused
from onceonly.rows.json_rows import values
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.delivery import Topics
from onceonly.sinks.kafka.records import columns, compression, record_batches
from onceonly.sinks.kafka.records.fields import RECORD_BYTES_MAX
from onceonly.sinks.kafka.wire.answers import UNKNOWN_TOPIC, NotAnsweredError, PutOffError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import pyarrow as pa

    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.records.fields import Fields, Numbers
    from onceonly.sinks.kafka.records.record_batches import Codec
    from onceonly.sinks.kafka.wire.admin import Admin

_AGE_S = 60.0
_BOTH = "raise both limits, or make the row smaller"


class Sieve:
    """Parts rows that Kafka takes from those that it refuses, for one attempt.

    ``record_bytes_max`` is the producer's limit.
    """

    def __init__(self, topic: str | None, record_bytes_max: int, codec: Codec, about: Told) -> None:
        self._topic = topic
        self._record_bytes_max = record_bytes_max
        self._codec = codec
        self._about = about

    def part(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Refused]]:
        """Return the rows that may be sent, and those that are refused."""
        import numpy as np
        import pyarrow as pa

        refused: dict[int, Refused] = {}
        for found in (*self._of_topics(batch), *_of_headers(batch)):
            refused.setdefault(found.row, found)
        # What follows reads topics and headers, so it reads no row without them.
        places = np.setdiff1d(np.arange(batch.num_rows), np.fromiter(refused, np.int64, len(refused)))
        some = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
        if len(places):
            fields = columns.fields([some], 0)
            for topic, rows in columns.by_topic(some, self._topic, 0, len(places)):
                for found in (
                    *self._of_partitions(some, topic, rows),
                    *self._of_keys(fields, topic, rows),
                    *self._of_sizes(fields, topic, rows),
                ):
                    row = int(places[found.row])
                    refused.setdefault(row, replace(found, row=row))
        if not refused:
            return batch, []
        places = np.setdiff1d(places, np.fromiter(refused, np.int64, len(refused)))
        return batch.take(pa.array(places)), [refused[row] for row in sorted(refused)]

    def _of_topics(self, batch: pa.RecordBatch) -> Iterator[Refused]:
        if self._topic is not None:
            return
        column = batch.column(batch.schema.get_field_index("topic"))
        wrong = {name for name in values(column.unique()) if name is not None and not columns.is_topic(name)}
        if not wrong and not column.null_count:
            return
        for row, name in enumerate(values(column)):
            if name is None:
                yield Refused(
                    row=row,
                    code="NO_TOPIC",
                    why="its topic is null, and there is no option 'topic'",
                    next_step="fill the column 'topic', or give the option 'topic'",
                )
            elif name in wrong:
                yield Refused(
                    row=row,
                    code="BAD_TOPIC",
                    why=f"{name[:40]!r} is no name of a topic",
                    next_step="Kafka's topics have 1 to 249 letters, digits, dots, dashes and underscores",
                )

    def _of_partitions(self, batch: pa.RecordBatch, topic: str, rows: Numbers) -> Iterator[Refused]:
        named = columns.partitions(batch)
        if named is None:
            return
        count = self._about.count(topic)
        if count is not None and int(named[rows].max()) >= count:
            count = self._about.count(topic, anew=True)  # partitions may have been added
        wrong = named[rows] < columns.BY_KEY
        if count is not None:
            wrong |= named[rows] >= count
        for row in rows[wrong]:
            has = "" if count is None else f": it has {count}"
            yield Refused(
                row=int(row),
                code="NO_PARTITION",
                why=f"topic {topic} has no partition {batch.column('partition')[int(row)].as_py()}{has}",
                next_step="correct the column 'partition', or leave it null, so that the key chooses",
            )

    def _of_keys(self, fields: Fields, topic: str, rows: Numbers) -> Iterator[Refused]:
        without = rows if fields.keys is None else rows[fields.keys.lengths[rows] < 0]
        # What was asked a while ago is no proof.
        if not len(without) or not (
            self._about.is_compacted(topic) and self._about.is_compacted(topic, anew=True)
        ):
            return
        for row in without:
            yield Refused(
                row=int(row),
                code="NO_KEY",
                why=f"it has no key, and topic {topic} is compacted (cleanup.policy), which takes no such row",
                next_step="fill the column 'key'",
            )

    def _of_sizes(self, fields: Fields, topic: str, rows: Numbers) -> Iterator[Refused]:
        limit = self._about.limit(topic)
        sure = self._record_bytes_max
        if limit is not None:
            sure = min(sure, limit - RECORD_BYTES_MAX - record_batches.BATCH_BYTES)
            if self._codec.compress is not None:
                # What cannot be made smaller grows, by a codec's frames; by no codec to the double.
                sure = min(sure, limit // 2 - record_batches.BATCH_BYTES)
        is_anew = False
        for row in rows[fields.sizes[rows] > sure]:
            size = int(fields.sizes[row])
            if size > self._record_bytes_max:
                yield _too_large(row, size, f"kafka.max.request.size, {self._record_bytes_max}")
                continue
            if limit is None or (alone := _alone(fields, int(row), self._codec)) <= limit:
                continue
            if not is_anew:  # it may have been raised
                limit, is_anew = self._about.limit(topic, anew=True), True
            if limit is not None and alone > limit:
                yield _too_large(row, alone, f"max.message.bytes of topic {topic}, {limit}")


def sieve(options: KafkaOptions, about: Told) -> Sieve:
    """Make that of a sink."""
    return Sieve(options.topic, options.record_bytes_max, compression.codec_of(options.client), about)


class Told:
    """What the cluster says of topics, asked when first needed, again after a minute, and ``anew``. Executor.

    A row is refused by what was asked for anew only: the topic may take it by now.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._limits: dict[str, tuple[float, int | None]] = {}
        self._compacted: dict[str, tuple[float, int | None]] = {}
        self._topics = Topics(admin, _AGE_S)

    def limit(self, topic: str, *, anew: bool = False) -> int | None:
        """Return ``max.message.bytes``; None where this user may not see it, or nobody has answered yet.

        Where nobody answers now, it is the one before, and the next one who needs it asks again.
        """
        return self._told(self._limits, limit_of, topic, anew=anew)

    def is_compacted(self, topic: str, *, anew: bool = False) -> bool:
        """Say whether a topic takes rows with keys only; not where this user may not see it. Else as ``limit``."""
        return bool(self._told(self._compacted, takes_keys_only, topic, anew=anew))

    def _told(
        self,
        known: dict[str, tuple[float, int | None]],
        ask: Callable[[Admin, str], int | None],
        topic: str,
        *,
        anew: bool,
    ) -> int | None:
        asked, found = known.get(topic, (-_AGE_S, None))
        now = time.monotonic()
        if anew or now - asked >= _AGE_S:
            try:
                found = ask(self._admin, topic)
            except NotAnsweredError:
                return found
            known[topic] = now, found
        return found

    def lowered(self) -> list[str]:
        """Ask anew for each limit that is known; name the topics whose limit has become smaller."""
        known = [(topic, limit) for topic, (_, limit) in self._limits.items() if limit is not None]
        return [topic for topic, limit in known if (self.limit(topic, anew=True) or limit) < limit]

    def count(self, topic: str, *, anew: bool = False) -> int | None:
        """Return how many partitions there are; None where that cannot be told now."""
        if anew:
            self._topics.forget(topic)
        try:
            return len(self._topics.leaders(topic))
        except (NotAnsweredError, import_confluent().KafkaException):
            return None  # the producer asks, too, and says what is wrong


def _too_large(row: int | np.int64, size: int, limit: str) -> Refused:
    return Refused(row=int(row), code="TOO_LARGE", why=f"{size} bytes are more than {limit}", next_step=_BOTH)


def _of_headers(batch: pa.RecordBatch) -> Iterator[Refused]:
    index = batch.schema.get_field_index("headers")
    if index < 0 or batch.column(index).null_count == batch.num_rows:
        return
    for row, entries in enumerate(values(batch.column(index))):
        if any(entry is None or entry["key"] is None for entry in entries or ()):
            yield Refused(
                row=row,
                code="BAD_HEADER",
                why="it has a header that is null or has no key",
                next_step="fill or remove the header; a null value is allowed, a null key is not",
            )


def _alone(fields: Fields, number: int, codec: Codec) -> int:
    """Return the bytes of a batch with this row only."""
    import numpy as np

    found, _ = record_batches.records(fields).make(np.array([number]), np.array([0]))
    if codec.compress is None:
        return record_batches.BATCH_BYTES + len(found)
    return record_batches.BATCH_BYTES + len(codec.compress(bytes(found)))


def limit_of(admin: Admin, topic: str) -> int | None:
    """Return ``max.message.bytes`` of a topic; None where this user may not see it. Raises ``NotAnsweredError``."""
    told = topic_setting(admin, topic, "max.message.bytes")
    return int(told) if told else None


def takes_keys_only(admin: Admin, topic: str) -> bool | None:
    """Say whether a topic is compacted; None where this user may not see it. Raises ``NotAnsweredError``."""
    told = topic_setting(admin, topic, "cleanup.policy")
    return None if told is None else "compact" in told.split(",")


def topic_setting(admin: Admin, topic: str, name: str) -> str | None:
    """Return a setting of a topic; None where this user may not see it. Raises ``NotAnsweredError``."""
    from onceonly.sinks.kafka.wire.requests import TOPIC, configs

    answer = admin.send(configs(TOPIC, topic, [name]))
    for result in answer.results:
        if result.error_code == UNKNOWN_TOPIC:  # a broker may be late to know it
            raise PutOffError(result.error_code, f"topic {topic}")
    return next((entry.value for result in answer.results for entry in result.configs or ()), None)
