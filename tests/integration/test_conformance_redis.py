"""The conformance suite for the Redis sink, decided and early, on one server for all tests, and on one cluster."""

from __future__ import annotations

import uuid
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import redis as client
from tests.unit.keyed_suite import TEXTS, KeyedSuite

from onceonly.sinks.redis import RedisSink
from onceonly_proof.embedded.redis import EmbeddedRedis
from onceonly_proof.embedded.redis_cluster import EmbeddedRedisCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration
PASSWORD = "5ecret-of-the-server"  # noqa: S105  of a server that lives as long as the tests


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(settings={"requirepass": PASSWORD}) as server:
        yield server


class TestDecided(KeyedSuite):
    sink = RedisSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def a_server(self, server: EmbeddedRedis) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        return {
            "url": self.server.url,
            "password": PASSWORD,
            "prefix": f"{uuid.uuid4().hex}:",
            "key": "key",
            "staging": str(folder / "staging"),
        }

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": [None, ""], "value": ["no key"] * 2}, schema=TEXTS)

    def visible(self, options: Mapping[str, str]) -> list[tuple[str | None, ...]]:
        return [(row.get("key"), row.get("value")) for row in hashes(options).values()]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        self.server.kill()
        yield
        self.server.start()


@pytest.mark.long
class TestEarly(TestDecided):
    early = True


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedRedisCluster]:
    with EmbeddedRedisCluster(settings={"requirepass": PASSWORD}) as cluster:
        yield cluster


@pytest.mark.long
class TestOnACluster(TestDecided):
    @pytest.fixture(autouse=True)
    def a_server(self, cluster: EmbeddedRedisCluster) -> None:
        self.server = cluster  # type: ignore[assignment]
        self.nodes = [node.url for node in cluster.nodes]

    def visible(self, options: Mapping[str, str]) -> list[tuple[str | None, ...]]:
        return [
            (row.get("key"), row.get("value"))
            for url in self.nodes
            for row in hashes({**options, "url": url}).values()
        ]


class TestEarlyOnACluster(TestOnACluster):
    early = True


def hashes(options: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Read every hash that is a row, as any client would."""
    found: dict[str, dict[str, str]] = {}
    made: Any = client.Redis.from_url(options["url"], password=options.get("password"), decode_responses=True)
    with closing(made) as reader:
        for name in reader.scan_iter(count=1000):
            is_row = name.startswith(options["prefix"]) and f"{options['prefix']}onceonly:" not in name
            row = reader.hgetall(name) if is_row else {}
            if row and "onceonly.deleted" not in row:
                found[name.removeprefix(options["prefix"])] = row
    return found
