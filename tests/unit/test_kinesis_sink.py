"""The Kinesis sink against a double of its client: answers for each record, throttling, limits, bad input."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, NoCredentialsError

from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError
from onceonly.families import kinesis
from onceonly.model import Guarantee
from onceonly.options import public_options
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.kinesis import KinesisSink
from onceonly.sinks.kinesis.target import CALL_BYTES_MAX, RECORDS_MAX, Records, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OPTIONS = {"stream": "orders", "region": "eu-central-1", "access.key": "AK", "secret.key": "5ecret"}
CONTEXT = WriteContext(
    query="q", sink="kinesis", run="r", epoch=3, plan="p", slot=1, attempt="a", guarantee=Guarantee.AT_LEAST_ONCE,
)  # fmt: skip


class FakeClock:
    """A clock that sleeps in no time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


class Client:
    """Answers ``put_records`` by ``verdict``: an error code for a record, None where it is taken."""

    def __init__(self, verdict: Callable[[int, dict[str, Any]], str | None] | None = None) -> None:
        self.calls: list[list[dict[str, Any]]] = []
        self.taken: list[bytes] = []
        self.raises: list[Exception] = []
        self.summary: dict[str, Any] = {"StreamStatus": "ACTIVE"}
        self._verdict = verdict or (lambda _call, _record: None)

    def put_records(self, **given: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's, or fields of a class
        if self.raises:
            raise self.raises.pop(0)
        assert given["StreamName"] == "orders"
        records = given["Records"]
        assert len(records) <= RECORDS_MAX
        self.calls.append(records)
        told = [self._verdict(len(self.calls), record) for record in records]
        self.taken += [record["Data"] for record, code in zip(records, told, strict=True) if code is None]
        answers = [{"ErrorCode": code, "ErrorMessage": "no"} if code else {"ShardId": "0"} for code in told]
        return {"FailedRecordCount": sum(map(bool, told)), "Records": answers}

    def describe_stream_summary(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's, or fields of a class
        if self.raises:
            raise self.raises.pop(0)
        return {"StreamDescriptionSummary": self.summary}

    def close(self) -> None:
        """Nothing is open."""


def error(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "told so"}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "PutRecords",
    )


def sink(monkeypatch: pytest.MonkeyPatch, client: Client, **options: str) -> KinesisSink:
    monkeypatch.setattr(kinesis, "_make", lambda *_: client)
    made = KinesisSink({**OPTIONS, **options})
    made._stream._clock = FakeClock()
    return made


def records(client: Client, **options: Any) -> Records:  # noqa: ANN401  as boto3's, or fields of a class
    clock = FakeClock()
    stream = kinesis.Stream(kinesis.StreamOptions(stream="orders", **options), "the sink kinesis", clock)
    stream._client = client
    return Records(stream, clock)


def put(client: Client, rows: Sequence[bytes], **options: Any) -> None:  # noqa: ANN401  as boto3's, or fields of a class
    made = records(client, **options)
    made.add(("k", row) for row in rows)
    made.send()


def look(made: KinesisSink, *columns: tuple[str, str]) -> dict[str, str | int]:
    context = QueryContext(
        query="q",
        sink="kinesis",
        guarantee=Guarantee.AT_LEAST_ONCE,
        columns=columns or (("value", "string"),),
    )
    return dict(made.check(context))


# ------------------------------------------------------------------------------------------ records
def test_records_go_out_in_their_order_500_a_call() -> None:
    client = Client()
    rows = [b"%d" % number for number in range(1201)]
    put(client, rows)
    assert client.taken == rows
    assert [len(call) for call in client.calls] == [500, 500, 201]


def test_no_call_is_larger_than_the_service_takes() -> None:
    client = Client()
    put(client, [bytes(1_000_000)] * 12)
    sizes = [sum(size_of(each["PartitionKey"], each["Data"]) for each in call) for call in client.calls]
    assert max(sizes) <= CALL_BYTES_MAX
    assert len(client.taken) == 12


def test_only_what_was_not_taken_is_sent_again() -> None:
    def third_is_throttled_once(call: int, record: dict[str, Any]) -> str | None:
        is_third = record["Data"] == b"2"
        return "ProvisionedThroughputExceededException" if is_third and call == 1 else None

    client = Client(third_is_throttled_once)
    put(client, [b"0", b"1", b"2", b"3"])
    assert client.taken == [b"0", b"1", b"3", b"2"]
    assert [len(call) for call in client.calls] == [4, 1]


def test_a_call_waits_until_the_one_before_it_was_taken() -> None:
    client = Client(lambda call, record: "InternalFailure" if call == 1 and record["Data"] == b"7" else None)
    rows = [b"%d" % number for number in range(501)]
    put(client, rows)
    assert client.taken[-2:] == [b"7", b"500"]


def test_throttled_for_good_it_ends_after_its_time_and_names_it() -> None:
    client = Client(lambda _call, _record: "ProvisionedThroughputExceededException")
    with pytest.raises(UnavailableError, match=r"for 10 s: Provisioned.*for 2 records"):
        put(client, [b"0", b"1"], timeout_s=10.0)


def test_while_records_are_taken_the_time_begins_anew() -> None:
    client = Client(
        lambda call, record: None if record["Data"] == b"%d" % (call // 20) else "InternalFailure"
    )
    put(client, [b"%d" % number for number in range(5)], timeout_s=60.0)
    assert Counter(client.taken) == Counter(b"%d" % number for number in range(5))


def test_a_record_that_no_try_would_save_stops_at_once() -> None:
    client = Client(lambda _call, _record: "KMSAccessDeniedException")
    with pytest.raises(ConfigurationError, match="may not use the stream orders"):
        put(client, [b"0"])
    assert len(client.calls) == 1


# -------------------------------------------------------------------------------------------- calls
@pytest.mark.parametrize(
    "passing",
    [
        error("ProvisionedThroughputExceededException"),
        error("ServiceUnavailable", 503),
        error("Unheard", 500),
        ConnectTimeoutError(endpoint_url="http://x"),
        ConnectionResetError("reset"),
    ],
)
def test_a_call_that_may_pass_is_made_again(passing: Exception) -> None:
    client = Client()
    client.raises = [passing, passing]
    put(client, [b"0"])
    assert client.taken == [b"0"]


def test_a_service_that_does_not_come_back_is_unavailable() -> None:
    client = Client()
    client.raises = [ConnectionResetError("reset")] * 1000
    with pytest.raises(UnavailableError, match="orders at eu-central-1 for 5 s: ConnectionResetError"):
        put(client, [b"0"], timeout_s=5.0, region="eu-central-1")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (error("ResourceNotFoundException"), "there is no stream orders"),
        (error("ExpiredTokenException"), "may not use the stream orders"),
        (error("InvalidArgumentException"), "refuses a call: InvalidArgumentException"),
        (NoCredentialsError(), "has no credentials"),
    ],
)
def test_what_does_not_pass_stops_with_a_sentence(found: Exception, said: str) -> None:
    client = Client()
    client.raises = [found]
    with pytest.raises(ConfigurationError, match=said):
        put(client, [b"0"])


# --------------------------------------------------------------------------------------------- rows
def test_a_rows_column_chooses_its_key_whatever_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    made = sink(monkeypatch, client, partitionKey="customer")
    attempt = made.begin_transaction(CONTEXT)
    made.write(attempt, pa.record_batch({"value": ["a", "b"], "customer": pa.array([7, 8])}))
    made.pre_commit(attempt)
    assert [record["PartitionKey"] for record in client.calls[0]] == ["7", "8"]


def test_without_a_column_keys_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    made = sink(monkeypatch, client)
    attempt = made.begin_transaction(CONTEXT)
    made.write(attempt, pa.record_batch({"value": ["a"] * 100}))
    made.pre_commit(attempt)
    assert len({record["PartitionKey"] for record in client.calls[0]}) == 100


@pytest.mark.parametrize(
    ("value", "key", "code"),
    [
        (None, "k", "NO_VALUE"), ("v", None, "NO_KEY"), ("v", "", "NO_KEY"), ("v", "k" * 257, "KEY_TOO_LONG"),
        ("v", "𝄞" * 129, "KEY_TOO_LONG"), ("v" * (1 << 20), "k", "TOO_LARGE"),
    ],
)  # fmt: skip
def test_a_row_that_no_stream_takes_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str | None, key: str | None, code: str
) -> None:
    client = Client()
    made = sink(monkeypatch, client)
    context = WriteContext(
        **{name: getattr(CONTEXT, name) for name in CONTEXT.__slots__} | {"gives_back": True}
    )
    attempt = made.begin_transaction(context)
    schema = pa.schema([("value", pa.string()), ("partitionKey", pa.string())])
    rows = pa.RecordBatch.from_pydict(
        {"value": ["a", value], "partitionKey": ["k" * 256, key]}, schema=schema
    )
    [refused] = made.write(attempt, rows)
    made.pre_commit(attempt)
    assert (refused.row, refused.code) == (1, code)
    assert client.taken == [b"a"]
    with pytest.raises(RecordRefusedError):
        made.write(made.begin_transaction(CONTEXT), rows)


def test_a_stream_of_larger_records_says_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    made = sink(monkeypatch, client)
    assert look(made) == {"record_bytes": 1 << 20}
    client.summary["MaxRecordSizeInKiB"] = 10_240
    facts = look(made)
    context = WriteContext(**{name: getattr(CONTEXT, name) for name in CONTEXT.__slots__} | {"facts": facts})
    attempt = made.begin_transaction(context)
    made.write(attempt, pa.record_batch({"value": ["v" * (7 << 20), "w"]}))
    made.pre_commit(attempt)
    assert [len(call) for call in client.calls] == [1, 1]


# ---------------------------------------------------------------------------------------- the start
def test_who_may_not_look_at_the_stream_may_still_write(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.raises = [error("AccessDeniedException")]
    assert look(sink(monkeypatch, client)) == {"record_bytes": 1 << 20}


def test_of_its_rights_it_is_said_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.raises = [error("AccessDeniedException"), error("ResourceNotFoundException")]
    made = sink(monkeypatch, client)
    context = QueryContext(query="q", sink="kinesis", guarantee=Guarantee.AT_LEAST_ONCE)
    assert "may not look at the stream orders" in made.require_rights(context)
    with pytest.raises(ConfigurationError, match="there is no stream orders"):
        made.require_rights(context)
    assert "is there, and whether records may be put" in made.require_rights(context)
    assert client.calls == []


def test_a_stream_that_is_being_deleted_takes_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    client.summary["StreamStatus"] = "DELETING"
    with pytest.raises(UnavailableError, match="DELETING"):
        look(sink(monkeypatch, client))


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({"partitionKey": "customer"}, [("value", "string")], "no such column"),
        ({"partitionKey": "at"}, [("value", "string"), ("at", "timestamp")], "cannot be a partition key"),
        ({}, [("value", "string"), ("partitionKey", "double")], "cannot be a partition key"),
        ({}, [("value", "string"), ("shardId", "string")], "shardId would be left out"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], columns: list[tuple[str, str]], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        look(sink(monkeypatch, Client(), **options), *columns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": None}, "stream of the sink kinesis is missing"),
        ({"endpoint": "localhost:4567"}, "which is no address"),
        ({"secret.key": None}, "one is given"),
        ({"timeout": "0 s"}, "timeout"),
        ({"streamName": "x"}, "knows no option streamname"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str | None], said: str) -> None:
    given = {name: value for name, value in {**OPTIONS, **options}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=said):
        KinesisSink(given)


def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink(monkeypatch, Client())
    shown = f"{made.identity()} {public_options(KinesisSink.declared, OPTIONS)} {made._stream.options}"
    assert "5ecret" not in shown
    assert "orders" in shown
