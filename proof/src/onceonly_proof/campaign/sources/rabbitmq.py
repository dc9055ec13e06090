"""RabbitMQ: queues, classic and quorum, through a journal, and streams by offset."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

from onceonly.errors import UnavailableError
from onceonly_proof.auditor import Input
from onceonly_proof.auditor.log import STREAM
from onceonly_proof.campaign.sources import journal
from onceonly_proof.campaign.sources.port import Flow, Served, Source, require_whole
from onceonly_proof.campaign.workload import number_of
from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from onceonly_proof.auditor.log import EndsOf
    from onceonly_proof.campaign.sources.port import Place
    from onceonly_proof.campaign.workload import Workload

_AGAIN_S = 0.2
_WRITTEN_S = 60.0


class _Published(Flow):
    """Messages that a thread publishes through deaths of the server.

    Those that it has not confirmed are published ``again``, or given up: the server tells what it has of them.
    """

    again = True

    def __init__(self, server: EmbeddedRabbit, name: str, workload: Workload) -> None:
        super().__init__(workload)
        self._server, self._name = server, name
        self._connection: Any = None
        self._channel: Any = None
        self._waiting: list[tuple[str, bytes]] = []

    def _produce(self, partition: int, key: str, value: bytes) -> int:  # noqa: ARG002  there is one
        self._waiting.append((key, value))
        return 1

    def _flush(self) -> None:
        """Publish what waits; what the server has not confirmed waits for the next time."""
        import pika

        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = pika.BlockingConnection(pika.URLParameters(self._server.uri))
                self._channel = self._connection.channel()
                self._connected()
            self._connection.process_data_events(time_limit=0)  # so that a death is seen though nothing waits
            while self._waiting:
                key, value = self._waiting[0]
                self._channel.basic_publish("", self._name, value, self._properties(key, value))
                self._confirmed(key, value)
                del self._waiting[0]
        except (pika.exceptions.AMQPError, OSError):
            self._connection = None
            if not self.again:
                self._waiting.clear()
            self._ended.wait(_AGAIN_S)

    def _finish(self) -> int:
        deadline = time.monotonic() + _WRITTEN_S
        while self._waiting:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"the server did not take {len(self._waiting)} messages of the workload",
                    next_step="read the server's log in the kept folder",
                )
            time.sleep(_AGAIN_S)
            self._flush()
        if self._connection is not None and self._connection.is_open:
            self._connection.close()  # what was sent before is there then
        return self.distinct

    def _properties(self, key: str, value: bytes) -> Any:  # noqa: ANN401  pika's
        raise NotImplementedError  # each kind has its own

    def _connected(self) -> None:
        """Begin on a new channel."""
        self._channel.confirm_delivery()

    def _confirmed(self, key: str, value: bytes) -> None:
        """Note that the server has it."""


class Messages(_Published):
    """A queue. What may be there twice has the same id, so each row goes in once, unless ids are not ``asked`` for."""

    is_ordered = False

    def __init__(
        self, server: EmbeddedRabbit, name: str, workload: Workload, place: Place, *, asked: bool
    ) -> None:
        super().__init__(server, name, workload)
        self._asked = asked
        draw = random.Random(f"{workload.seed}/queue")
        server.declare(name, draw.choice(("classic", "quorum")))
        self._taken: list[Input] = []
        given = {"uri": server.uri, "queue": name, **({} if asked else {"id": "none"})}
        self._reading = journal.Reading(draw, "rabbitmq", given, place, rows=workload.per_epoch, tasks=2)

    def options(self) -> dict[str, str]:
        return self._reading.options

    def start(self) -> None:
        self._reading.start()
        super().start()

    def is_read(self, offsets: str) -> bool | None:
        return False if self._reading.has_unread(offsets) else None

    def inputs(self) -> list[Input]:
        return self._reading.located(require_whole(self._taken))

    @property
    def came_again(self) -> Mapping[bytes, Sequence[int]]:
        """What came again and was not known by its id; of what has one, nothing may."""
        return {} if self._asked else self._reading.again()

    @property
    def ends_of(self) -> EndsOf:
        """Its offsets name segments, and these tell which messages they hold."""
        return self._reading.ends_of

    def close(self) -> None:
        self._reading.close()

    def _properties(self, key: str, value: bytes) -> Any:  # noqa: ANN401, ARG002  pika's
        import pika

        return pika.BasicProperties(message_id=_id(value), delivery_mode=2)

    def _confirmed(self, key: str, value: bytes) -> None:  # noqa: ARG002  the id is the key
        number = len(self._taken)
        name = _id(value).encode() if self._asked else None
        self._taken.append(Input(number, f"{self._name}/0", number, name, value))


class Offsets(_Published):
    """A stream. Nobody waits for its confirmations: it tells what went in."""

    again = False

    def __init__(self, server: EmbeddedRabbit, name: str, workload: Workload) -> None:
        super().__init__(server, name, workload)
        server.declare(name, "stream")
        self._tasks = min(workload.partitions, 2)
        self.is_ordered = self._tasks == 1
        self._found: list[Input] | None = None

    @property
    def distinct(self) -> int:
        return super().distinct if self._found is None else len({each.value for each in self._found})

    def options(self) -> dict[str, str]:
        return {
            "uri": self._server.uri,
            "stream": self._name,
            "maxRowsPerTrigger": str(self._workload.per_epoch),
            "tasks": str(self._tasks),
        }

    def is_read(self, offsets: str) -> bool:
        try:
            return bool(json.loads(offsets.splitlines()[-1])["offset"] >= self.inputs()[-1].position)
        except (IndexError, ValueError, KeyError, TypeError):
            return False  # not there, or being written

    def inputs(self) -> list[Input]:
        if self._found is None:
            self._found = require_whole([
                Input(number, STREAM, offset, (message_id or "").encode(), body)
                for number, (offset, message_id, body) in enumerate(self._server.content(self._name))
            ])  # fmt: skip
        return self._found

    def numbers(self) -> list[int]:
        return [number_of(each.value) for each in self.inputs()]

    def _properties(self, key: str, value: bytes) -> Any:  # noqa: ANN401, ARG002  pika's
        import pika

        return pika.BasicProperties(message_id=key)

    def _connected(self) -> None:
        """See what a server that died has lost, or else the feeder waits for ever for these rows to be shown."""
        there = self._channel.queue_declare(self._name, passive=True).method.message_count
        written = self.distinct + self._repeated - len(self._waiting)
        self.given_up = max(0, min(written - there, self.distinct - self.ahead_of))

    def _finish(self) -> int:
        super()._finish()
        return len(self.inputs())


class _Rabbit(Served[EmbeddedRabbit]):
    """One server."""

    key = "id"

    def __init__(self, folder: Path) -> None:
        super().__init__(EmbeddedRabbit(folder))


class Queue(_Rabbit):
    """Queues, by message ids."""

    def flow(self, name: str, workload: Workload, place: Place) -> Messages:
        self._server.start()
        return Messages(self._server, name, workload, place, asked=True)


class Nameless(_Rabbit):
    """Queues, whose messages nobody asks for ids: at least once up to the journal, exactly once from there."""

    key = Source.key
    comes_again = True

    def flow(self, name: str, workload: Workload, place: Place) -> Messages:
        self._server.start()
        return Messages(self._server, name, workload, place, asked=False)


class Stream(_Rabbit):
    """Streams, by offset."""

    def flow(self, name: str, workload: Workload, place: Place) -> Offsets:  # noqa: ARG002  it has no journal
        self._server.start()
        return Offsets(self._server, name, workload)


def _id(value: bytes) -> str:
    return str(json.loads(value)["id"])
