"""The conformance suite for OpenSearch, decided and early, and for Elasticsearch, on one server each."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from tests.unit.keyed_suite import TEXTS, KeyedSuite

from onceonly.sinks.opensearch import ElasticsearchSink, OpenSearchSink
from onceonly_proof.embedded.opensearch import EmbeddedElasticsearch, EmbeddedOpenSearch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedOpenSearch]:
    with EmbeddedOpenSearch() as server:
        yield server


@pytest.mark.long
class TestDecided(KeyedSuite):
    sink = OpenSearchSink
    every_pass = False
    longest = 500

    @pytest.fixture(autouse=True)
    def a_server(self, server: EmbeddedOpenSearch) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        index = f"t{uuid.uuid4().hex}"
        make(self.server.url, index)
        # Nobody asks for this password: the server has no users.
        secrets = {"user": "me", "password": "5ecret-of-the-cluster"}
        staging = str(folder / "staging")
        return {"url": self.server.url, "index": index, "key": "key", "staging": staging, **secrets}

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": [None, "", "x" * 513], "value": ["x"] * 3}, schema=TEXTS)

    def visible(self, options: Mapping[str, str]) -> list[tuple[str | None, ...]]:
        return [(row["key"], row["value"]) for row in documents(options["url"], options["index"]).values()]


@pytest.mark.long
class TestEarly(TestDecided):
    early = True


@pytest.fixture(scope="module")
def elastic() -> Iterator[EmbeddedElasticsearch]:
    with EmbeddedElasticsearch() as server:
        yield server


@pytest.mark.long
class TestElasticsearch(TestDecided):
    sink = ElasticsearchSink

    @pytest.fixture(autouse=True)
    def a_server(self, elastic: EmbeddedElasticsearch) -> None:
        self.server = elastic


def ask(url: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  JSON
    """Ask the server, as anybody would."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{url}{path}", data=data, method=method, headers={"content-type": "application/json"})  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310  of this machine
        return json.loads(answer.read() or "null")


def make(url: str, index: str, **body: object) -> None:
    """Make an index of one shard."""
    settings = {"number_of_shards": 1, "number_of_replicas": 0}
    ask(url, "PUT", f"/{index}", {"settings": settings, **body})


def documents(url: str, index: str) -> dict[str, dict[str, Any]]:
    """Read every document that is a row, by its id."""
    ask(url, "POST", f"/{index}/_refresh")
    gone = {"bool": {"must_not": {"exists": {"field": "onceonly.deleted"}}}}
    found = ask(url, "POST", f"/{index}/_search", {"size": 10_000, "query": gone})
    return {each["_id"]: each["_source"] for each in found["hits"]["hits"]}
