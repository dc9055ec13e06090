"""What operators do to a queue of a real RabbitMQ, and to its journal, while it is read and while it is not.

Each message that the server gave and was told to be durable is a row once, and what stops says what to do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pika
import pytest
from rabbit_bench import QUORUM, left, publish, receiver, rows, until
from tests.unit.feed_bench import Started, one_start

from onceonly.errors import ConfigurationError, JournalError, OnceonlyError
from onceonly.operations.journals import drop_reader
from onceonly.sources.rabbitmq import feed
from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.sources.journal.receiver import Receiver

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]  # a further server

KINDS = pytest.mark.parametrize("arguments", [None, QUORUM], ids=["classic", "quorum"])
Arguments = dict[str, str] | None


@pytest.fixture(scope="module")
def rabbit() -> Iterator[EmbeddedRabbit]:
    with EmbeddedRabbit() as server:
        yield server


def remove(rabbit: EmbeddedRabbit, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        connection.channel().queue_delete(queue)


def anew(rabbit: EmbeddedRabbit, queue: str, arguments: Arguments) -> None:
    """Delete a queue and make it anew, at once."""
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        channel = connection.channel()
        channel.queue_delete(queue)
        channel.queue_declare(queue, durable=True, arguments=arguments)


def ids(folder: Path) -> list[str]:
    return [row["id"] for row in rows(folder)]


def ended(life: Receiver) -> OnceonlyError:
    """Wait until it has stopped by itself; return why."""
    until(lambda: life.error is not None)
    assert isinstance(life.error, OnceonlyError)
    return life.error


# --- the queue -----------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-most-once"])
def test_what_a_queue_had_given_is_there_though_it_is_deleted(
    rabbit: EmbeddedRabbit, tmp_path: Path, arguments: Arguments, guarantee: str
) -> None:
    """It is gone from the server, acknowledged or not; the receiver still waits for more rows before it writes them."""
    queue = f"in-hand-{guarantee}-{arguments is None}"
    publish(rabbit, queue, ["1", "2", "3"], arguments=arguments)
    life = receiver(rabbit, tmp_path, queue, linger="60 s", onceonly_guarantee=guarantee)
    until(lambda: left(rabbit, queue) == 0)
    assert rows(tmp_path) == []
    remove(rabbit, queue)
    assert f"there is no queue {queue}" in str(ended(life))
    assert ids(tmp_path) == ["1", "2", "3"]


@KINDS
@pytest.mark.parametrize("runs", [False, True], ids=["down", "running"])
@pytest.mark.parametrize("changes", [False, True], ids=["same type", "other type"])
def test_a_queue_that_was_made_anew_is_read_on(
    rabbit: EmbeddedRabbit,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Arguments,
    *,
    runs: bool,
    changes: bool,
) -> None:
    """And what its publisher gives ids of before, as it counts anew, is left out and told of.

    RabbitMQ 3.10 keeps the consumer of a quorum queue that is made anew at once, and swallows what it gives it.
    """
    monkeypatch.setattr(feed, "_ANEW_S", 2.0)
    queue = f"anew-{arguments is None}-{runs}-{changes}"
    other = arguments if not changes else QUORUM if arguments is None else None
    publish(rabbit, queue, ["1", "2", "3"], arguments=arguments)
    life = receiver(rabbit, tmp_path, queue)
    until(lambda: ids(tmp_path) == ["1", "2", "3"])
    if not runs:
        life.stop()
    anew(rabbit, queue, other)
    publish(rabbit, queue, ["3", "4", "5"], arguments=other)
    if not runs:
        life = receiver(rabbit, tmp_path, queue)
    until(lambda: len(ids(tmp_path)) >= 5)
    life.rest(10)
    life.stop()
    life.require_alive()
    assert ids(tmp_path) == ["1", "2", "3", "4", "5"]
    assert "1 row left out, as their ids came before" in caplog.text
    assert left(rabbit, queue) == 0


@KINDS
@pytest.mark.parametrize("runs", [False, True], ids=["down", "running"])
def test_a_queue_that_became_a_stream_is_refused_before_its_first_record(
    rabbit: EmbeddedRabbit, tmp_path: Path, arguments: Arguments, *, runs: bool
) -> None:
    queue = f"streams-{arguments is None}-{runs}"
    stream = {"x-queue-type": "stream"}
    publish(rabbit, queue, ["1"], arguments=arguments)
    life = receiver(rabbit, tmp_path, queue)
    until(lambda: ids(tmp_path) == ["1"])
    if not runs:
        life.stop()
    anew(rabbit, queue, stream)
    publish(rabbit, queue, ["2"], arguments=stream)
    if not runs:
        life = receiver(rabbit, tmp_path, queue)
    assert "is a stream, and no queue" in str(ended(life))
    assert ids(tmp_path) == ["1"]


def test_a_queue_that_another_consumer_has_for_itself_is_waited_for(
    rabbit: EmbeddedRabbit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a former program that is not stopped yet; the user's rights are as they should be."""
    queue = "alone"  # a classic one: quorum queues of RabbitMQ 3.10 refuse no other consumer
    publish(rabbit, queue, ["1"])
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as other:
        channel = other.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue, lambda *_: None, exclusive=True)
        life = receiver(rabbit, tmp_path, queue)
        until(lambda: life.error is not None or "in exclusive use" in caplog.text)
    until(lambda: life.error is not None or ids(tmp_path) == ["1"])
    life.stop()
    life.require_alive()


def test_a_virtual_host_that_has_as_many_connections_as_it_may_is_waited_for(
    rabbit: EmbeddedRabbit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As while the connections of a program are open yet that was killed; the user's rights are as they should be."""
    publish(rabbit, "crowded", ["1"])
    rabbit.control("set_vhost_limits", "-p", "/", '{"max-connections": 0}')
    try:
        life = receiver(rabbit, tmp_path, "crowded")
        until(lambda: life.error is not None or "connection limit" in caplog.text)
    finally:
        rabbit.control("clear_vhost_limits", "-p", "/")
    until(lambda: life.error is not None or ids(tmp_path) == ["1"])
    life.stop()
    life.require_alive()


@KINDS
def test_a_queue_that_is_purged_gives_what_comes_after(
    rabbit: EmbeddedRabbit, tmp_path: Path, arguments: Arguments
) -> None:
    """While it is read, down, and while a start waits for all that it had: what was delivered stays delivered."""
    queue = f"purged-{arguments is None}"
    publish(rabbit, queue, [str(n) for n in range(200)], arguments=arguments)
    life = receiver(rabbit, tmp_path, queue, prefetch="10", segmentBytes="100")
    until(lambda: len(ids(tmp_path)) >= 20)
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        connection.channel().queue_purge(queue)
    life.rest(10)
    life.stop()
    before = ids(tmp_path)
    assert sorted(set(before), key=int) == before
    publish(rabbit, queue, ["200"], arguments=arguments)
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        connection.channel().queue_purge(queue)
    publish(rabbit, queue, ["201"], arguments=arguments)
    life = receiver(rabbit, tmp_path, queue)
    life.rest(10)
    life.stop()
    life.require_alive()
    assert ids(tmp_path) == [*before, "201"]


# --- who may read it -----------------------------------------------------------------------------------------


def test_a_user_that_is_removed_while_it_reads_is_told_and_its_messages_stay(
    rabbit: EmbeddedRabbit, tmp_path: Path
) -> None:
    def grant(read: str) -> None:
        rabbit.control("set_permissions", "reader", ".*", ".*", read)

    uri = f"amqp://reader:s3cret@127.0.0.1:{rabbit.port}/%2F"
    rabbit.control("add_user", "reader", "s3cret")
    grant(".*")
    publish(rabbit, "rights", ["1", "2"])
    life = receiver(rabbit, tmp_path, "rights", uri=uri)
    until(lambda: ids(tmp_path) == ["1", "2"])
    rabbit.control("delete_user", "reader")
    publish(rabbit, "rights", ["3"])
    error = ended(life)
    assert isinstance(error, ConfigurationError)
    assert "does not take the user or the password" in error.what
    assert "s3cret" not in str(error)
    rabbit.control("add_user", "reader", "s3cret")
    for read, says in (("", "into the virtual host /"), ("^other$", "does not let this user read the queue")):
        if read:
            grant(read)
        assert says in ended(receiver(rabbit, tmp_path, "rights", uri=uri)).what
    assert left(rabbit, "rights") == 1
    grant(".*")
    life = receiver(rabbit, tmp_path, "rights", uri=uri)
    until(lambda: len(ids(tmp_path)) >= 3)
    life.stop()
    assert ids(tmp_path) == ["1", "2", "3"]


@KINDS
def test_what_a_virtual_host_had_given_is_there_though_it_is_removed(
    rabbit: EmbeddedRabbit, tmp_path: Path, arguments: Arguments
) -> None:
    name = f"host-{arguments is None}"
    uri = f"amqp://guest:guest@127.0.0.1:{rabbit.port}/{name}"

    def make() -> None:
        rabbit.control("add_vhost", name)
        rabbit.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")

    make()
    publish(rabbit, "orders", ["1", "2"], uri=uri, arguments=arguments)
    life = receiver(rabbit, tmp_path, "orders", uri=uri, linger="60 s")
    until(lambda: left(rabbit, "orders", uri=uri) == 0)
    rabbit.control("delete_vhost", name)
    error = ended(life)
    assert isinstance(error, ConfigurationError)
    # Its queues go first: a receiver may be back before it is gone itself.
    assert f"there is no virtual host {name} at" in error.what or "there is no queue orders" in error.what
    assert ids(tmp_path) == ["1", "2"]
    make()
    publish(rabbit, "orders", ["2", "3"], uri=uri, arguments=arguments)
    life = receiver(rabbit, tmp_path, "orders", uri=uri)
    until(lambda: len(ids(tmp_path)) >= 3)
    life.rest(10)
    life.stop()
    assert ids(tmp_path) == ["1", "2", "3"]


# --- its journal and its checkpoint --------------------------------------------------------------------------


class Job:
    """A query that a scheduler starts, and the offset in its checkpoint."""

    def __init__(self, rabbit: EmbeddedRabbit, folder: Path, queue: str) -> None:
        self.options = {"uri": rabbit.uri, "queue": queue}
        self.place = folder / "journal"
        self.end: dict[str, Any] | None = None
        self.ids: list[str] = []

    def start(self, place: Path | None = None, **more: str) -> Started:
        found = one_start(place or self.place, self.end, **self.options, **more)
        self.end = found.end
        self.ids += found.ids
        return found


def test_a_start_on_a_journal_of_yesterday_is_refused_and_its_queue_keeps_its_messages(
    rabbit: EmbeddedRabbit, tmp_path: Path
) -> None:
    """What is acknowledged into a copy that is about to be replaced would be lost in silence."""
    job = Job(rabbit, tmp_path, "yesterday")
    publish(rabbit, "yesterday", ["1", "2"])
    job.start()
    shutil.copytree(job.place, tmp_path / "backup")
    publish(rabbit, "yesterday", ["3"])
    job.start()
    job.place.rename(tmp_path / "newest")
    shutil.copytree(tmp_path / "backup", job.place)
    publish(rabbit, "yesterday", ["4", "5"])
    with pytest.raises(JournalError, match="it was restored from an older copy") as refused:
        job.start()
    assert "restore its newest state" in refused.value.next_step
    assert left(rabbit, "yesterday") == 2
    shutil.rmtree(job.place)
    (tmp_path / "newest").rename(job.place)
    job.start()
    assert job.ids == ["1", "2", "3", "4", "5"]
    assert left(rabbit, "yesterday") == 0


def test_a_checkpoint_of_yesterday_beside_a_newer_journal_is_refused_and_its_queue_keeps_its_messages(
    rabbit: EmbeddedRabbit, tmp_path: Path
) -> None:
    job = Job(rabbit, tmp_path, "rewound")
    ends = []
    for each in ("1", "2", "3", "4"):
        publish(rabbit, "rewound", [each])
        ends.append(job.start().end)
    publish(rabbit, "rewound", ["5"])
    older = Job(rabbit, tmp_path, "rewound")
    older.end = ends[0]
    with pytest.raises(
        JournalError, match="was read up to segment 2 for good, and the query goes on after 1"
    ):
        older.start()
    assert left(rabbit, "rewound") == 1
    older.end = None
    with pytest.raises(JournalError, match="by another query, or on another checkpoint") as refused:
        older.start()
    assert left(rabbit, "rewound") == 1
    assert "onceonly journal drop --reader" in refused.value.next_step
    job.start()
    assert job.ids == ["1", "2", "3", "4", "5"]
    drop_reader(str(job.place))
    assert older.start().ids[-1] == "5"  # what is kept, also again: that is what the command says


def test_a_journal_that_is_misspelt_takes_nothing(rabbit: EmbeddedRabbit, tmp_path: Path) -> None:
    job = Job(rabbit, tmp_path, "misspelt")
    publish(rabbit, "misspelt", ["1"])
    job.start()
    publish(rabbit, "misspelt", ["2"])
    for place in (tmp_path / "jurnal", tmp_path / "others"):
        if place.name == "others":
            shutil.copytree(job.place, place)
            (place / "journal").unlink()
        with pytest.raises(JournalError, match="is not the one that the query has read: there is none"):
            job.start(place)
    assert left(rabbit, "misspelt") == 1
    job.start()
    assert job.ids == ["1", "2"]


def test_a_copy_of_a_journal_gives_what_it_takes_itself_and_no_query_goes_on_in_the_other_unseen(
    rabbit: EmbeddedRabbit, tmp_path: Path
) -> None:
    """Two jobs, on a copy each: their queue is dealt out, and who takes the other's journal is told."""
    job = Job(rabbit, tmp_path, "copied")
    publish(rabbit, "copied", ["1"])
    job.start()
    shutil.copytree(job.place, tmp_path / "copy")
    other = Job(rabbit, tmp_path, "copied")
    other.place, other.end = tmp_path / "copy", job.end
    for each, who in (("2", job), ("3", other), ("4", job), ("5", other)):
        publish(rabbit, "copied", [each])
        assert who.start().ids == [each]
    assert (job.ids, other.ids) == (["1", "2", "4"], ["3", "5"])
    publish(rabbit, "copied", ["6"])
    for who, place in ((job, other.place), (other, job.place)):
        with pytest.raises(JournalError, match="has another segment 3 than this query has read"):
            who.start(place)
    assert left(rabbit, "copied") == 1


def test_of_two_jobs_on_one_journal_that_begin_in_the_same_second_one_reads(
    rabbit: EmbeddedRabbit, tmp_path: Path
) -> None:
    publish(rabbit, "rivals", [str(n) for n in range(500)])
    jobs = [Job(rabbit, tmp_path, "rivals") for _ in range(2)]
    refused: list[OnceonlyError] = []
    together = threading.Barrier(2)

    def begin(job: Job) -> None:
        together.wait()
        try:
            job.start()
        except OnceonlyError as error:
            refused.append(error)

    threads = [threading.Thread(target=begin, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert "another query" in refused[0].what or "another process writes the journal" in refused[0].what
    assert "of its own" in refused[0].next_step
    assert sorted(map(int, [*jobs[0].ids, *jobs[1].ids])) == list(range(500))


def test_of_two_receivers_on_one_journal_that_begin_in_the_same_second_one_writes(
    rabbit: EmbeddedRabbit, tmp_path: Path
) -> None:
    publish(rabbit, "writers", [str(n) for n in range(500)])
    command = [sys.executable, "-m", "onceonly", "journal", "run", "rabbitmq"]
    for option in (f"uri={rabbit.uri}", "queue=writers", f"journal={tmp_path / 'journal'}"):
        command += ["-o", option]
    rivals = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        until(lambda: any(each.poll() is not None for each in rivals), 120)
        (loser,) = (each for each in rivals if each.poll() is not None)
        assert loser.returncode != 0
        assert loser.stderr is not None
        assert "another process writes the journal" in loser.stderr.read()
        until(lambda: len(ids(tmp_path)) >= 500)
        assert sorted(map(int, ids(tmp_path))) == list(range(500))
    finally:
        for each in rivals:
            each.kill()
            each.communicate()
