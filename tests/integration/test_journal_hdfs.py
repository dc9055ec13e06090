"""A journal on a real HDFS: receivers that are killed, two of a kind at once, private files, and dropping it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.journal_bench import broken_off, held, opened, rows

from onceonly import failpoints
from onceonly.errors import ConfigurationError, SupersededError
from onceonly.operations import journals
from onceonly.sources.journal import Journal
from onceonly.sources.journal.reader import Reader
from onceonly.sources.journal.segments import SEGMENTS
from onceonly.stores import opened as stores
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.embedded.feeds import EmbeddedFeed
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration

_folders = itertools.count()
TOTAL = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHdfs]:
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture
def place(server: EmbeddedHdfs) -> Iterator[str]:
    stores.tell(Hadoop(server.hadoop()))
    yield f"hdfs://127.0.0.1/journals/{next(_folders)}"
    stores.tell(Hadoop())


def onceonly(server: EmbeddedHdfs, folder: Path, *arguments: str) -> list[str]:
    """Return a command that reaches the server as the files of a cluster say."""
    conf = folder / "hdfs.conf"
    conf.write_text("".join(f"spark.hadoop.{name} {value}\n" for name, value in server.hadoop().items()))
    first, second, *others = arguments
    return [sys.executable, "-m", "onceonly", first, second, "--hadoop-conf", str(conf), *others]


def values(place: str) -> list[bytes]:
    journal = Journal.at(place)
    identity = journal.identity()
    if identity is None:
        return []
    return [
        value
        for number in journal.numbers(SEGMENTS)
        for value in journal.read(number, identity.journal)[1].column("value").to_pylist()
    ]


@pytest.mark.parametrize("point", failpoints.OF_JOURNALS)
def test_at_each_crash_point_nothing_is_lost_or_doubled(
    place: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_off(place, point, monkeypatch)


def test_of_two_writers_the_older_stops_and_of_two_readers_too(place: str) -> None:
    """HDFS has no locks that would refuse the second."""
    with opened(place) as older, opened(place) as newer:
        newer.append(rows("a"))
        with pytest.raises(SupersededError, match="segment 1"):
            older.append(rows("a"))
        newer.append(rows("b"))
        first, second = Reader(Journal.at(place)), Reader(Journal.at(place))
        start = first.initial()
        first.require(start)
        second.require(start)
        assert first._claim is not None
        first._claim._looked_at -= 60
        with pytest.raises(SupersededError, match=r"reads the journal hdfs://.* now; this one has stopped"):
            first.newest()
        assert second.newest() == 2
    assert held(place) == ["a", "b"]


def test_only_its_user_can_read_what_the_feed_sent(place: str, server: EmbeddedHdfs) -> None:
    with opened(place) as writer:
        writer.append(rows("a"))
    address = parse(place)
    web = WebHdfs.of(address, Hadoop(server.hadoop()))
    (segment,) = Journal.at(place).store.list_names(SEGMENTS)
    for name in (segment, "journal"):
        status = web.ask("GET", "GETFILESTATUS", f"/{address.path}/{name}")["FileStatus"]
        assert status["permission"] == "600"


def test_a_receiver_that_is_killed_at_each_step_loses_and_doubles_nothing(
    place: str, server: EmbeddedHdfs, tmp_path: Path
) -> None:
    # So slow that the first life gets a second segment: what has waited comes in one.
    with EmbeddedFeed("http", total=TOTAL, rate=10, seed=5) as feed:
        options = {
            "url": f"http://127.0.0.1:{feed.port}/", "journal": place, "id": "id", "resume": "header:Last-Event-ID",
            "linger": "5 ms",
        }  # fmt: skip
        given = [each for name, value in options.items() for each in ("-o", f"{name}={value}")]
        command = onceonly(server, tmp_path, "journal", "run", "http", *given)
        for point in ("journal.before_put=kill@2", "journal.before_put=kill@1", "journal.after_put=kill@1"):
            killed = subprocess.run(
                command, env={**os.environ, "ONCEONLY_FAILPOINTS": point}, check=False, timeout=120
            )
            assert killed.returncode == -signal.SIGKILL
        process = subprocess.Popen(command)
        try:
            assert until(lambda: len(set(values(place))) >= TOTAL, 60), len(values(place))
        finally:
            process.terminate()
            assert process.wait(30) == 0
    assert [value for value, times in Counter(values(place)).items() if times > 1] == []


def test_it_is_listed_and_dropped(place: str, server: EmbeddedHdfs, tmp_path: Path) -> None:
    with opened(place) as writer:
        writer.append(rows("a", "b"))
    command = onceonly(server, tmp_path, "journal", "list", "--json", place)
    (seen,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert (seen["where"], seen["unread"], seen["segments"]) == (place, 2, 1)
    subprocess.run(onceonly(server, tmp_path, "journal", "drop", "--yes", place), check=True)
    assert Journal.at(place).store.list_names(SEGMENTS) == []
    with pytest.raises(ConfigurationError, match="there is no journal at hdfs://"):
        journals.look(place)
