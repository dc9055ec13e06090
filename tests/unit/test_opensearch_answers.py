"""What each answer of a cluster means, by both clients, and which columns fit which fields."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from tests.unit.http_double import served

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.families.columns import Type, parse
from onceonly.families.keyed import KeyedRows, Newer
from onceonly.sinks.opensearch import ElasticsearchSink, OpenSearchSink, types
from onceonly.sinks.opensearch.options import SearchOptions
from onceonly.sinks.opensearch.target import Item

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "opensearch-options.md"
GIVEN = {"url": "http://localhost:9200", "index": "i", "key": "key"}


class Cluster(BaseHTTPRequestHandler):
    """Answers what a test has put into ``answers``, the last one again and again; keeps what it was asked."""

    answers: ClassVar[list[tuple[int, Any]]] = []
    asked: ClassVar[list[tuple[str, str, bytes, str]]] = []
    kind = "application/json"

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.asked.append((self.command, self.path, body, self.headers.get("authorization", "")))
        status, answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", self.kind)
        self.send_header("x-elastic-product", "Elasticsearch")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815  the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Cluster.answers.clear()
    Cluster.asked.clear()
    yield from (f"http://{address}" for address in served(Cluster))


@pytest.fixture(params=[OpenSearchSink, ElasticsearchSink])
def sink(request: pytest.FixtureRequest, url: str) -> Iterator[OpenSearchSink]:
    made = request.param({**GIVEN, "url": url, "timeout": "20 seconds", "user": "me", "password": "canary"})
    yield made
    made.close()


def rows(count: int) -> KeyedRows:
    keys = [f"k{number}" for number in range(count)]
    return KeyedRows(keys=keys, deleted=[False] * count, rows=pa.RecordBatch.from_pydict({"key": keys}))


def item(status: int, kind: str = "", reason: str = "") -> dict[str, Any]:
    error = {"error": {"type": kind, "reason": reason}} if kind else {}
    return {"index": {"status": status, **error}}


def bulk(*items: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"errors": any("error" in each["index"] for each in items), "items": list(items)}


BUSY = item(429, "es_rejected_execution_exception", "queue is full")


def test_each_row_of_a_request_has_its_own_answer(sink: OpenSearchSink) -> None:
    reason = "[k1]: version conflict, current version [9] is higher than the one provided [7]"
    conflict = item(409, "version_conflict_engine_exception", reason)
    Cluster.answers += [
        bulk(item(200), conflict, item(400, "mapper_parsing_exception", "failed to parse"), BUSY),
        bulk(item(201)),
    ]
    refused, newer = sink.put(rows(4), 7)
    assert newer == Newer("k1", 9)
    assert [(each.row, each.code) for each in refused] == [(2, "MAPPING")]
    assert "failed to parse" in refused[0].why
    again = Cluster.asked[1][2].decode().splitlines()
    assert [json.loads(line)["index"]["_id"] for line in again[::2]] == ["k3"]
    assert json.loads(again[0])["index"] == {"_id": "k3", "version": 7, "version_type": "external_gte"}


def test_a_document_that_a_pipeline_drops_or_sends_elsewhere_is_no_success(sink: OpenSearchSink) -> None:
    dropped = {"index": {"status": 200, "result": "noop", "_index": "i"}}
    elsewhere = {"index": {"status": 201, "result": "created", "_index": "other"}}
    Cluster.answers.append(
        bulk({"index": {"status": 201, "result": "created", "_index": "i"}}, dropped, elsewhere)
    )
    refused, newer = sink.put(rows(3), 7)
    assert newer is None
    assert [(each.row, each.code) for each in refused] == [(1, "DROPPED"), (2, "DROPPED")]
    assert "an ingest pipeline has dropped it" in refused[0].why
    assert "has sent it to the index other" in refused[1].why


@pytest.mark.parametrize(
    ("kind", "reason", "next_step"),
    [
        ("index_closed_exception", "closed", "POST /i/_open"),
        ("illegal_argument_exception", "pipeline with id [mine] does not exist", "index.default_pipeline"),
    ],
)
def test_what_is_wrong_with_an_index_makes_no_row_a_wrong_one(
    sink: OpenSearchSink, kind: str, reason: str, next_step: str
) -> None:
    """Rows that are refused may become dead letters, and here nothing is wrong with any."""
    Cluster.answers.append(bulk(item(400, kind, reason)))
    with pytest.raises(ConfigurationError, match=kind) as raised:
        sink.put(rows(1), 7)
    assert next_step in raised.value.next_step


def test_a_whole_request_that_is_refused_for_now_is_asked_again(sink: OpenSearchSink) -> None:
    Cluster.answers += [(429, {"error": {"type": "x", "reason": "memory"}}), bulk(item(200), item(200))]
    assert sink.put(rows(2), 7) == ([], None)
    assert len(Cluster.asked) == 2


def test_a_cluster_that_stays_busy_is_told_of_and_restartable(sink: OpenSearchSink) -> None:
    sink._target._options = replace(sink._search, timeout_s=0.3)
    Cluster.answers += [bulk(BUSY)]
    with pytest.raises(UnavailableError, match="has had too much to do"):
        sink.put(rows(1), 7)


def test_a_document_longer_than_a_request_may_be_is_refused_before_the_vote(sink: OpenSearchSink) -> None:
    told = {"persistent": {}, "defaults": {"http": {"max_content_length": "10kb"}}}
    refusal = {"error": {"type": "security_exception", "reason": "no"}, "status": 403}
    Cluster.answers += [(200, told), (403, refusal), (401, {"Message": "http: no"})]
    assert [sink._target.content_max() for _ in range(3)] == [10 << 10, 100 << 20, 100 << 20]
    sink._content_max = 10 << 10
    batch = pa.RecordBatch.from_pydict({"key": ["a", "b"], "text": ["x" * 8000, "x" * 9000]})
    [refused] = sink.unfit(KeyedRows(keys=["a", "b"], deleted=[False] * 2, rows=batch))
    assert (refused.row, refused.code) == (1, "TOO_LARGE")
    assert "http.max_content_length" in refused.why


@pytest.mark.parametrize("kind", ["application/json", "text/html", "text/plain"])
def test_an_answer_that_is_no_json_is_told_with_the_server(
    sink: OpenSearchSink, kind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "kind", kind)
    Cluster.answers += [(200, b"<html>log in first</html>")]
    with pytest.raises(UnavailableError, match=f"{url}.* gives an answer that is no JSON") as raised:
        sink.put(rows(1), 7)
    assert "the option url" in raised.value.next_step


def test_a_request_that_is_too_large_is_halved_down_to_the_row_that_is(sink: OpenSearchSink) -> None:
    large = (413, {"error": "too large"})
    Cluster.answers += [large, bulk(item(200), item(200)), large, large, bulk(item(200))]
    refused, _ = sink.put(rows(4), 7)
    assert [(each.row, each.code) for each in refused] == [(2, "TOO_LARGE")]


@pytest.mark.parametrize(
    ("status", "kind", "reason", "error", "said"),
    [
        (401, "security_exception", "no", ConfigurationError, "does not let the user me in"),
        (403, "security_exception", "no permissions", ConfigurationError, "does not permit the user me"),
        (403, "cluster_block_exception", "index [i] blocked by: [FORBIDDEN/12/index read-only / allow delete (api)]",
         UnavailableError, "disk is nearly full"),
        (403, "cluster_block_exception", "index [i] blocked by: [FORBIDDEN/8/index write (api)]",
         ConfigurationError, "an index that is blocked"),
        (404, "index_not_found_exception", "no such index [i]", ConfigurationError, "has no index i"),
        (503, "x", "no master", UnavailableError, "cannot answer now"),
        (400, "illegal_argument_exception", "odd", ConfigurationError, "refuses: 400"),
    ],
)  # fmt: skip
def test_each_status_has_its_sentence(
    sink: OpenSearchSink, status: int, kind: str, reason: str, error: type[OnceonlyError], said: str
) -> None:
    Cluster.answers.append((status, {"error": {"type": kind, "reason": reason}, "status": status}))
    with pytest.raises(error, match=said) as raised:
        sink.put(rows(1), 7)
    assert "canary" not in str(raised.value)


def test_a_document_that_cannot_be_looked_up_now_is_not_one_that_is_missing(sink: OpenSearchSink) -> None:
    def answered(kind: str) -> tuple[int, dict[str, Any]]:
        error = {"type": kind, "reason": "no such [i]"}
        return 200, {"docs": [{"_index": "i", "_id": "newest:i/q/s", "error": error}]}

    Cluster.answers.append(answered("no_shard_available_action_exception"))
    for look in (partial(sink.newest, "q", "s"), partial(sink.examine, rows(1), 7)):
        with pytest.raises(UnavailableError, match="cannot answer now: 503 no_shard_available"):
            look()
    Cluster.answers[:] = [answered("index_not_found_exception")]
    assert sink.newest("q", "s") is None
    with pytest.raises(ConfigurationError, match="has no index i"):
        sink.examine(rows(1), 7)


@pytest.mark.parametrize("page", [0, 1])
def test_rows_are_not_counted_where_some_of_the_shards_do_not_answer(sink: OpenSearchSink, page: int) -> None:
    def answered(*versions: int, successful: int = 2) -> tuple[int, dict[str, Any]]:
        hits = [{"_version": version} for version in versions]
        shards = {"total": 2, "successful": successful, "failed": 2 - successful}
        return 200, {"_scroll_id": "s", "_shards": shards, "hits": {"hits": hits}}

    whole = [(200, {}), answered(3, 3), answered(4), answered(), (200, {})]
    Cluster.answers[:] = whole
    assert sink.versions() == {3: 2, 4: 1}
    Cluster.answers[:] = [*whole[: 1 + page], answered(3, successful=1), answered(), (200, {})]
    with pytest.raises(UnavailableError, match="1 of 2 shards have answered"):
        sink.versions()


def test_who_writes_says_so(url: str) -> None:
    Cluster.answers += [bulk(item(200))]
    key = {"api.key": "a2V5"}
    for each in (
        OpenSearchSink({**GIVEN, "url": url, **key}),
        ElasticsearchSink({**GIVEN, "url": url, **key}),
    ):
        each.put(rows(1), 7)
        each.close()
    assert [authorization for *_, authorization in Cluster.asked] == ["ApiKey a2V5"] * 2


@pytest.mark.parametrize("kind", [OpenSearchSink, ElasticsearchSink])
def test_a_password_in_a_file_may_be_changed_while_the_query_runs(
    url: str, kind: type[OpenSearchSink], tmp_path: Path
) -> None:
    Cluster.answers += [bulk(item(200))]
    file = tmp_path / "password"
    sink = kind({**GIVEN, "url": url, "user": "me", "password.file": str(file)})
    for password in ("first", "s€cond"):
        file.write_text(f"{password}\n", encoding="utf-8")
        sink.put(rows(1), 7)
        word = Cluster.asked[-1][3].removeprefix("Basic ")
        assert base64.b64decode(word).decode() == f"me:{password}"
    file.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        sink.put(rows(1), 7)
    sink.close()


def test_threads_that_ask_at_once_keep_a_connection_each(
    sink: OpenSearchSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Cluster.answers += [bulk(item(200))]
    sink.put(rows(1), 7)
    both_ask = Barrier(2, timeout=20)
    answer = Cluster.do_POST
    monkeypatch.setattr(Cluster, "do_POST", lambda handler: (both_ask.wait(), answer(handler)))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: sink.put(rows(1), 7), range(2))) == [([], None)] * 2
    assert [record.getMessage() for record in caplog.records if record.name.startswith("urllib3")] == []


def test_a_cluster_that_is_not_there_may_come_back(sink: OpenSearchSink, url: str) -> None:
    gone = type(sink)({**GIVEN, "url": "http://127.0.0.1:1", "timeout": "1 second"})
    with pytest.raises(UnavailableError, match="does not answer"):
        gone.put(rows(1), 7)
    gone.close()


def test_requests_are_no_larger_than_they_may_be(
    sink: OpenSearchSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.sinks.opensearch.target.BULK_ROWS", 3)
    Cluster.answers += [bulk(*[item(200)] * 3), bulk(*[item(200)] * 3), bulk(item(200))]
    assert sink.put(rows(7), 7) == ([], None)
    assert [body.count(b"_id") for _, _, body, _ in Cluster.asked] == [3, 3, 1]
    monkeypatch.setattr("onceonly.sinks.opensearch.target.BULK_BYTES", Item(0, b"x" * 50, b"").size)
    Cluster.answers += [bulk(item(200))] * 2
    Cluster.asked.clear()
    assert sink.put(rows(2), 7) == ([], None)
    assert len(Cluster.asked) == 2


# --- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "localhost:9200"}, "not one of a cluster"),
        ({"url": "http://me:canary@localhost"}, "or says who comes"),
        ({"url": "http://a:9200,ftp://b"}, "not one of a cluster"),
        ({"index": "a*"}, "the name of one index"),
        ({"index": "a,b"}, "the name of one index"),
        ({"api.key": "canary", "user": "me"}, "leave one out"),
        ({"books": "i"}, "is its index, too"),
        ({"timeout": "0 s"}, "a time such as"),
    ],
)
def test_wrong_options_are_refused_by_name_without_a_secret(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        OpenSearchSink({**GIVEN, **given})
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


def test_certificates_are_verified_and_several_nodes_are_one_cluster() -> None:
    sink = OpenSearchSink({**GIVEN, "url": "https://b:1/, https://a:2", "tls.ca": __file__})
    assert sink.identity() == {"cluster": "https://a:2,https://b:1", "index": "i"}
    client: Any = OpenSearchSink.client(sink._search)
    for connection in client._client.transport.connection_pool.connections:
        assert connection.pool.cert_reqs == "CERT_REQUIRED"
    client.close()


def test_options_do_not_show_secrets() -> None:
    assert "canary" not in repr(
        SearchOptions.of(OpenSearchSink({**GIVEN, "password": "canary"}).options, "x")
    )


def test_the_page_has_the_table_of_the_declared_options() -> None:
    assert "```{onceonly-options} onceonly.sinks.opensearch.options\n" in PAGE.read_text(encoding="utf-8")


# --- types ------------------------------------------------------------------------------------------------------


def test_types_are_read_as_spark_writes_them() -> None:
    text = "struct<a:int,b:array<struct<c:decimal(10,2)>>,d:string>"
    inner = Type("array", (("element", Type("struct", (("c", Type("decimal(10,2)")),))),))
    fields = (("a", Type("int")), ("b", inner), ("d", Type("string")))
    assert parse(text) == Type("struct", fields)
    assert parse("interval day to second") == Type("interval day to second")


def test_only_fields_that_are_not_there_are_added() -> None:
    have = {"a": {"properties": {"x": {"type": "long"}}}, "b": {"type": "keyword"}}
    columns = [("a", "struct<x:int,y:boolean>"), ("b", "string"), ("c", "array<date>")]
    assert types.missing(columns, have, "x") == {
        "a": {"properties": {"y": {"type": "boolean"}}},
        "c": {"type": "date"},
    }
