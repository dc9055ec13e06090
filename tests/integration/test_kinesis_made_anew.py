"""A stream that is deleted and made anew on a server of Kinesis' interface, while its query runs or is down."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError, SourceChangedError
from onceonly.sources.kinesis import planning
from onceonly.sources.kinesis.options import SourceOptions
from onceonly.sources.kinesis.planning import Planner
from onceonly.sources.kinesis.reading import Task, shares
from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKinesis]:
    with EmbeddedKinesis() as server:
        yield server


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_PROBE_S", 0.0)
    monkeypatch.setattr(planning, "_LIST_S", 0.0)


class Query:
    """A query that reads a stream epoch by epoch."""

    def __init__(self, server: EmbeddedKinesis, stream: str, folder: Path) -> None:
        self.options = SourceOptions.of({**server.options(stream), "onceonly.ranges": str(folder)})
        self.live()
        self.offset = self.planner.initial()
        self.rows: list[bytes] = []

    def live(self) -> None:
        """Begin a new life: nothing is known but the offset."""
        self.planner = Planner(self.options)

    def read(self) -> list[bytes]:
        """Read until nothing is new."""
        while (following := self.planner.following(self.offset)) is not self.offset:
            self.offset = following
            for share in shares(following, self.planner.nexts(following), self.planner.keeps_s):
                for records in Task(self.options, share).records().values():
                    self.rows += [each["Data"] for each in records]
        return self.rows


def put(server: EmbeddedKinesis, stream: str, values: Iterable[object]) -> list[bytes]:
    client, wanted = server.client(), [str(each).encode() for each in values]
    for data in wanted:
        client.put_record(StreamName=stream, PartitionKey="a", Data=data)
    client.close()
    return wanted


def remove(server: EmbeddedKinesis, stream: str) -> None:
    client = server.client()
    client.delete_stream(StreamName=stream)
    assert until(lambda: stream not in client.list_streams()["StreamNames"], 20)
    client.close()
    time.sleep(1.1)  # numbers of records have the second in which their shard was made


@pytest.mark.parametrize("count", [0, 3, 30], ids=["empty", "fewer", "more"])
@pytest.mark.parametrize("life", ["same", "new", "new and not told"])
def test_a_stream_that_was_made_anew_stops_the_query(
    server: EmbeddedKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str, count: int
) -> None:
    """Also a server that takes the iterators of the former one, and a query that may not ask when it was made."""
    stream = f"anew-{life.replace(' ', '-')}-{count}"
    if life == "new and not told":
        monkeypatch.setattr(Planner, "_look", lambda _: ("", time.time()))
    server.make_stream(stream)
    wanted = put(server, stream, range(10))
    query = Query(server, stream, tmp_path)
    assert query.read() == wanted
    put(server, stream, ["unread"])
    remove(server, stream)
    server.make_stream(stream)
    put(server, stream, (f"new {n}" for n in range(count)))
    if life != "same":
        query.live()
    with pytest.raises(
        SourceChangedError, match="deleted and made anew" if life != "new and not told" else "is gone"
    ):
        query.read()
    assert query.rows == wanted


def test_a_stream_that_is_deleted_while_it_is_read_is_named(server: EmbeddedKinesis, tmp_path: Path) -> None:
    server.make_stream("short")
    query = Query(server, "short", tmp_path)
    wanted = put(server, "short", range(3))
    assert query.read() == wanted
    remove(server, "short")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="there is no stream short"):
            query.read()
        query.live()
