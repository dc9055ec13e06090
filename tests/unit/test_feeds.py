"""Sockets and HTTP: servers that drop, stall, repeat and send half lines; and what is refused, in one sentence each."""

from __future__ import annotations

import os
import socket
import ssl
import time
import traceback
from email.utils import formatdate
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import httpx
import pika
import pytest
from tests.unit.certificates import certificate
from tests.unit.journal_bench import held, opened, read_upto, rows
from tests.unit.scripted_server import EVENTS, GARBAGE, LINES, OK, RESET, STALL, WAIT, ScriptedServer

from onceonly.errors import ConfigurationError, JournalError, RecordRefusedError, UnavailableError
from onceonly.families.rabbitmq import Server
from onceonly.model import Guarantee
from onceonly.sources.asked import ask
from onceonly.sources.http import feed as http_feed
from onceonly.sources.http import rows as http_rows
from onceonly.sources.http.events import Events
from onceonly.sources.http.feed import retry_after
from onceonly.sources.journal import Journal, Limits, Writer, feeds
from onceonly.sources.journal.feeds import Batch, FeedBrokenError, Gather, table
from onceonly.sources.journal.receiver import Receiver
from onceonly.sources.journal.segments import SEGMENTS
from onceonly.sources.rabbitmq import RabbitFeed
from onceonly.sources.rabbitmq import feed as rabbit_feed
from onceonly.sources.socket import SocketFeed
from onceonly_proof.embedded.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 20.0


def line(number: int) -> bytes:
    return b'{"id": %d, "text": "x"}\n' % number


def event(number: int, *more: bytes) -> bytes:
    return b"".join((*more, b"id: %d\ndata: row %d\n\n" % (number, number)))


class Life:
    """A feed that is received into a journal; and what is in it."""

    def __init__(self, folder: Path, name: str, options: dict[str, str]) -> None:
        self.asked = ask(name, {"journal": str(folder / "journal"), "linger": "0 ms", **options})
        self.receiver = Receiver(self.asked.feed, self.asked.journal, self.asked.limits, wait_s=0)
        self.receiver.start()

    def rows(self) -> list[dict[str, Any]]:
        journal = self.asked.journal
        identity = journal.identity()
        if identity is None:
            return []
        while True:
            listed = journal.numbers(SEGMENTS)
            try:
                return [row for n in listed for row in journal.read(n, identity.journal)[1].to_pylist()]
            except JournalError:
                # The receiver deletes what was read, also between the list and its segments.
                if set(listed) <= set(journal.numbers(SEGMENTS)):
                    raise

    def values(self, count: int) -> list[bytes]:
        """Wait until there are so many rows, and until the feed has said everything; give them."""
        until(lambda: self.receiver.error is not None or len(self.rows()) >= count)
        self.receiver.require_alive()
        return [row["value"] for row in self.rows()]

    def error(self) -> BaseException:
        until(lambda: self.receiver.error is not None)
        assert self.receiver.error is not None
        return self.receiver.error


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    begun: list[Life] = []

    def begin(name: str, server: ScriptedServer | None = None, /, **options: str) -> Life:
        if server is not None and name == "socket":
            options = {"host": "127.0.0.1", "port": str(server.port), **options}
        elif server is not None:
            options = {"url": f"http://127.0.0.1:{server.port}/rows", **options}
        begun.append(Life(tmp_path, name, {key.replace("_", "."): text for key, text in options.items()}))
        return begun[-1]

    yield begin
    for life in begun:
        life.receiver.stop()


def test_what_the_users_headers_hold_is_not_sent_to_another_server(lives: Callable[..., Life]) -> None:
    secret = {"header_X-Api-Key": "s3cret", "header_Authorization": "Bearer s3cret"}
    with ScriptedServer([LINES, line(1), STALL], http=True) as other:
        on = (
            b"HTTP/1.1 307 Go on\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:%d/rows\r\n\r\n"
            % other.port
        )
        with ScriptedServer([on], http=True) as server:
            assert lives("http", server, id="id", resume="header:Last-Event-ID", **secret).values(1)
            assert server.requests[0].count("s3cret") == 2
        assert "s3cret" not in other.requests[0]


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        ("https://a/x", True),
        ("http://a/x", True),
        ("http://b/x", False),
        ("http://a:81/x", False),
        ("https://a:444/x", False),
    ],
)
def test_headers_go_on_to_the_same_server_and_to_it_behind_tls(asked: str, *, may: bool) -> None:
    assert http_feed._is_at(httpx.URL("http://a/rows"), httpx.URL(asked)) is may
    assert not http_feed._is_at(httpx.URL("https://a/rows"), httpx.URL("http://a/rows"))


def test_lines_of_a_socket_are_rows_and_a_half_line_is_none(lives: Callable[..., Life]) -> None:
    with ScriptedServer([b"a\r\n", b"b\nhal"], [b"c\n", STALL]) as server:
        life = lives("socket", server)
        assert life.values(3) == [b"a", b"b", b"c"]
        assert all(row["arrived"] is not None for row in life.rows())


def test_a_server_that_is_gone_without_a_word_is_noticed_within_minutes(tmp_path: Path) -> None:
    """What its next life would send goes to nobody until then."""
    with ScriptedServer([STALL]) as server:
        options = {"host": "127.0.0.1", "port": str(server.port), "journal": str(tmp_path)}
        feed = ask("socket", options).feed
        assert isinstance(feed, SocketFeed)
        with feed._connect() as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, every, count = (
                connection.getsockopt(socket.IPPROTO_TCP, each)
                for each in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + every * count <= 120


def test_rows_before_a_reset_are_kept(lives: Callable[..., Life]) -> None:
    # The system throws away what nobody has read when a reset comes; what was read waits for its segment then.
    with ScriptedServer([b"a\n" * 10, WAIT, RESET], [b"b\n", STALL]) as server:
        assert lives("socket", server, linger="3 s", segmentBytes="1k").values(11)[-1] == b"b"


def test_a_line_without_end_is_refused(lives: Callable[..., Life]) -> None:
    with ScriptedServer([b"x" * 100, STALL]) as server:
        error = lives("socket", server, segmentBytes="64").error()
        assert isinstance(error, RecordRefusedError)
        assert "sent a line of more than 64 bytes" in str(error)


def test_a_server_that_sends_without_pause_waits_when_the_journal_is_full(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer([b"x" * 99 + b"\n"] * 100_000) as server:
        life = lives("socket", server, segmentBytes="4k", backlogBytes="64k")
        until(lambda: "is full" in caplog.text)
        writer = life.receiver.opened()
        before = writer.newest
        assert writer.backlog < 128 * 1024 + 600_000
        until(life.receiver._at_rest.is_set)
        assert writer.newest == before


@pytest.mark.parametrize("is_unread", [True, False])
def test_nothing_is_taken_from_a_feed_at_a_start_whose_disk_is_full(
    lives: Callable[..., Life],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_unread: bool,
) -> None:
    """It would be lost, or be one of so many deliveries, at each start; the query makes room by reading on."""
    full, real = os.statvfs_result((4096, 1, *(0,) * 8, 255)[:10]), os.statvfs
    disk = [full]
    with ScriptedServer([b"new\n", STALL]) as server:
        if is_unread:
            of = f"127.0.0.1:{server.port}"
            with Writer.open(Journal.at(str(tmp_path / "journal")), Limits(), feed="socket", of=of) as writer:
                writer.append(table(SocketFeed.columns, [(b"old", 0)]))
        monkeypatch.setattr(os, "statvfs", lambda place: disk[0] if disk else real(place))
        life = lives("socket", server)
        if is_unread:
            life.receiver.rest(WAIT_S)
            assert "is full (disk): nothing is taken from 127.0.0.1" in caplog.text
        else:
            assert "is nearly full" in str(life.error())
        assert server.connections == 0
        disk.clear()
        if is_unread:
            assert life.values(2) == [b"old", b"new"]


def test_a_start_takes_nothing_from_a_feed_while_its_journal_is_full(
    lives: Callable[..., Life], tmp_path: Path
) -> None:
    with ScriptedServer([b"new\n", STALL]) as server:
        of, place = f"127.0.0.1:{server.port}", tmp_path / "journal"
        with Writer.open(Journal.at(str(place)), Limits(), feed="socket", of=of) as writer:
            for number in range(4):
                writer.append(table(SocketFeed.columns, [(b"%d" % number, 0)]))
        life = lives("socket", server, segmentBytes="4k", backlogBytes="16k")
        life.receiver.rest(WAIT_S)
        assert server.connections == 0
        read_upto(place, 3)
        until(lambda: [row["value"] for row in life.rows()] == [b"3", b"new"])


def test_a_socket_promises_no_more_than_it_can(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a socket sends nothing again"):
        Life(tmp_path, "socket", {"host": "h", "port": "1", "onceonly.guarantee": "exactly-once"})


def test_lines_go_on_after_the_last_one_in_the_journal(lives: Callable[..., Life]) -> None:
    """The first answer breaks off in the middle of a line; the second repeats; the third comes after a restart."""
    first = [LINES, line(1), line(2), line(3)[:9], RESET]
    second = [LINES, line(2), line(3), b"\r\n", STALL]
    with ScriptedServer(first, second, [LINES, line(4), STALL], http=True) as server:
        options = {"id": "id", "resume": "header:Last-Event-ID"}
        life = lives("http", server, **options)
        life.values(3)
        assert [row["id"] for row in life.rows()] == ["1", "2", "3"]
        life.receiver.stop()
        assert len(lives("http", server, **options).values(4)) == 4
    assert "last-event-id" not in server.requests[0]
    assert "last-event-id: 2\r\n" in server.requests[1]
    assert "last-event-id: 3\r\n" in server.requests[2]


def test_a_header_that_the_user_gives_says_where_to_begin_and_not_where_to_go_on(
    lives: Callable[..., Life],
) -> None:
    """Both in one request, and the server may go on after either."""
    with ScriptedServer([EVENTS, event(8), RESET], [EVENTS, event(9), STALL], http=True) as server:
        options = {"header_Last-Event-ID": "7", "resume": "header:Last-Event-ID"}
        assert len(lives("http", server, **options).values(2)) == 2
        for request, last in zip(server.requests, (7, 8), strict=True):
            assert [line for line in request.split("\r\n") if "last-event-id" in line] == [
                f"last-event-id: {last}"
            ]


def test_rows_that_are_left_out_by_their_id_are_told_of_at_once_and_then_now_and_then(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    """As of a publisher that begins to count anew: the operator looks for these rows."""

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]

    with ScriptedServer([LINES, line(1), line(2), line(1), WAIT, line(3), STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        life.values(3)
        assert len(told()) == 1
        assert "/rows: 1 row left out, as their ids came before (1 since the start)" in told()[0]
        assert "no two rows may share an id within 600 s (window)" in told()[0]
        life.receiver.doubled += 2
        life.receiver._tell_doubled()
        assert len(told()) == 1  # it is not a minute yet
        life.receiver.stop()
    until(lambda: len(told()) == 2)
    assert "2 rows left out, as their ids came before (3 since the start)" in told()[1]


def test_the_last_id_may_go_into_the_query(lives: Callable[..., Life]) -> None:
    with ScriptedServer([LINES, line(7)], [LINES, line(8), STALL], http=True) as server:
        url = f"http://127.0.0.1:{server.port}/rows?of=me"
        lives("http", url=url, id="id", resume="query:after").values(2)
    assert server.requests[0].startswith("get /rows?of=me http")
    assert server.requests[1].startswith("get /rows?of=me&after=7 http")


def test_a_line_that_is_no_json_is_kept_once(lives: Callable[..., Life]) -> None:
    broken = [LINES, line(1), b"{oh\n", b'{"no": 1}\n', b"[1]\n"]
    with ScriptedServer(broken, [LINES, *broken[2:], line(2), STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        assert life.values(5) == [line(1).strip(), b"{oh", b'{"no": 1}', b"[1]", line(2).strip()]
        assert [str(row["id"])[:5] for row in life.rows()] == ["1", "none:", "none:", "none:", "2"]


def test_no_line_of_json_keeps_a_feed_from_going_on(lives: Callable[..., Life]) -> None:
    """An id that no text can hold, one that is empty, twice, and JSON that is too deep to be read."""
    odd = [b'{"id": "\\ud800"}\n', b'{"id": "", "a": 1}\n', b'{"id": "", "a": 2}\n']
    odd += [b'{"id": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"]
    with ScriptedServer([LINES, line(1), *odd, line(2), STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        assert life.values(6) == [each.strip() for each in (line(1), *odd, line(2))]
        assert [str(row["id"])[:5] for row in life.rows()] == ["1", *["none:"] * 4, "2"]


def test_lines_without_an_id_that_are_alike_are_all_kept_and_none_twice(lives: Callable[..., Life]) -> None:
    broken = [LINES, line(1), b"{oh\n", b"{oh\n", WAIT]
    with ScriptedServer(broken, [LINES, *broken[2:4], b"{oh\n", line(2), STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        assert life.values(5) == [line(1).strip(), *[b"{oh"] * 3, line(2).strip()]


def test_no_line_is_left_out_because_those_without_an_id_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what was seen is forgotten, a line is none of those before; and the same one where all comes again."""
    monkeypatch.setattr(http_rows, "_NAMELESS_MAX", 3)
    given = [b"x", b"a", b"b", b"x", b"x", b"c", b"d", b"x"]

    def names() -> list[str]:
        gather = Gather(
            {"value": "binary", "arrived": "timestamp", "id": "string", "event": "string"}, Limits()
        )
        lines = http_rows.Lines("7", "id", "a server", "")
        for each in given:
            lines.take(each, gather)
        found: list[str] = gather.take().rows.column("id").to_pylist()
        return found

    assert len(set(names())) == len(given)
    assert names() == names()


def warned(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if what in record.getMessage()]


def test_lines_of_which_none_has_had_an_id_are_told_of_once(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    """As where the option is misspelt: the server is never told where to go on, and the promise does not hold."""
    with ScriptedServer([LINES, line(1), line(2)], [LINES, line(3), STALL], http=True) as server:
        lives("http", server, id="ID", resume="header:Last-Event-ID").values(3)
    assert "last-event-id" not in server.requests[1]
    [warning] = warned(caplog, "no line so far has")
    assert "/rows: no line so far has a text or number in the field ID (option id)" in warning
    assert "what it sends while nobody listens may be lost" in warning


def test_lines_that_came_for_longer_than_a_window_behind_the_last_id_are_told_of(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    """The server is told that id, and sends them again when their names are forgotten."""
    first = [LINES, line(1), b"{oh\n", WAIT]
    with ScriptedServer(first, [LINES, b"{ah\n", line(2), WAIT], [LINES, STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID", window="50 ms")
        until(lambda: server.connections == 3)
        life.values(4)
    [warning] = warned(caplog, "for longer than")
    assert (
        "go on after the id 1 before them: those that it sends again and that are older are there twice"
        in warning
    )
    assert warned(caplog, "no line so far has") == []


def test_rows_of_a_server_that_counts_its_ids_anew_are_told_of_and_none_is_there_twice(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    """It has forgotten what it had, as after its restart, and gives others the ids of before."""
    others = [b'{"id": %d, "text": "another"}\n' % number for number in range(1, 5)]
    with ScriptedServer(
        [LINES, line(1), line(2), line(3), STALL], [LINES, *others, STALL], http=True
    ) as server:
        options = {"id": "id", "resume": "header:Last-Event-ID"}
        life = lives("http", server, **options)
        life.values(3)
        life.receiver.stop()
        life = lives("http", server, **options)
        assert life.values(4) == [line(1).strip(), line(2).strip(), line(3).strip(), others[3].strip()]
        life.receiver.stop()
    until(lambda: bool(warned(caplog, "left out, as their ids came before (3 since the start)")))
    assert "if these are others, no two rows may share an id within 600 s (window)" in caplog.text


def test_a_last_line_that_is_whole_needs_no_end(lives: Callable[..., Life]) -> None:
    """As of a server that joins its lines; what is cut off is no JSON object."""
    second = [LINES, line(3), line(4)[:-3]]
    with ScriptedServer([LINES, line(1), line(2).strip()], second, [LINES, STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        assert life.values(3) == [line(each).strip() for each in (1, 2, 3)]
        until(lambda: len(server.requests) == 3)
    assert "last-event-id: 2\r\n" in server.requests[1]
    assert "last-event-id: 3\r\n" in server.requests[2]


def test_an_id_goes_into_a_header_as_it_is_or_is_refused(lives: Callable[..., Life], tmp_path: Path) -> None:
    with ScriptedServer([LINES, '{"id": "ü中"}\n'.encode()], [LINES, line(2), STALL], http=True) as server:
        lives("http", server, id="id", resume="header:Last-Event-ID").values(2)
    assert "last-event-id: ü中\r\n" in server.requests[1]
    with ScriptedServer([LINES, b'{"id": "a\\nb"}\n'], http=True) as server:
        other = str(tmp_path / "other")
        error = lives("http", server, id="id", resume="header:Last-Event-ID", journal=other).error()
    assert isinstance(error, ConfigurationError)
    assert r"the id 'a\nb', after which the server is to go on, does not fit" in str(error)


def test_events_go_on_after_the_last_whole_one(lives: Callable[..., Life]) -> None:
    first = [
        EVENTS,
        b"\xef\xbb\xbf: hello\n\n",
        event(1),
        b"event: tick\r\ndata:a\r\ndata: b\r\nid: 2\r\n\r\nid: 3\ndata: c\n",
    ]
    second = [EVENTS, b"data: two lines\nid: 3\n\nretry: 10\n\n", STALL]
    with ScriptedServer(first, second, http=True) as server:
        life = lives("http", server, resume="header:Last-Event-ID")
        assert life.values(3) == [b"row 1", b"a\nb", b"two lines"]
        assert [(row["id"], row["event"]) for row in life.rows()] == [
            ("1", "message"), ("2", "tick"), ("3", "message"),
        ]  # fmt: skip
    assert "last-event-id: 2\r\n" in server.requests[1]


def test_events_without_an_id_are_all_kept_at_most_once_and_refused_exactly_once(
    lives: Callable[..., Life], tmp_path: Path
) -> None:
    script = [EVENTS, event(1), b"data: x\n\ndata: x\n\n", STALL]
    with ScriptedServer(script, http=True) as server:
        assert lives("http", server).values(3) == [b"row 1", b"x", b"x"]
        error = lives(
            "http", server, resume="header:Last-Event-ID", journal=str(tmp_path / "exactly")
        ).error()
    assert "an event without an id of its own" in str(error)


def test_events_without_an_id_that_come_again_are_left_out(lives: Callable[..., Life]) -> None:
    nameless = b"data: x\n\ndata: x\n\n"
    with ScriptedServer(
        [EVENTS, event(1), nameless, WAIT], [EVENTS, nameless, event(2), STALL], http=True
    ) as server:
        options = {"resume": "header:Last-Event-ID", "onceonly_guarantee": "at-most-once"}
        life = lives("http", server, **options)
        until(lambda: b"row 2" in [row["value"] for row in life.rows()])
        assert life.values(4) == [b"row 1", b"x", b"x", b"row 2"]


def test_an_event_whose_id_is_empty_has_none(lives: Callable[..., Life]) -> None:
    with ScriptedServer([EVENTS, event(1), b"id:\ndata: x\n\n", STALL], http=True) as server:
        error = lives("http", server, resume="header:Last-Event-ID").error()
    assert "an event without an id of its own" in str(error)


def test_a_server_that_stalls_is_asked_again(lives: Callable[..., Life]) -> None:
    with ScriptedServer([LINES, line(1), STALL], [LINES, line(2), STALL], http=True) as server:
        assert len(lives("http", server, stallTimeout="100 ms").values(2)) == 2


def test_waits_grow_over_connections_that_break_and_not_over_those_that_were_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without rows, which is made anew after each ``stallTimeout``, is not left alone for half a minute."""
    now, lasts = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Breaking:
        name = of = "a test"

        def receive(self, _mark: str | None) -> Iterator[None]:
            now[0] += lasts[0]
            yield None
            raise FeedBrokenError("it broke")

    asked = ask("socket", {"journal": str(tmp_path), "host": "h", "port": "1"})
    life = Receiver(Breaking(), asked.journal, asked.limits)  # type: ignore[arg-type]
    monkeypatch.setattr(life._stopping, "wait", lambda _: None)
    with opened(tmp_path / "journal") as writer:
        for lasts[0], tries in ((0.0, 1), (1.0, 2), (1.0, 3), (60.0, 1), (60.0, 1), (1.0, 2)):
            life._connected(writer)
            assert life._tries == tries


def test_a_connection_that_ends_for_the_same_reason_again_and_again_is_told_of_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a server that closes after each of its answers: with rows, it is asked again within a second."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Closing:
        name = of = "a test"
        whys: ClassVar = ["it closed", "it closed", "it closed", "it broke", "it broke"]

        def receive(self, _mark: str | None) -> Iterator[None]:
            now[0] += 1
            yield None
            raise FeedBrokenError(self.whys.pop(0))

    asked = ask("socket", {"journal": str(tmp_path), "host": "h", "port": "1"})
    life = Receiver(Closing(), asked.journal, asked.limits)  # type: ignore[arg-type]
    monkeypatch.setattr(life._stopping, "wait", lambda _: None)
    with opened(tmp_path / "journal") as writer:
        for passed, told in ((0, 1), (0, 1), (0, 1), (0, 2), (60, 3)):
            now[0] += passed
            life._connected(writer)
            assert len(warned(caplog, "connecting again")) == told
    assert "it broke (2 more connections ended since the last word)" in warned(caplog, "it broke")[0]


def test_no_id_is_forgotten_while_nothing_can_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was away for hours sends again what it does not know to be taken, when it is back, or is asked."""
    now, place = [0.0], tmp_path / "journal"
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    connections = iter([["a", "b", "c"], ["a", "b", "c", "d"]])

    class Away:
        name = of = "a test"

        def receive(self, _mark: str | None) -> Iterator[Batch]:
            later(1)  # it connects
            for each in next(connections):
                yield Batch(rows=rows(each))
            raise FeedBrokenError("it is away")

        def pause(self, _seconds: float) -> None:
            later(2)
            read_upto(place, writer.newest)

    def later(hours: float) -> None:
        now[0] += 3600 * hours

    asked = ask("socket", {"journal": str(place), "host": "h", "port": "1"})
    life = Receiver(Away(), asked.journal, asked.limits)  # type: ignore[arg-type]
    monkeypatch.setattr(life._stopping, "wait", lambda _: later(2))
    with opened(place, window_s=600, backlog_bytes=8192) as writer:
        life.writer = writer
        life._connected(writer)  # it is full before it takes the third
        life._connected(writer)
        assert (life.doubled, writer.newest, held(place)[-1]) == (3, 4, "d")
        writer.clock.go_on()
        now[0] += 601
        assert writer.append(rows("a")) == 1


def test_a_server_that_is_busy_is_left_alone_as_long_as_it_says(lives: Callable[..., Life]) -> None:
    busy = [b"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"]
    with ScriptedServer(busy, [LINES, line(1), STALL], http=True) as server:
        begun = time.monotonic()
        lives("http", server).values(1)
        assert time.monotonic() - begun >= 1


@pytest.mark.parametrize("status", [408, 500, 503, 507, 520, 522, 524, 529, 530])
def test_a_server_that_is_in_trouble_is_asked_again_by_whatever_number_it_says_so(
    lives: Callable[..., Life], status: int
) -> None:
    """As 5xx that are not known mean what 500 does: those in front of it have numbers of their own."""
    trouble = [b"HTTP/1.1 %d In Trouble\r\nContent-Length: 0\r\n\r\n" % status]
    with ScriptedServer(trouble, [LINES, line(1), STALL], http=True) as server:
        assert len(lives("http", server).values(1)) == 1


def test_a_feed_is_not_at_rest_before_it_has_answered(lives: Callable[..., Life]) -> None:
    with ScriptedServer([], [b"", WAIT, LINES, line(1), STALL], http=True) as server:
        life = lives("http", server)
        life.receiver.rest(WAIT_S)
        assert len(life.rows()) == 1


@pytest.mark.parametrize(
    ("feed", "script"), [("http", [LINES, WAIT, line(1), STALL]), ("socket", [WAIT, line(1), STALL])]
)
def test_a_feed_is_not_at_rest_while_its_server_looks_for_the_first_row(
    lives: Callable[..., Life], feed: str, script: list[object]
) -> None:
    """``availableNow`` would end, and have read nothing of what is there."""
    with ScriptedServer(script, http=feed == "http") as server:
        life = lives(feed, server)
        life.receiver.rest(WAIT_S)
        assert len(life.rows()) == 1


def test_a_feed_that_is_not_heard_of_is_no_feed_that_has_nothing(lives: Callable[..., Life]) -> None:
    """``availableNow`` would end in order, each night, and nobody would see that the server is gone."""
    [port] = free_ports(1)
    life = lives("socket", host="127.0.0.1", port=str(port))
    with pytest.raises(
        UnavailableError, match=rf"heard of socket 127.0.0.1:{port} for 0.5 s: no connection: Connection"
    ):
        life.receiver.rest(0.5)


def test_what_a_feeds_server_has_is_waited_for_as_long_as_it_comes(tmp_path: Path) -> None:
    """A queue that takes longer to read than a feed without an end is waited for: each night, a part would stay."""

    class Slow:
        name, of, named, guarantee, awaited = "socket", "h:1", "none", Guarantee.AT_MOST_ONCE, 12

        def receive(self, mark: str | None) -> Iterator[Batch]:
            for number in range(20):
                time.sleep(0.1)
                if number == 14:
                    time.sleep(60)
                self.awaited -= number < 10
                yield Batch(rows=table({"value": "binary", "arrived": "timestamp"}, [(b"%d" % number, 0)]))

    asked = ask("socket", {"journal": str(tmp_path / "journal"), "host": "h", "port": "1"})
    receiver = Receiver(Slow(), asked.journal, asked.limits)  # type: ignore[arg-type]
    receiver.start()
    begun = time.monotonic()
    receiver.rest(1.0)
    assert receiver.opened().newest == 14  # and two that others have taken are not waited for
    assert time.monotonic() - begun < 30
    receiver.stop(0)


def test_a_server_that_ends_its_answer_without_a_row_has_been_heard_of(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer([LINES], http=True) as server:
        life = lives("http", server)
        until(lambda: "has closed the connection" in caplog.text)
        life.receiver.rest(0.01)


def test_a_record_of_tls_that_is_broken_breaks_the_connection_and_not_the_receiver(
    lives: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made, key)
    scripts = [LINES, line(1), WAIT, GARBAGE, STALL], [LINES, line(2), STALL]
    with ScriptedServer(*scripts, http=True, tls=tls) as server:
        assert len(lives("http", url=f"https://127.0.0.1:{server.port}/").values(2)) == 2


def test_how_long_a_server_wants_to_be_left_alone() -> None:
    assert retry_after({"retry-after": "7"}) == 7
    assert 50 < retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 60
    late = time.time() + 7200  # by the server's clock, or by this machine's
    server = {"date": formatdate(late, usegmt=True), "retry-after": formatdate(late + 60, usegmt=True)}
    assert retry_after(server) == 60
    assert [
        retry_after(each)
        for each in (
            {},
            {"retry-after": "soon"},
            {"retry-after": formatdate(1, usegmt=True)},
            {"retry-after": "²"},
        )
    ] == [0, 0, 0, 0]


def test_no_number_of_a_server_ends_the_receiver_or_has_it_wait_for_years(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = b"9" * 5000
    events = Events(None)
    events.feed(b"retry: " + many)
    wishes = [
        retry_after({"retry-after": many.decode()}),
        retry_after({"retry-after": "9" * 12}),
        events.retry_s or 0.0,
    ]
    asked = ask("socket", {"journal": str(tmp_path / "journal"), "host": "h", "port": "1"})
    with opened(tmp_path / "journal") as writer:
        for wish in wishes:

            class Busy:
                name = of = "a test"

                def receive(self, _mark: str | None, wish: float = wish) -> Iterator[None]:
                    yield None
                    raise FeedBrokenError("it is busy", wait_s=wish)

            life = Receiver(Busy(), asked.journal, asked.limits)  # type: ignore[arg-type]
            waits: list[float] = []
            monkeypatch.setattr(life._stopping, "wait", waits.append)
            life._connected(writer)
            assert waits == [24 * 3600]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("socket", {"host": "somewhere", "port": "1"}),
        ("http", {"url": "http://somewhere/"}),
        ("rabbitmq", {"uri": "amqp://somewhere", "queue": "q"}),
    ],
)
def test_a_name_server_that_does_not_answer_says_nothing_of_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, str]
) -> None:
    """As that of a machine that is just starting: its query would stop for good."""

    def silent(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    feed = ask(name, {"journal": str(tmp_path), **options}).feed
    with pytest.raises(FeedBrokenError):
        next(feed.receive(None))


@pytest.mark.parametrize("state", ["ProbableAuthenticationError", "ProbableAccessDeniedError"])
def test_a_server_of_rabbitmq_that_ends_while_it_greets_has_refused_nobody(state: str) -> None:
    server = Server("amqp://me:pw@h", "a test")
    of_state: Any = getattr(pika.exceptions, state)
    for ended in (
        pika.exceptions.StreamLostError("Stream connection lost: ConnectionResetError(104)"),
        pika.exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED - broker forced connection closure"),
    ):
        assert server.refusal(of_state(repr(ended)), "queue q") is None
    full = "access to vhost '/' refused for user 'me': connection limit (1) is reached"
    for passing in (full, "access to vhost '/' refused for user 'me': vhost '/' is down"):
        ended = pika.exceptions.ConnectionClosedByBroker(530, f"NOT_ALLOWED - {passing}")
        assert server.refusal(of_state(repr(ended)), "queue q") is None
    refused = pika.exceptions.ConnectionClosedByBroker(403, "ACCESS_REFUSED - Login was refused")
    assert isinstance(server.refusal(of_state(repr(refused)), "queue q"), ConfigurationError)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (b"401 Unauthorized", "answered 401"), (b"403 Forbidden", "answered 403"), (b"404 Not Found", "answered 404"),
        (b"410 Gone", "start once with resume=none"), (b"501 Not Implemented", "answered 501"),
    ],
)  # fmt: skip
def test_an_answer_that_will_not_change_ends_the_query(
    lives: Callable[..., Life], status: bytes, says: str
) -> None:
    with ScriptedServer([b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n"], http=True) as server:
        error = lives("http", server).error()
        assert isinstance(error, ConfigurationError)
        assert says in str(error)


HTML = OK + b"text/html; charset=utf-8\r\n\r\n"
PAGE = [HTML, b"<html>\n<h1>Log in</h1>\n</html>\n"]


def test_a_page_for_people_is_no_row(lives: Callable[..., Life]) -> None:
    with ScriptedServer(PAGE, http=True) as server:
        life = lives("http", server)
        error = life.error()
    assert isinstance(error, ConfigurationError)
    assert "answered with a page for people (text/html), and no rows" in str(error)
    assert "header.Authorization" in str(error)
    assert "have it send them as application/x-ndjson" in str(error)
    assert life.rows() == []


def test_a_page_to_log_in_that_a_server_sends_on_to_is_told_with_its_address(
    lives: Callable[..., Life],
) -> None:
    with ScriptedServer(PAGE, http=True) as login:
        on = f"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:{login.port}/login?of=s3cret\r\n"
        with ScriptedServer([f"{on}\r\n".encode()], http=True) as server:
            life = lives("http", server, id="id", resume="header:Last-Event-ID")
            told = str(life.error())
    assert f"from http://127.0.0.1:{login.port}/login, to which it sends on, (text/html)" in told
    assert "s3cret" not in told
    assert life.rows() == []


def test_a_page_in_between_may_pass_as_while_a_server_is_being_repaired(lives: Callable[..., Life]) -> None:
    with ScriptedServer([LINES, line(1)], PAGE, [LINES, line(2), STALL], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        assert life.values(2) == [line(1).strip(), line(2).strip()]


JSON = OK + b"application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b'[{"id": 1}, {"id": 2}]', "sends one JSON array (application/json), and not lines"),
        (b'[{"id": 1}, {"id": 2}]\n', "sends a JSON array (application/json), and not lines"),
        (b'[\n{"id": 1},\n{"id": 2}\n]\n', "sends a JSON document of several lines (application/json)"),
        (b'[{"id": 1},\n{"id": 2}]', "sends a JSON document of several lines (application/json)"),
        (b'{\n  "id": 1\n}\n', "sends a JSON document of several lines (application/json)"),
    ],
    ids=["array", "array and line end", "array of lines", "array from its first line on", "object of lines"],
)
def test_a_json_document_that_is_no_lines_is_told_and_gives_no_row(
    lives: Callable[..., Life], sent: bytes, says: str
) -> None:
    with ScriptedServer([JSON, sent], http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        error = life.error()
    assert isinstance(error, ConfigurationError)
    assert says in str(error)
    assert "a JSON object on each line is expected" in str(error)
    assert life.rows() == []


def test_an_array_without_a_line_end_is_told_whatever_it_is_sent_as(lives: Callable[..., Life]) -> None:
    with ScriptedServer([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"[1, 2]"], http=True) as server:
        assert "one JSON array (without a content type)" in str(lives("http", server).error())


def test_lines_are_rows_though_they_are_sent_as_one_document_would_be(lives: Callable[..., Life]) -> None:
    """As they always were: of arrays where nobody asks for ids, cut off, or damaged where the feed has gone on."""
    cut = [JSON, b"[1]\n", b"[2"]
    with ScriptedServer(cut, [JSON, b"[2]\n", b"[\n", STALL], http=True) as server:
        assert lives("http", server).values(3) == [b"[1]", b"[2]", b"["]


def test_no_line_ends_a_feed_that_has_begun(lives: Callable[..., Life]) -> None:
    first, second = [JSON, line(1)], [JSON, b'{"id": \n', b"[2]\n", line(3), STALL]
    with ScriptedServer(first, second, http=True) as server:
        life = lives("http", server, id="id", resume="header:Last-Event-ID")
        assert life.values(4) == [line(1).strip(), b'{"id": ', b"[2]", line(3).strip()]


def test_a_server_that_has_no_more_to_send_is_told(lives: Callable[..., Life]) -> None:
    with ScriptedServer([b"HTTP/1.1 204 No Content\r\n\r\n"], http=True) as server:
        assert isinstance(lives("http", server).error(), UnavailableError)


def test_lines_without_a_field_for_their_id_are_refused_exactly_once(lives: Callable[..., Life]) -> None:
    with ScriptedServer([LINES, line(1), STALL], http=True) as server:
        assert "no option says where their id is" in str(lives("http", server, resume="query:after").error())


def test_headers_are_sent_and_secrets_are_not_shown(lives: Callable[..., Life]) -> None:
    with ScriptedServer([OK + b"text/plain\r\n\r\n", line(1), STALL], http=True) as server:
        life = lives("http", server, header_Authorization="Bearer s3cret")
        life.values(1)
        assert "s3cret" not in repr(life.asked)
    assert "authorization: bearer s3cret\r\n" in server.requests[0]


def rabbit(tmp_path: Path, **options: str) -> RabbitFeed:
    given = {"journal": str(tmp_path), "uri": "amqp://h", "queue": "q", **options}
    feed = ask("rabbitmq", given).feed
    assert isinstance(feed, RabbitFeed)
    return feed


def message(feed: RabbitFeed, body: bytes, *, again: bool = False, **properties: object) -> tuple[Any, ...]:
    method = SimpleNamespace(exchange="x", routing_key=b"\xff", redelivered=again)
    given = SimpleNamespace(**{"message_id": None, "headers": None, **properties})
    return (body, None, *feed._rest_of(method, given, body))


def test_a_lost_connection_is_waited_for_while_the_journal_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = ask("rabbitmq", {"uri": "amqp://h/", "queue": "q", "journal": "/nowhere"}).feed
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)

    def lost(_seconds: float) -> None:
        raise pika.exceptions.ConnectionWrongStateError

    feed._connection = SimpleNamespace(sleep=lost)  # type: ignore[attr-defined, unused-ignore]
    feed.pause(0.1)
    assert waited == [0.1]


def test_a_message_may_have_any_bytes_for_names_and_ids(tmp_path: Path) -> None:
    """Pika gives what is no UTF-8 as bytes. Ids of other bytes are other ids, and an empty one is none."""
    feed = rabbit(tmp_path, id="header:key")
    found = [message(feed, b"", headers={"key": each, b"\xfe": 1}) for each in (b"\x00\x80", b"\x00\x81")]
    assert table(feed.columns, found).column("id").to_pylist() == ["\x00\\x80", "\x00\\x81"]
    assert message(rabbit(tmp_path), b"", message_id=b"\xff")[2] == "\\xff"
    with pytest.raises(RecordRefusedError, match="has no message id"):
        message(rabbit(tmp_path), b"", message_id="")
    with pytest.raises(RecordRefusedError, match="has no header key"):
        message(feed, b"", headers={"key": b""})


class Cancelled:
    """A connection, and its channel, whose server deletes the queue when it has given messages of these ids."""

    is_open = True

    def __init__(self, ids: tuple[str | None, ...] = ("1", "2")) -> None:
        self.acknowledged: list[int] = []
        self._ids = ids

    def channel(self) -> Cancelled:
        return self

    def queue_declare(self, _queue: str, *, passive: bool) -> Any:  # noqa: ANN401  as pika's
        return SimpleNamespace(method=SimpleNamespace(message_count=2 if passive else 0))

    def basic_qos(self, **_: int) -> None:
        """As many as one likes."""

    def basic_consume(self, _queue: str, take: Callable[..., None], **_: object) -> None:
        self._take = take

    def add_on_cancel_callback(self, cancel: Callable[[object], None]) -> None:
        self._cancel = cancel

    def process_data_events(self, **_: float) -> None:
        for tag, (name, body) in enumerate(zip(self._ids, (b"a", b"b", b"c"), strict=False), 1):
            method = SimpleNamespace(exchange="", routing_key="q", redelivered=False, delivery_tag=tag)
            self._take(self, method, SimpleNamespace(message_id=name, headers=None), body)
        self._cancel(None)

    def basic_ack(self, tag: int, *, multiple: bool) -> None:
        assert multiple
        self.acknowledged.append(tag)

    def close(self) -> None:
        """Nothing is open."""


def test_what_a_queue_had_given_when_it_was_deleted_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nowhere else, whether it was acknowledged or not."""
    feed, connection = rabbit(tmp_path, linger="60 s"), Cancelled()
    monkeypatch.setattr(feed._server, "connect", lambda: connection)
    given = feed.receive(None)
    batch = next(given)
    assert batch is not None
    assert batch.rows.column("value").to_pylist() == [b"a", b"b"]
    with pytest.raises(FeedBrokenError, match="the queue was deleted or has moved"):
        next(given)
    assert connection.acknowledged == [2]


def test_what_a_queue_gave_before_a_message_without_an_id_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come again at each start, and be given up by a queue that counts its deliveries."""
    feed, connection = rabbit(tmp_path, linger="60 s"), Cancelled(ids=("1", None, "3"))
    monkeypatch.setattr(feed._server, "connect", lambda: connection)
    given = feed.receive(None)
    batch = next(given)
    assert batch is not None
    assert batch.rows.column("id").to_pylist() == ["1"]
    with pytest.raises(RecordRefusedError, match="has no message id"):
        next(given)
    assert connection.acknowledged == [1]


def test_a_queue_that_gives_nothing_is_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been made anew, and give what it has to the next consumer alone."""
    monkeypatch.setattr(rabbit_feed, "_ANEW_S", 0.0)
    feed, connection = rabbit(tmp_path, linger="0 ms"), Cancelled()
    subscribed: list[object] = []

    def channel() -> Cancelled:
        subscribed.append(None)
        return connection

    monkeypatch.setattr(feed._server, "connect", lambda: connection)
    monkeypatch.setattr(connection, "channel", channel)
    monkeypatch.setattr(feeds, "FIRST_S", 0.0)
    given, real = feed.receive(None), connection.process_data_events
    monkeypatch.setattr(
        connection, "process_data_events", lambda **told: real(**told) if len(subscribed) > 1 else None
    )
    assert next(given) is None
    batch = next(given)
    assert batch is not None
    assert (batch.rows.num_rows, len(subscribed)) == (2, 2)
    given.close()


def test_a_message_without_an_id_that_comes_again_is_known_at_most_once(tmp_path: Path) -> None:
    feed = rabbit(tmp_path, **{"id": "none", "onceonly.guarantee": "at-most-once"})
    rows = [message(feed, each, again=again) for each, again in ((b"a", False), (b"a", False), (b"b", True))]
    assert feed._suspecting(Batch(rows=table(feed.columns, rows))).suspects == [False, False, True]
    assert len({row[2] for row in rows}) == 2
    assert message(rabbit(tmp_path, id="none"), b"a")[2] is None


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("socket", {"port": "1"}, "option host of onceonly.socket is missing"),
        ("socket", {"host": "h", "port": "70000"}, "from 1 to 65535"),
        ("socket", {"host": "h", "port": "1", "linger": "5"}, "must be a time such as 50 ms"),
        ("socket", {"host": "h", "port": "1", "backlogBytes": "1k"}, "leave no room for a segment"),
        ("socket", {"host": "h", "port": "1", "hots": "h"}, "knows no option hots"),
        ("http", {}, "option url of onceonly.http is missing"),
        (
            "http",
            {"url": "http://h", "journal": "s3b://b/j"},
            "the journal s3b://b/j is on s3b:, where onceonly can keep nothing",
        ),
        ("http", {"url": "http://h", "Authorization": "Bearer x"}, "It knows backlogBytes, header.NAME, id,"),
        ("http", {"url": "ftp://h"}, "no address of http or https"),
        ("http", {"url": "http://me:pw/x@h/rows"}, "it is not shown"),
        ("rabbitmq", {"uri": "amqp://me:pw/x@h", "queue": "q"}, "it is not shown"),
        ("http", {"url": "http://h", "resume": "header"}, "must be header:NAME, query:NAME or none"),
        ("http", {"url": "http://h", "onceonly.guarantee": "exactly-once"}, "without resume"),
        (
            "http",
            {"url": "http://h", "header.My Key": "pw"},
            "option header.My Key of onceonly.http names no header",
        ),
        (
            "http",
            {"url": "http://h", "header.Key": "pw\npw"},
            "option header.Key of onceonly.http has a line end",
        ),
        ("rabbitmq", {"uri": "http://me:pw@h", "queue": "q"}, "it is not shown"),
        ("rabbitmq", {"uri": "amqp://h", "queue": "q", "prefetch": "0"}, "from 1 to 65535"),
        (
            "rabbitmq",
            {"uri": "amqp://h", "queue": "q", "id": "header"},
            "must be messageId, header:NAME or none",
        ),
        (
            "rabbitmq",
            {"uri": "amqp://h", "queue": "q", "id": "none", "onceonly.guarantee": "exactly-once"},
            "with id=none nobody can tell",
        ),
        ("rabbit", {}, "there is no feed named 'rabbit'"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(
    tmp_path: Path, name: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        ask(name, {"journal": str(tmp_path), **options})
    assert "pw" not in "".join(traceback.format_exception(told.value, limit=0))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("socket", {"host": "no-such-host.invalid", "port": "1"}),
        ("http", {"url": "http://no-such-host.invalid/"}),
        ("rabbitmq", {"uri": "amqp://no-such-host.invalid", "queue": "q"}),
        ("socket", {"host": "no..host", "port": "1"}),
        ("http", {"url": f"http://{'a' * 64}.invalid/"}),
        ("rabbitmq", {"uri": f"amqp://{'a' * 64}.invalid", "queue": "q"}),
    ],
)
def test_a_host_that_nobody_knows_is_told(
    lives: Callable[..., Life], name: str, options: dict[str, str]
) -> None:
    error = lives(name, **options).error()
    assert isinstance(error, ConfigurationError)
    assert "has no address" in str(error)


@pytest.mark.parametrize(
    ("name", "of", "options"),
    [
        ("socket", "no-such-host.invalid:1", {"host": "no-such-host.invalid", "port": "1"}),
        ("http", "http://no-such-host.invalid/", {"url": "http://no-such-host.invalid/"}),
        ("rabbitmq", "/ q", {"uri": "amqp://no-such-host.invalid", "queue": "q"}),
    ],
)
def test_a_host_that_has_no_address_for_now_is_asked_again_by_a_start_that_goes_on(
    lives: Callable[..., Life],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    of: str,
    options: dict[str, str],
) -> None:
    """As one whose only machine is started anew: what the journal has came from there."""
    with Writer.open(Journal.at(str(tmp_path / "journal")), Limits(), feed=name, of=of) as writer:
        writer.append(rows("a"))
    life = lives(name, **options)
    until(lambda: "connecting again" in caplog.text or life.receiver.error is not None)
    life.receiver.require_alive()


def test_what_each_feed_promises(tmp_path: Path) -> None:
    def promised(name: str, **options: str) -> str:
        return str(ask(name, {"journal": str(tmp_path), **options}).feed.guarantee)

    assert promised("socket", host="h", port="1") == "at-most-once"
    assert promised("http", url="http://h") == "at-most-once"
    assert promised("http", url="http://h", resume="query:after") == "exactly-once"
    assert promised("rabbitmq", uri="amqp://h", queue="q") == "exactly-once"
    assert promised("rabbitmq", uri="amqp://h", queue="q", id="none") == "at-least-once"


def test_a_server_goes_on_after_what_was_taken_while_it_was_not_told_where(
    tmp_path: Path, lives: Callable[..., Life]
) -> None:
    """What was taken at most once does not come again, as its ids may be forgotten by then."""
    with ScriptedServer(
        [EVENTS, event(1), STALL], [EVENTS, event(2), STALL], [EVENTS, STALL], http=True
    ) as server:
        for resume, values in (("header:Last-Event-ID", 1), ("none", 2), ("header:Last-Event-ID", 2)):
            life = lives("http", server, resume=resume)
            assert len(life.values(values)) == values
            until(partial(getattr, life.receiver, "_was_heard"))
            life.receiver.stop()
        assert "last-event-id: 2" in server.requests[2]


def test_a_server_that_has_dropped_what_came_after_the_last_id_is_gone_on_with_as_its_error_says(
    lives: Callable[..., Life],
) -> None:
    """And what the journal has is not given up for it."""
    gone = [b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"]
    script = [EVENTS, event(1), RESET], gone, [EVENTS, event(7), STALL], [EVENTS, event(8), STALL]
    with ScriptedServer(*script, http=True) as server:
        error = lives("http", server, resume="header:Last-Event-ID").error()
        assert "start once with resume=none" in str(error)
        for resume, values in (("none", 2), ("header:Last-Event-ID", 3)):
            life = lives("http", server, resume=resume)
            assert len(life.values(values)) == values
            life.receiver.stop()
        assert [row["id"] for row in life.rows()] == ["1", "7", "8"]
        assert "last-event-id: 7" in server.requests[3]


def test_who_names_rows_by_something_else_is_told_that_those_before_are_not_known(
    lives: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedServer([LINES, line(1), STALL], http=True) as server:
        for field, told in (("id", False), ("id", False), ("text", True)):
            caplog.clear()
            life = lives("http", server, id=field, resume="query:after")
            life.values(1)
            life.receiver.stop()
            assert ("remembers rows by id=id, and from now on by id=text" in caplog.text) == told


@pytest.mark.parametrize(
    ("uri", "script", "why"),
    [
        ("amqp://127.0.0.1:{port}", [], "it has closed the connection while it greeted"),
        ("amqps://127.0.0.1:{port}", [b"no TLS at all"], "TLS: WRONG_VERSION_NUMBER"),
        ("amqp://127.0.0.1:{free}", [], "Connection refused"),
    ],
)
def test_why_a_queues_server_is_not_reached_is_said_with_its_address(
    lives: Callable[..., Life], uri: str, script: list[object], why: str
) -> None:
    with ScriptedServer(script) as server:
        port = free_ports(1)[0] if "free" in uri else server.port
        life = lives("rabbitmq", uri=uri.format(port=port, free=port), queue="q")
        until(lambda: f"no connection to 127.0.0.1:{port}: {why}" in life.receiver._why)


@pytest.mark.parametrize("name", ["uri", "queue", "journal"])
def test_a_required_option_that_is_empty_is_named(tmp_path: Path, name: str) -> None:
    options = {"uri": "amqp://h", "queue": "q", "journal": str(tmp_path), name: " "}
    with pytest.raises(ConfigurationError, match=f"The option {name} of onceonly.rabbitmq is empty"):
        ask("rabbitmq", options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "http://h:99999/"}, "is no address of http or https"),
        ({"url": "http://h:0/"}, "is no address of http or https"),
        ({"resume": "header:Last Event"}, "which names no header"),
    ],
)
def test_an_address_or_a_header_that_there_cannot_be_is_refused_at_once(
    tmp_path: Path, options: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ask("http", {"journal": str(tmp_path), "url": "http://h/", **options})


def test_why_a_server_of_http_is_not_reached_is_said(lives: Callable[..., Life]) -> None:
    with ScriptedServer([b"no TLS at all"]) as server:
        life = lives("http", url=f"https://127.0.0.1:{server.port}/")
        until(lambda: "TLS: WRONG_VERSION_NUMBER" in life.receiver._why)


@pytest.mark.parametrize("name", ["http", "rabbitmq"])
def test_a_certificate_that_nobody_trusts_is_told(
    tmp_path: Path, lives: Callable[..., Life], name: str
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate(tmp_path))
    with ScriptedServer([STALL], tls=tls) as server:
        at = f"127.0.0.1:{server.port}"
        given = {"url": f"https://{at}/"} if name == "http" else {"uri": f"amqps://{at}", "queue": "q"}
        error = lives(name, **given).error()
        assert isinstance(error, ConfigurationError)
        assert "is not one that this machine trusts" in error.what
        assert "SSL_CERT_FILE" in error.next_step
