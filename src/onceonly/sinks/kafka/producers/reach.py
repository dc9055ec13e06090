"""How one process reaches the brokers that some options name, and what it keeps of them between attempts. Executor."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections import deque
from typing import TYPE_CHECKING

from onceonly.sinks.kafka.options import BY_DIRECT
from onceonly.sinks.kafka.producers import direct_producer
from onceonly.sinks.kafka.producers.delivery import Topics
from onceonly.sinks.kafka.producers.direct_producer import DirectProducer
from onceonly.sinks.kafka.producers.row_producer import RowProducer
from onceonly.sinks.kafka.records.refusals import Told
from onceonly.sinks.kafka.wire.tokens import tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.admin import Admin

Producer = DirectProducer | RowProducer

log = logging.getLogger("onceonly")

_METADATA_MS = 300_000


class Reach:
    """Connections, what is known of topics, and a producer without transactions. Thread-safe."""

    def __init__(self, options: KafkaOptions, admin: Admin, rows: Admin) -> None:
        self.options = options
        self.admin = admin
        self.rows = rows
        """For rows only: a broker carries out the requests of one connection in their order."""
        self.topics = Topics(rows, int(options.client.get("metadata.max.age.ms", _METADATA_MS)) / 1000)
        self.told = Told(admin)
        """By which rows are refused before they are sent."""
        self._kept: deque[Producer] = deque(maxlen=1)

    def is_direct(self) -> bool:
        """Say whether record batches are made here; where they should be and cannot, say once why."""
        lacks = direct_producer.lacks() if self.options.producer == BY_DIRECT else ""
        if lacks:
            _tell_once(
                f"Rows go through librdkafka, more slowly: batches of our own need {lacks} "
                "(pip install 'onceonly[kafka]' on the executors brings what they need)."
            )
        return self.options.producer == BY_DIRECT and not lacks

    def by_librdkafka(self, client: Mapping[str, str]) -> RowProducer:
        """Return a new client of librdkafka. Raises ``ConfigurationError``."""
        options = self.options
        login = tokens(options.token_provider, options.token_settings) if options.token_provider else None
        return RowProducer(client, login)

    def take_plain(self) -> Producer:
        """Return a producer without transactions, which nobody else has until ``keep_plain`` gives it back.

        Raises ``KafkaException`` where a broker refuses, ``ConfigurationError``, ``UnavailableError``.
        """
        with contextlib.suppress(IndexError):
            return self._kept.pop()
        if not self.is_direct():
            return self.by_librdkafka(self.options.client)
        made = DirectProducer(self, None, self.options.delivery_timeout_ms)
        made.take_id(self.options.max_block_ms / 1000)
        return made

    def keep_plain(self, producer: Producer) -> None:
        """Keep one whose rows are all acknowledged for the next attempt: brokers remember each for a day."""
        producer.again()
        self._kept.append(producer)

    def close(self) -> None:
        """Close the connections."""
        self._kept.clear()
        self.admin.close()
        self.rows.close()


@functools.cache
def _tell_once(message: str) -> None:
    log.warning(message)
