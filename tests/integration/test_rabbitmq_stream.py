"""A stream of a real RabbitMQ read by offset, while it is cut, made anew, and its server is killed; what is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pika
import pytest

from onceonly.errors import ConfigurationError, SourceChangedError, UnavailableError
from onceonly.sources.rabbitmq_stream.messages import Stream
from onceonly.sources.rabbitmq_stream.options import SourceOptions
from onceonly.sources.rabbitmq_stream.planning import Planner
from onceonly.sources.rabbitmq_stream.positions import Position
from onceonly.sources.rabbitmq_stream.reading import read
from onceonly_proof.campaign.sources.rabbitmq import Offsets
from onceonly_proof.campaign.workload import Workload
from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]  # a further server

SHORT = {"x-max-length-bytes": 1_000_000, "x-stream-max-segment-size-bytes": 200_000}
"""A stream that keeps few messages."""


@pytest.fixture(scope="module")
def rabbit() -> Iterator[EmbeddedRabbit]:
    with EmbeddedRabbit() as server:
        yield server


def make(rabbit: EmbeddedRabbit, stream: str, values: Iterable[object] = (), **limits: Any) -> None:  # noqa: ANN401  as pika's
    """Make a stream, or see that it is there, and publish messages that its server has confirmed."""
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream", **limits})
        channel.confirm_delivery()
        for each in values:
            properties = pika.BasicProperties(message_id=str(each), headers={"key": f"k{each}"}, timestamp=7)
            channel.basic_publish("", stream, f"row {each}".encode(), properties)


def flood(rabbit: EmbeddedRabbit, stream: str, count: int = 8000) -> None:
    """Publish so much that retention takes what was there."""
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.basic_publish("", stream, b"%d " % number + b"x" * 300)


def remove(rabbit: EmbeddedRabbit, stream: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        connection.channel().queue_delete(stream)


def content(rabbit: EmbeddedRabbit, stream: str) -> list[str]:
    """Return the bodies of a stream."""
    return [body.decode() for _, _, body in rabbit.content(stream)]


def options(rabbit: EmbeddedRabbit, stream: str, **given: str) -> SourceOptions:
    return SourceOptions.of({"uri": rabbit.uri, "stream": stream, "timeout": "20 seconds", **given})


def texts(told: SourceOptions, start: Position, end: Position) -> list[str]:
    """Read what lies between two places."""
    stream = Stream(told)
    try:
        return [message.value.decode() for message in read(stream, start, end)]
    finally:
        stream.close()


def moved(planner: Planner, start: Position, rows_max: int = 0) -> Position:
    """Wait for the next epoch; return its end."""
    ends: list[Position] = []

    def is_new() -> bool:
        ends.append(planner.following(start, rows_max))
        return ends[-1] != start

    assert until(is_new, 30)
    return ends[-1]


def upto(planner: Planner, start: Position, offset: int) -> Position:
    """Wait until an epoch would reach an offset; return its end."""
    assert until(lambda: planner.following(start).offset >= offset, 30)
    return planner.following(start)


def test_messages_are_read_by_offset_and_again_the_same(rabbit: EmbeddedRabbit) -> None:
    make(rabbit, "plain", range(20))
    told = options(rabbit, "plain")
    planner = Planner(told)
    start = planner.initial()
    end = upto(planner, start, 19)
    make(rabbit, "plain", range(20, 30))
    for _ in range(2):
        assert texts(told, start, end) == [f"row {n}" for n in range(20)]
    second = upto(planner, end, 29)
    assert texts(told, end, second) == [f"row {n}" for n in range(20, 30)]
    assert planner.following(second) == second
    message = next(iter(read(Stream(told), start, end)))
    assert (message.id, message.headers, message.routing_key, message.timestamp) == (
        "0", (("key", "k0"),), "plain", 7,
    )  # fmt: skip
    planner.close()


def test_a_reader_that_has_enough_keeps_its_connection(rabbit: EmbeddedRabbit) -> None:
    """The server ends the connection of whoever rejects what is on its way."""
    make(rabbit, "enough")
    flood(rabbit, "enough", 3000)
    stream = Stream(options(rabbit, "enough"))
    for _ in range(3):
        consumer = stream.consumer("first", 500)
        assert consumer.next(10) is not None
        connection = stream._connection
        consumer.close()
        connection.process_data_events(time_limit=0.3)
        assert connection.is_open
        assert not consumer.is_open
    stream.close()


def test_an_epoch_is_no_larger_than_its_limit_and_is_cut_into_tasks(rabbit: EmbeddedRabbit) -> None:
    make(rabbit, "limited", range(50))
    told = options(rabbit, "limited", tasks="4")
    planner = Planner(told)
    at, seen = planner.initial(), list[str]()
    while len(seen) < 50:
        end = moved(planner, at, 12)
        shares = planner.shares(at, end)
        found = [texts(told, *share) for share in shares]
        assert len(shares) == (4 if sum(map(len, found)) == 12 else len(shares))
        assert sum(map(len, found)) <= 12
        seen += [text for each in found for text in each]
        at = end
    assert seen == [f"row {n}" for n in range(50)]
    planner.close()


def test_a_new_query_begins_where_it_is_told(rabbit: EmbeddedRabbit) -> None:
    make(rabbit, "begins", range(5))
    time.sleep(1.1)  # the server's chunks have their time, which a client names in whole seconds
    moment = datetime.now(UTC)
    make(rabbit, "begins", range(5, 8))
    for starting, first in (("earliest", 0), ("3", 3), ("latest", 8), (moment.isoformat(), 5)):
        at = Planner(options(rabbit, "begins", startingOffsets=starting)).initial()
        assert at.next == first
    with pytest.raises(ConfigurationError, match=r"startingOffsets=99 is not there yet.*ends at offset 7"):
        Planner(options(rabbit, "begins", startingOffsets="99")).initial()


def test_a_stream_that_is_empty_is_waited_for(rabbit: EmbeddedRabbit) -> None:
    make(rabbit, "empty")
    told = options(rabbit, "empty")
    planner = Planner(told)
    start = planner.initial()
    planner.stop_at_now()
    assert planner.following(start) == start
    planner = Planner(told)
    assert planner.following(start) == start
    make(rabbit, "empty", range(3))
    assert texts(told, start, upto(planner, start, 2)) == ["row 0", "row 1", "row 2"]


def test_available_now_ends_where_it_has_begun(rabbit: EmbeddedRabbit) -> None:
    make(rabbit, "now", range(400))
    told = options(rabbit, "now")
    planner = Planner(told)
    start = planner.initial()
    planner.stop_at_now()
    make(rabbit, "now", range(400, 410))
    end = upto(planner, start, 399)
    assert end.offset == 399
    assert planner.following(end) == end
    assert len(texts(told, start, end)) == 400


def test_what_retention_took_stops_the_query_and_says_what_is_gone(
    rabbit: EmbeddedRabbit, caplog: pytest.LogCaptureFixture
) -> None:
    make(rabbit, "short", range(20), **SHORT)
    told = options(rabbit, "short")
    planner = Planner(told)
    start = planner.initial()
    end = moved(planner, start, 10)
    flood(rabbit, "short")
    for work in (
        lambda: Planner(told).following(start),
        lambda: Planner(told).following(end),
        lambda: Planner(told).require_kept(end),
        lambda: planner.shares(start, end),
        lambda: texts(told, start, end),
    ):
        with pytest.raises(SourceChangedError, match=r"keeps no messages from offset \d+ to \d+: "):
            work()
    passing = options(rabbit, "short", failOnDataLoss="false")
    after = moved(Planner(passing), end)
    assert texts(passing, start, end) == []
    assert "It goes on, as failOnDataLoss=false says" in caplog.text
    assert texts(passing, end, after)


@pytest.mark.parametrize("count", [0, 3, 30])
def test_a_stream_that_was_made_anew_stops_the_query(rabbit: EmbeddedRabbit, count: int) -> None:
    stream = f"anew-{count}"
    make(rabbit, stream, range(10))
    told = options(rabbit, stream)
    planner = Planner(told)
    start = planner.initial()
    end = upto(planner, start, 9)
    remove(rabbit, stream)
    make(rabbit, stream, (f"new {n}" for n in range(count)))
    for life in (planner, Planner(told)):
        with pytest.raises(SourceChangedError, match="was deleted and made anew"):
            life.following(end)
        with pytest.raises(SourceChangedError, match="was deleted and made anew"):
            life.require_kept(end)
    if count > 10:
        with pytest.raises(SourceChangedError, match="was deleted and made anew"):
            texts(told, start, end)


@pytest.mark.parametrize("count", [3, 30])
def test_a_stream_that_was_made_anew_before_anything_was_read_is_read_from_its_beginning(
    rabbit: EmbeddedRabbit, count: int
) -> None:
    """What the former one held, nobody can tell; nothing of the new one is passed over."""
    stream = f"unread-{count}"
    make(rabbit, stream)
    told = options(rabbit, stream)
    start = Planner(told).initial()
    make(rabbit, stream, range(10))
    remove(rabbit, stream)
    make(rabbit, stream, (f"new {n}" for n in range(count)))
    planner = Planner(told)
    end = upto(planner, start, count - 1)
    assert texts(told, start, end) == [f"row new {n}" for n in range(count)]
    planner.close()


@pytest.mark.parametrize("kind", [None, "classic", "quorum"])
def test_a_stream_that_is_gone_or_became_a_queue_stops_the_query(
    rabbit: EmbeddedRabbit, kind: str | None
) -> None:
    """Whether it runs or begins anew; and the queue keeps what it has."""
    stream = f"became-{kind}"
    make(rabbit, stream, range(10))
    told = options(rabbit, stream)
    planner = Planner(told)
    start = planner.initial()
    end = upto(planner, start, 9)
    remove(rabbit, stream)
    if kind is not None:
        rabbit.declare(stream, kind)
        with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", stream, b"stays")
    says = f"there is no stream {stream}" if kind is None else "is a queue, and no stream"
    for work in (
        lambda: planner.following(end),
        lambda: Planner(told).following(end),
        lambda: texts(told, start, end),
    ):
        with pytest.raises(ConfigurationError, match=says):
            work()
    if kind is not None:
        with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
            assert connection.channel().basic_get(stream)[2] == b"stays"


def test_an_option_that_names_another_stream_is_told(rabbit: EmbeddedRabbit) -> None:
    """It must not send anybody to a new checkpoint, which would read all again."""
    make(rabbit, "right", range(5))
    make(rabbit, "wrong", (f"other {n}" for n in range(9)))
    end = upto(Planner(options(rabbit, "right")), Planner(options(rabbit, "right")).initial(), 4)
    with pytest.raises(SourceChangedError, match="or the option stream names another one") as stopped:
        Planner(options(rabbit, "wrong")).following(end)
    assert stopped.value.next_step.startswith("name the stream of before")
    assert Planner(options(rabbit, "right")).following(end) == end


@pytest.mark.parametrize("what", ["user", "virtual host"])
def test_a_user_or_virtual_host_that_is_removed_while_it_runs_is_told(
    rabbit: EmbeddedRabbit, what: str
) -> None:
    name = f"removed-{what[:4]}"
    rabbit.control("add_vhost", name)
    rabbit.control("add_user", name, "s3cret")
    for user in (name, "guest"):
        rabbit.control("set_permissions", "-p", name, user, ".*", ".*", ".*")
    uri = f"amqp://{name}:s3cret@127.0.0.1:{rabbit.port}/{name}"
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        channel.basic_publish("", "orders", b"row 0")
    planner = Planner(options(rabbit, "orders", uri=uri))
    end = upto(planner, planner.initial(), 0)
    if what == "user":
        rabbit.control("delete_user", name)
    else:
        rabbit.control("delete_vhost", name)
    says = "does not take the user or the password" if what == "user" else "no virtual host|no stream orders"
    with pytest.raises(ConfigurationError, match=says) as error:
        until(lambda: planner.following(end) != end, 30)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"stream": "no-such"}, "there is no stream no-such"),
        ({"uri": "amqp://guest:wrong@127.0.0.1:{port}/%2F"}, "does not take the user or the password"),
        (
            {"uri": "amqp://guest:guest@127.0.0.1:{port}/nowhere"},
            "there is no virtual host nowhere at 127.0.0.1:",
        ),
        ({"uri": "amqp://guest:guest@no-such-host.invalid"}, "no-such-host.invalid .* has no address"),
    ],
)
def test_what_will_not_change_is_told_in_one_sentence(
    rabbit: EmbeddedRabbit, given: dict[str, str], says: str
) -> None:
    told = {"stream": "s", **{name: text.format(port=rabbit.port) for name, text in given.items()}}
    stream = told.pop("stream")
    with pytest.raises(ConfigurationError, match=says) as error:
        Planner(options(rabbit, stream, **told)).initial()
    assert "wrong" not in str(error.value)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("starting", ["earliest", "latest", "3"])
def test_a_queue_is_refused_before_its_first_record(rabbit: EmbeddedRabbit, kind: str, starting: str) -> None:
    """It would lose what a reader acknowledges."""
    queue = f"a-{kind}-queue"
    rabbit.declare(queue, kind)
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_purge(queue)
        channel.basic_publish("", queue, b"stays")
    told = options(rabbit, queue, startingOffsets=starting)
    place = Position(offset=0, is_read=False)
    for work in (
        Planner(told).initial,
        Planner(told).stop_at_now,
        lambda: Planner(told).following(place),
        lambda: texts(told, place, Position(offset=7)),
    ):
        with pytest.raises(
            ConfigurationError, match=rf"{queue} of [\d.:]+ is a queue, and no stream"
        ) as error:
            work()
        assert error.value.next_step == "read it with onceonly.rabbitmq, or name a stream"
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        assert connection.channel().basic_get(queue)[2] == b"stays"


def test_a_server_that_does_not_come_back_is_told() -> None:
    with EmbeddedRabbit() as gone:
        make(gone, "gone", range(3))
        told = SourceOptions.of({"uri": gone.uri, "stream": "gone", "timeout": "1 second"})
    with pytest.raises(UnavailableError, match="had no answer for 1 s"):
        Planner(told).initial()


def test_a_campaigns_feeder_goes_on_though_a_server_that_died_has_lost_what_it_was_sent() -> None:
    """It keeps a bounded distance ahead of what was shown, and lost rows never are."""
    workload = Workload(
        seed=1, partitions=1, targets=1, keys=1, rows_per_s=600, burst=1, bytes_max=0, per_epoch=100
    )
    with EmbeddedRabbit() as rabbit:
        flow = Offsets(rabbit, "fed", workload)
        flow.start()
        settled = (
            time.monotonic() + 6
        )  # a server that is killed within seconds does not find the stream again
        assert until(lambda: time.monotonic() > settled and flow.distinct > 600, 60), "its distance"
        assert rabbit._process is not None
        os.kill(rabbit._process.pid, signal.SIGSTOP)
        flow.ahead_of = flow.distinct - 300
        assert until(lambda: flow.distinct - flow.ahead_of > 600, 30), "it does not wait for what it has sent"
        stopped = flow.distinct
        rabbit.kill()
        rabbit.start()
        assert until(lambda: flow.distinct > stopped, 60)
        assert flow.given_up >= 300
        written = flow.distinct
        assert flow.stop() < written, "what it was sent is lost"


def test_no_message_is_lost_or_doubled_while_the_server_is_killed() -> None:
    """Epochs are planned and read by one that lives, and each is read again afterwards."""
    with EmbeddedRabbit() as rabbit:
        make(rabbit, "kills")
        ended = threading.Event()

        def publish() -> None:
            number = 0
            while not ended.is_set():
                try:
                    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
                        channel = connection.channel()
                        channel.confirm_delivery()
                        while not ended.is_set():
                            number += 1
                            channel.basic_publish("", "kills", str(number).encode())
                            time.sleep(0.002)
                except (pika.exceptions.AMQPError, OSError):
                    time.sleep(0.1)

        thread = threading.Thread(target=publish)
        thread.start()
        told = options(rabbit, "kills", timeout="60 seconds")
        planner = Planner(told)
        at = planner.initial()
        epochs: list[tuple[Position, Position, list[str]]] = []
        for life in range(4):
            # A server that is killed within seconds of its start, or of the stream's, does not find the stream again.
            settled = time.monotonic() + 6
            while time.monotonic() < settled:
                end = moved(planner, at, 40)
                epochs.append((at, end, texts(told, at, end)))
                at = end
            if life < 3:
                rabbit.kill()
                rabbit.start()
        ended.set()
        thread.join()
        # What the server has: while it starts, it confirms messages and drops them.
        kept = content(rabbit, "kills")
        while (seen := [text for _, _, found in epochs for text in found]) != kept:
            assert len(seen) < len(kept)
            end = moved(planner, at)
            epochs.append((at, end, texts(told, at, end)))
            at = end
        assert len(set(kept)) == len(kept) > 500
        for start, end, found in epochs[::5]:
            assert texts(told, start, end) == found
