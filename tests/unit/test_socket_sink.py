"""The socket sink against readers that read, and readers that do not."""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.line_reader import LineReader

from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError, WriteFailedError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.socket import SocketSink

if TYPE_CHECKING:
    import socketserver
    from collections.abc import Callable, Mapping

CONTEXT = WriteContext(
    query="q", sink="socket", run="r", epoch=3, plan="p", slot=1, attempt="a", guarantee=Guarantee.AT_LEAST_ONCE,
)  # fmt: skip


def write(options: Mapping[str, str], *values: str | bytes) -> None:
    sink = SocketSink(options)
    attempt = sink.begin_transaction(CONTEXT)
    sink.write(attempt, pa.record_batch({"value": list(values)}))
    sink.pre_commit(attempt)


def test_each_row_is_a_line_and_all_are_read_before_the_vote() -> None:
    with LineReader() as reader:
        write(reader.options, *(f"row {number}" for number in range(1000)), "")
        assert reader.lines == [*(b"row %d" % number for number in range(1000)), b""]


def test_more_than_all_buffers_hold_is_read_to_its_end() -> None:
    with LineReader() as reader:
        write(reader.options, *["x" * 1_000_000] * 30)
        assert list(map(len, reader.lines)) == [1_000_000] * 30


def test_an_attempt_that_is_dropped_leaves_no_thread_and_no_vote() -> None:
    with LineReader() as reader:
        sink = SocketSink(reader.options)
        attempt = sink.begin_transaction(CONTEXT)
        sink.discard(attempt)
        sink.discard(attempt)
        with pytest.raises(WriteFailedError):
            sink.write(attempt, pa.record_batch({"value": ["a"]}))


# Closed as by a process that ends: socketserver itself would say before that it is done.
def _resets(handler: socketserver.StreamRequestHandler) -> None:
    handler.request.recv(1)  # before that, whoever connects might not get so far
    handler.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.request.close()


def _reads_one_byte(handler: socketserver.StreamRequestHandler) -> None:
    handler.request.recv(1)  # the rest stays in the system's memory
    handler.request.close()


@pytest.mark.parametrize("serve", [_resets, _reads_one_byte])
def test_a_reader_that_closes_before_the_end_fails_the_attempt(
    serve: Callable[[socketserver.StreamRequestHandler], None],
) -> None:
    with LineReader(serve) as reader, pytest.raises(WriteFailedError, match="the reader at"):
        write(reader.options, "a", "b")


def test_a_reader_that_has_closed_before_the_last_line_fails_the_attempt() -> None:
    # All that it was sent it has read, so its system sends no reset before the next line.
    closed = threading.Event()

    def reads_what_is_there(handler: socketserver.StreamRequestHandler) -> None:
        handler.rfile.readline()
        handler.request.shutdown(socket.SHUT_RDWR)
        handler.request.close()
        closed.set()

    with LineReader(reads_what_is_there) as reader:
        sink = SocketSink(reader.options)
        attempt = sink.begin_transaction(CONTEXT)
        sink.write(attempt, pa.record_batch({"value": ["a"]}))
        assert closed.wait(20)

        def goes_on() -> None:
            sink.write(attempt, pa.record_batch({"value": ["b"]}))
            sink.pre_commit(attempt)

        with pytest.raises(WriteFailedError, match="the reader at"):
            goes_on()
        sink.discard(attempt)


def test_a_reader_that_has_to_answer_and_fails_before_that_fails_the_attempt() -> None:
    def fails(handler: socketserver.StreamRequestHandler) -> None:
        handler.request.recv(1)  # and socketserver says that it is done

    # Gone before the lines were sent to their end, or after.
    told = "without an answer|did not read all lines"
    with LineReader(fails) as reader, pytest.raises(WriteFailedError, match=told):
        write({**reader.options, "acknowledge": "answer"}, "a", "b")


def test_a_reader_that_answers_has_read_all() -> None:
    def answers(handler: socketserver.StreamRequestHandler) -> None:
        reader.read(handler)
        handler.wfile.write(b"read\n")

    with LineReader(answers) as reader:
        write({**reader.options, "acknowledge": "answer"}, "a", "b")
        assert reader.lines == [b"a", b"b"]


def test_a_reader_that_never_closes_fails_the_attempt_in_its_time() -> None:
    release = threading.Event()

    def reads_and_waits(handler: socketserver.StreamRequestHandler) -> None:
        handler.rfile.read()
        release.wait(60)

    with LineReader(reads_and_waits) as reader:
        with pytest.raises(WriteFailedError, match=r"has not closed within 0\.2 s"):
            write({**reader.options, "timeout": "200 ms"}, "a")
        release.set()


def test_a_reader_that_stands_still_fails_the_attempt_in_its_time() -> None:
    release = threading.Event()
    with LineReader(lambda _: release.wait(60)) as reader:
        with pytest.raises(WriteFailedError, match="takes no more lines"):
            write({**reader.options, "timeout": "200 ms"}, *["x" * 1_000_000] * 50)
        release.set()


def test_where_nobody_listens_the_query_does_not_begin() -> None:
    reader = LineReader()
    reader.close()
    sink = SocketSink(reader.options)
    with pytest.raises(UnavailableError, match="nobody accepts a connection"):
        sink.check(QueryContext(query="q", sink="socket", guarantee=Guarantee.AT_LEAST_ONCE))


def test_a_row_with_the_end_of_a_line_is_refused() -> None:
    with LineReader() as reader:
        with pytest.raises(RecordRefusedError, match="end of a line inside"):
            write(reader.options, "a\nb")
        write({**reader.options, "envelope": "json"}, "a\nb")
        assert len(reader.lines) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"port": "9"}, "host of the sink socket is missing"),
        ({"host": "h"}, "port of the sink socket is missing"),
        ({"host": "h", "port": "0"}, "1 to 65535"),
        ({"host": "h", "port": "65536"}, "1 to 65535"),
        ({"host": "h", "port": "http"}, "1 to 65535"),
        ({"host": "h", "port": "9", "timeout": "soon"}, "timeout"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        SocketSink(options)
