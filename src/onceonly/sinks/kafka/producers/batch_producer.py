"""A producer that is handed whole Arrow batches: librdkafka copies each row out of Arrow's own memory. Executor.

``rd_kafka_produce_batch`` takes an array of messages, and numpy makes it from the batch's offsets. No Python object
stands for a row, but where rows have headers, which that function does not take.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.errors import RecordRefusedError
from onceonly.sinks.kafka.producers import librdkafka
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.failures import Failure, Failures
from onceonly.sinks.kafka.producers.row_producer import POLL_EVERY, POLL_S, refused
from onceonly.sinks.kafka.records import columns
from onceonly.sinks.kafka.records.messages import messages

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    import pyarrow as pa

    from onceonly.sinks.kafka.producers.librdkafka import Library
    from onceonly.sinks.kafka.records.messages import Messages
    from onceonly.sinks.kafka.wire.tokens import Tokens

# Rows that one call hands over; between two, failures are looked at.
_ROWS_A_CALL = 10_000
_FLUSH_STEP_S = 0.001
_TEXT_BYTES = 512


class _Reports:
    """Takes delivery reports. Beside the producer, which it must not keep alive."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.failures = Failures()

    def take(self, client: int, message: Any, _opaque: int | None) -> None:  # noqa: ANN401  a ctypes pointer
        """Note a failed row. Called by poll and flush, in their thread; successes are not reported."""
        row = message.contents
        if row.err:
            mark = row._private  # noqa: SLF001  its name in rdkafka.h
            self.failures.note(mark, Failure(self.error(client, row.err), row.len + row.key_len))

    def hear(self, _client: int, _code: int, reason: bytes, _opaque: int | None) -> None:
        """Note that a broker is not reached, or the like. Called by poll and flush, in their thread."""
        self.failures.hear(reason.decode(errors="replace"))

    def error(self, client: int, code: int) -> Any:  # noqa: ANN401  confluent-kafka has no types here
        """Return confluent-kafka's error for a code, with the cause where the client has failed for good."""
        kafka_error = import_confluent().KafkaError
        if code == librdkafka.FATAL or code in librdkafka.PURGED:
            text = ctypes.create_string_buffer(_TEXT_BYTES)
            cause = self._library.fatal_error(client, text, _TEXT_BYTES)
            if cause or code == librdkafka.FATAL:
                return kafka_error(cause or code, text.value.decode(errors="replace"), fatal=True)
        return kafka_error(code, self._library.err2str(code).decode())


def _give_token(
    library: Library, login: Tokens, client: int, _config: bytes | None = None, _opaque: int | None = None
) -> None:
    """Hand a token to a client, or say that there is none. Called by librdkafka, too, in a thread of its own."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    try:
        token = login.get()
    except Exception as error:  # noqa: BLE001  librdkafka tells it, and asks again
        library.oauthbearer_set_token_failure(client, str(error).encode()[:_TEXT_BYTES])
        return
    pairs = [part.encode() for pair in token.extensions.items() for part in pair]
    extensions = (ctypes.c_char_p * len(pairs))(*pairs)
    code = library.oauthbearer_set_token(
        client,
        token.text.encode(),
        int(token.expires_s * 1000),
        b"",
        extensions,
        len(pairs),
        text,
        _TEXT_BYTES,
    )
    if code != librdkafka.NO_ERROR:
        library.oauthbearer_set_token_failure(client, text.value)


class BatchProducer:
    """One client of librdkafka. ``close`` is called when no other thread calls anything else."""

    def __init__(self, library: Library, config: Mapping[str, str], login: Tokens | None = None) -> None:
        self._library = library
        self._reports = _Reports(library)
        self.failures = self._reports.failures
        self._lock = threading.Lock()
        self._topics: dict[str, int] = {}
        # librdkafka keeps its address only.
        self._callback = librdkafka.ON_DELIVERY(self._reports.take)
        self._on_error = librdkafka.ON_ERROR(self._reports.hear)
        self._pid = os.getpid()
        self._handle: int | None = None
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        conf = library.conf_new()
        for name, value in {**config, "delivery.report.only.error": "true"}.items():
            if library.conf_set(conf, name.encode(), value.encode(), text, _TEXT_BYTES) != librdkafka.CONF_OK:
                library.conf_destroy(conf)
                raise refused(text.value.decode(errors="replace"))
        library.conf_set_dr_msg_cb(conf, self._callback)
        library.conf_set_error_cb(conf, self._on_error)
        if login is not None:
            self._on_token = librdkafka.ON_TOKEN(functools.partial(_give_token, library, login))
            library.conf_set_oauthbearer_token_refresh_cb(conf, self._on_token)
            library.conf_enable_sasl_queue(conf, 1)
        self._handle = library.new(librdkafka.PRODUCER, conf, text, _TEXT_BYTES)
        if not self._handle:
            library.conf_destroy(conf)
            raise refused(text.value.decode(errors="replace"))
        if login is not None:
            # In a thread of its own, also while nobody polls.
            error = library.sasl_background_callbacks_enable(self._handle)
            if error:
                library.error_destroy(error)
            _give_token(library, login, self._handle)

    def __del__(self) -> None:
        self.close()

    @property
    def _client(self) -> int:
        # C would take a missing handle for an address.
        if self._handle is None:
            raise ValueError("this producer is closed")
        return self._handle

    def connect(self, topic: str | None, timeout_s: float) -> None:
        """Ask for the topic's metadata, best effort."""
        answer = ctypes.c_void_p()
        handle = None if topic is None else self._topic(topic)
        code = self._library.metadata(
            self._client, int(topic is None), handle, ctypes.byref(answer), _ms(timeout_s)
        )
        if code == librdkafka.NO_ERROR:
            self._library.metadata_destroy(answer)

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id. Raises ``KafkaException``."""
        self._raise(self._library.init_transactions(self._client, _ms(timeout_s)))

    def begin_transaction(self, group: str) -> None:
        """Begin, locally; ``group`` is whose offset will be in it. Raises ``KafkaException``."""
        self._group = group
        self._raise(self._library.begin_transaction(self._client))

    def write(
        self, batch: pa.RecordBatch, topic: str | None, first: int, *, mark: int, wait_s: float
    ) -> None:
        """Buffer a batch, in its order; ends early with a ``failure``.

        Raises ``BufferError`` if the buffer stays full for ``wait_s``, ``RecordRefusedError`` for a malformed row.
        """
        if columns.one_by_one(batch):
            self._write_rows(batch, topic, first, mark, wait_s)
            return
        for some in messages(batch, topic, first, mark):
            self._produce(some, mark, wait_s)
            if self.failures.first(mark) is not None:
                return

    def flush(self, timeout_s: float) -> int:
        """Wait until every row is acknowledged or failed; gives how many are neither."""
        # Nothing wakes librdkafka's wait where only failures are reported: it looks every 10 ms. So it is asked for
        # short waits, the first of 1 ms, and each a tenth longer: late by a tenth of what the wait took at most.
        end, left_s, step_s = time.monotonic() + timeout_s, timeout_s, _FLUSH_STEP_S
        while self._library.flush(self._client, _ms(min(step_s, left_s))) != librdkafka.NO_ERROR:
            left_s = end - time.monotonic()
            if left_s <= 0:
                waiting: int = self._library.outq_len(self._client)
                return waiting
            step_s *= 1.1
        return 0

    def begin_offset(self, topic: str, offset: int, metadata: str, timeout_s: float) -> Future[None]:
        """Begin to do what ``send_offset`` does, beside a flush."""
        return background.begin("onceonly-marker", self.send_offset, topic, offset, metadata, timeout_s)

    def send_offset(self, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """Put an offset of partition 0 into the transaction. Raises ``KafkaException``."""
        library, text = self._library, metadata.encode()
        offsets = library.topic_partition_list_new(1)
        member = library.consumer_group_metadata_new(self._group.encode())
        try:
            place = library.topic_partition_list_add(offsets, topic.encode(), 0).contents
            place.offset = offset
            # The list frees it.
            place.metadata = library.mem_malloc(None, len(text))
            place.metadata_size = len(text)
            ctypes.memmove(place.metadata, text, len(text))
            self._raise(library.send_offsets_to_transaction(self._client, offsets, member, _ms(timeout_s)))
        finally:
            library.consumer_group_metadata_destroy(member)
            library.topic_partition_list_destroy(offsets)

    def written(self) -> dict[tuple[str, int], int]:
        """Name no partitions: librdkafka chooses them, and the coordinator is asked for them where they are needed."""
        return {}

    def topic_ids(self) -> dict[str, str]:
        """Return none, as above."""
        return {}

    def purge(self) -> None:
        """Drop what is still buffered."""
        self._library.purge(self._client, librdkafka.PURGE_ALL)
        self._library.poll(self._client, 0)

    def close(self) -> None:
        """Destroy the client; an open transaction stays open. Idempotent."""
        client, self._handle = self._handle, None
        # A forked child has the handle, and none of the threads that its end would wait for.
        if client is None or self._pid != os.getpid():
            return
        for handle in self._topics.values():
            self._library.topic_destroy(handle)
        self._topics.clear()
        self._library.destroy(client)

    def _produce(self, rows: Messages, mark: int, wait_s: float) -> None:
        topic, library = self._topic(rows.topic), self._library
        place, deadline = 0, None
        while place < len(rows.array):
            some = rows.array[place : place + _ROWS_A_CALL]
            taken = library.produce_batch(topic, rows.partition, librdkafka.COPY, some.ctypes.data, len(some))
            library.poll(self._client, 0)
            if self.failures.first(mark) is not None:
                return
            if taken == len(some):
                place, deadline = place + taken, None
                continue
            refusals = some[(some["err"] != librdkafka.NO_ERROR) & (some["err"] != librdkafka.QUEUE_FULL)]
            if len(refusals):
                row = refusals[0]
                self._failed(mark, int(row["err"]), int(row["len"] + row["key_len"]))
                return
            # Full: none behind the first that was refused has been taken, so the order holds.
            deadline = self._wait(wait_s, None if taken else deadline)
            place += taken

    def _write_rows(
        self, batch: pa.RecordBatch, topic: str | None, first: int, mark: int, wait_s: float
    ) -> None:
        """Write rows that librdkafka takes one by one."""
        for number, row in enumerate(columns.rows(batch, topic, first), 1):
            deadline: float | None = None
            while (code := self._produce_row(row, mark)) == librdkafka.QUEUE_FULL:
                deadline = self._wait(wait_s, deadline)
                if self.failures.first(mark) is not None:
                    return
            if code:
                self._failed(mark, code, columns.size(row))
                return
            if not number % POLL_EVERY:
                self._library.poll(self._client, 0)
        self._library.poll(self._client, 0)

    def _produce_row(self, row: columns.Row, mark: int) -> int:
        name, value, key, partition, headers = row
        library, topic = self._library, self._topic(name)
        listed = library.headers_new(len(headers or ()))
        for header, content in headers or ():
            text = header.encode()
            library.header_add(listed, text, len(text), content, len(content or b""))
        fields = (librdkafka.Field * 7)()
        fields[0].vtype, fields[0].u.ptr = librdkafka.V_RKT, topic
        fields[1].vtype, fields[1].u.i32 = librdkafka.V_PARTITION, partition
        fields[2].vtype, fields[2].u.mem = librdkafka.V_VALUE, _memory(value)
        fields[3].vtype, fields[3].u.mem = librdkafka.V_KEY, _memory(key)
        fields[4].vtype, fields[4].u.i = librdkafka.V_FLAGS, librdkafka.COPY
        fields[5].vtype, fields[5].u.ptr = librdkafka.V_OPAQUE, mark
        fields[6].vtype, fields[6].u.headers = librdkafka.V_HEADERS, listed
        error = library.produceva(self._client, fields, len(fields))
        if not error:
            return librdkafka.NO_ERROR
        # Then the headers are still ours.
        library.headers_destroy(listed)
        # Of a client that has failed for good, the error is the cause, which looks like any other.
        code: int = librdkafka.FATAL if library.error_is_fatal(error) else library.error_code(error)
        library.error_destroy(error)
        return code

    def _failed(self, mark: int, code: int, row_bytes: int) -> None:
        self.failures.note(mark, Failure(self._reports.error(self._client, code), row_bytes))

    def _wait(self, wait_s: float, deadline: float | None) -> float:
        """Let the buffer drain for a moment. Gives the deadline; raises ``BufferError`` once it is over."""
        now = time.monotonic()
        deadline = deadline or now + wait_s
        if now >= deadline:
            raise BufferError(self.failures.trouble())
        self._library.poll(self._client, _ms(POLL_S))
        return deadline

    def _topic(self, name: str) -> int:
        with self._lock:
            if name not in self._topics:
                handle = self._library.topic_new(self._client, name.encode(), None)
                if not handle:
                    raise RecordRefusedError(
                        f"librdkafka does not take {name[:40]!r} for the name of a topic.",
                        next_step="give rows the name of a topic that is there",
                    )
                self._topics[name] = handle
            return self._topics[name]

    def _raise(self, error: int | None) -> None:
        if not error:
            return
        library, kafka = self._library, import_confluent()
        found = kafka.KafkaError(
            library.error_code(error),
            library.error_string(error).decode(errors="replace"),
            fatal=bool(library.error_is_fatal(error)),
            retriable=bool(library.error_is_retriable(error)),
            txn_requires_abort=bool(library.error_txn_requires_abort(error)),
        )
        library.error_destroy(error)
        raise kafka.KafkaException(found)


def _memory(content: bytes | None) -> librdkafka.Memory:
    """Return where bytes lie, for as long as they live; null stays null."""
    return librdkafka.Memory(ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p), len(content or b""))


def _ms(seconds: float) -> int:
    return max(int(seconds * 1000), 0)
