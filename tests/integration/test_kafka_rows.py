"""What of a row reaches Kafka, and what is refused, with a real broker."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from tests.ways import taken

from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers.pool import transactional_client
from onceonly.sinks.kafka.producers.reach import Reach
from onceonly.sinks.kafka.records import record_batches
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly_proof.embedded.jars import NEWEST
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Where Java's default partitioner puts these keys among 8 partitions: murmur2 as in kafka-clients'
# org.apache.kafka.common.utils.Utils, whose own tests give the hashes of "21", "foobar", "abc".
JAVA_PARTITIONS = {b"21": 4, b"foobar": 6, b"abc": 3, b"": 1}


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedKafka]:
    """A broker that creates no topics and allows one minute for a transaction."""
    with EmbeddedKafka(
        properties={"auto.create.topics.enable": "false", "transaction.max.timeout.ms": "60000"}
    ) as broker:
        yield broker


@pytest.fixture(params=["direct", "direct, compiled", "row"])
def producer(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each way in which rows reach Kafka; what arrives is the same."""
    way, _, loops = str(request.param).partition(", ")
    with taken(record_batches.LOOPS, by_loops=bool(loops)):
        yield way


def query_context(*columns: tuple[str, str], guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> QueryContext:
    return QueryContext(query=uuid.uuid4().hex, sink="kafka", guarantee=guarantee, columns=columns)


def write(
    broker: EmbeddedKafka,
    batch: pa.RecordBatch,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    **options: str,
) -> None:
    named = {name.replace("__", "."): value for name, value in options.items()}
    if "producer" in named:
        named["onceonly.producer"] = named.pop("producer")
    sink = KafkaSink({"kafka.bootstrap.servers": broker.bootstrap_servers, **named})
    context = query_context(guarantee=guarantee)
    facts = sink.check(context)
    transaction = sink.begin_transaction(
        WriteContext(
            query=context.query,
            sink="kafka",
            run="run",
            epoch=0,
            plan="plan",
            slot=0,
            attempt="0",
            guarantee=guarantee,
            facts=facts,
        )
    )
    try:
        sink.write(transaction, batch)
        handle = sink.pre_commit(transaction)
    except BaseException:
        sink.discard(transaction)
        raise
    if handle is not None:
        sink.commit(handle)
    sink.close()


def read(broker: EmbeddedKafka, topic: str, partitions: int, count: int) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages: list[Any] = []
    deadline = time.monotonic() + 30
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            messages.append(message)
    consumer.close()
    assert len(messages) == count
    return messages


def new_topic(broker: EmbeddedKafka, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    topic = f"t-{uuid.uuid4().hex}"
    broker.create_topic(topic, partitions=partitions, configs=configs)
    return topic


def test_keys_go_where_java_puts_them(kafka: EmbeddedKafka, producer: str) -> None:
    topic = new_topic(kafka, partitions=8)
    keys = list(JAVA_PARTITIONS)
    write(kafka, pa.RecordBatch.from_pydict({"key": keys, "value": keys}), topic=topic, producer=producer)
    found = {message.value(): message.partition() for message in read(kafka, topic, 8, len(keys))}
    assert found == JAVA_PARTITIONS


def test_headers_partitions_tombstones_and_strings(kafka: EmbeddedKafka, producer: str) -> None:
    topic = new_topic(kafka, partitions=3)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["grüße", None, "c"]),
            pa.array([b"k", b"gone", None]),
            pa.array([2, 2, 1], pa.int32()),
            pa.array([[("h", b"1"), ("h", None)], None, []], HEADERS),
            pa.array(["elsewhere"] * 3),
            pa.array([1, 2, 3]),
        ],
        names=["value", "key", "partition", "headers", "topic", "ignored"],
    )
    write(kafka, batch, topic=topic, includeHeaders="false", producer=producer)
    messages = sorted(read(kafka, topic, 3, 3), key=lambda message: (message.partition(), message.offset()))
    last, first, tombstone = messages
    assert (first.value(), first.key(), first.partition()) == ("grüße".encode(), b"k", 2)
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert (tombstone.value(), tombstone.key()) == (None, b"gone")
    assert (last.value(), last.key(), last.partition()) == (b"c", None, 1)


def test_a_null_partition_leaves_the_choice_to_the_key(kafka: EmbeddedKafka, producer: str) -> None:
    topic = new_topic(kafka, partitions=8)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"]), pa.array([b"foobar"]), pa.array([None], pa.int32())],
        names=["value", "key", "partition"],
    )
    write(kafka, batch, topic=topic, producer=producer)
    assert read(kafka, topic, 8, 1)[0].partition() == JAVA_PARTITIONS[b"foobar"]


@pytest.mark.parametrize("partitions", [[2, 0, 2, 1], [2, None, 2, None]], ids=["all", "some"])
def test_rows_name_their_partitions_in_topics_that_the_client_meets_for_the_first_time(
    kafka: EmbeddedKafka, producer: str, partitions: list[int | None]
) -> None:
    marker_topic, first, second = (new_topic(kafka, partitions=3) for _ in range(3))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"1", b"2", b"3", b"4"]),
            pa.array([b"k"] * 4),
            pa.array(partitions, pa.int32()),
            pa.array([first, first, first, second]),
        ],
        names=["value", "key", "partition", "topic"],
    )
    began = time.monotonic()
    write(kafka, batch, onceonly__marker__topic=marker_topic, producer=producer)
    assert time.monotonic() - began < 30, "nothing waited for a time-out"
    found = [(message.partition(), message.value()) for message in read(kafka, first, 3, 3)]
    assert [value for partition, value in found if partition == 2 and value in {b"1", b"3"}] == [b"1", b"3"]
    assert all(partitions[1] in {partition, None} for partition, value in found if value == b"2")
    assert read(kafka, second, 3, 1)[0].value() == b"4"


def test_a_partition_that_is_not_there_is_refused_and_holds_up_nobody(
    kafka: EmbeddedKafka, producer: str
) -> None:
    topic = new_topic(kafka)
    wrong = pa.RecordBatch.from_arrays(
        [pa.array([b"v"] * 100), pa.array([9] * 100, pa.int32())], names=["value", "partition"]
    )
    for guarantee in (Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE):
        with pytest.raises(RecordRefusedError, match="Row 0 of this slot names partition 9"):
            write(kafka, wrong, guarantee, topic=topic, producer=producer)
        began = time.monotonic()
        write(kafka, pa.RecordBatch.from_pydict({"value": [b"v"]}), guarantee, topic=topic, producer=producer)
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["", "cut\0here", "x" * 600], ids=["empty", "zero byte", "long"])
def test_a_topic_that_can_be_none_is_refused(kafka: EmbeddedKafka, producer: str, name: str) -> None:
    topic = new_topic(kafka)
    batch = pa.RecordBatch.from_pydict({"value": ["1", "2"], "topic": [topic, name]})
    with pytest.raises(RecordRefusedError, match="no name of a topic"):
        write(kafka, batch, onceonly__marker__topic=topic, producer=producer)


def test_rows_carry_their_topics(kafka: EmbeddedKafka, producer: str) -> None:
    first, second = new_topic(kafka), new_topic(kafka)
    batch = pa.RecordBatch.from_pydict({"value": ["1", "2"], "topic": [first, second]})
    write(kafka, batch, onceonly__marker__topic=first, producer=producer)
    assert read(kafka, first, 1, 1)[0].value() == b"1"
    assert read(kafka, second, 1, 1)[0].value() == b"2"


def test_a_null_topic_is_refused_by_its_row(kafka: EmbeddedKafka, producer: str) -> None:
    topic = new_topic(kafka)
    batch = pa.RecordBatch.from_pydict({"value": ["1", "2"], "topic": [topic, None]})
    with pytest.raises(RecordRefusedError, match="Row 1"):
        write(kafka, batch, onceonly__marker__topic=topic, producer=producer)


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_row_over_our_limit_is_refused_by_size_and_limit(
    kafka: EmbeddedKafka, guarantee: Guarantee, producer: str
) -> None:
    topic = new_topic(kafka)
    batch = pa.RecordBatch.from_pydict({"value": ["a", "x" * 5000]})
    with pytest.raises(RecordRefusedError, match=r"5000 bytes .*kafka.max.request.size, 2000"):
        write(kafka, batch, guarantee, topic=topic, kafka__max__request__size="2000", producer=producer)


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE])
def test_a_row_over_the_topics_limit_is_refused(
    kafka: EmbeddedKafka, guarantee: Guarantee, producer: str
) -> None:
    topic = new_topic(kafka, configs={"max.message.bytes": "3000"})
    batch = pa.RecordBatch.from_pydict({"value": ["x" * 5000]})
    with pytest.raises(RecordRefusedError, match=r"5000 bytes .*max.message.bytes"):
        write(kafka, batch, guarantee, topic=topic, producer=producer)


def test_more_rows_than_the_buffer_holds_are_all_written(kafka: EmbeddedKafka, producer: str) -> None:
    topic = new_topic(kafka)
    batch = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 5000})
    write(kafka, batch, topic=topic, kafka__buffer__memory="65536", producer=producer)
    assert len(read(kafka, topic, 1, 5000)) == 5000


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_rows_are_read_back(kafka: EmbeddedKafka, producer: str, compression: str) -> None:
    topic = new_topic(kafka)
    rows = [b"%06d" % number + b"event" * 40 for number in range(4_000)]  # several blocks of each format
    batch = pa.RecordBatch.from_pydict({"value": rows})
    write(kafka, batch, topic=topic, producer=producer, kafka__compression__type=compression)
    if compression != "snappy":  # which has no levels
        level = {f"kafka.compression.{compression}.level": "3"}
        sink_options = {"topic": topic, "producer": producer, "kafka.compression.type": compression}
        write(kafka, batch, **sink_options, **level)  # type: ignore[arg-type]  # options only
    else:
        write(kafka, batch, topic=topic, producer=producer, kafka__compression__type=compression)
    found = [message.value() for message in read(kafka, topic, 1, 2 * len(rows))]
    assert found == rows * 2


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_columns_of_every_kind_of_text_are_written(
    kafka: EmbeddedKafka, producer: str, kind: pa.DataType
) -> None:
    topic = new_topic(kafka)
    values = pa.array(["before", "a", None, "grüße"]).cast(kind).slice(1)
    batch = pa.RecordBatch.from_arrays([values, pa.array(["k"] * 3)], names=["value", "key"])
    write(kafka, batch, topic=topic, producer=producer)
    assert [message.value() for message in read(kafka, topic, 1, 3)] == [b"a", None, "grüße".encode()]


def test_a_missing_topic_is_named_where_the_broker_creates_none(strict: EmbeddedKafka) -> None:
    sink = KafkaSink({"kafka.bootstrap.servers": strict.bootstrap_servers, "topic": "missing"})
    with pytest.raises(ConfigurationError, match=r"missing does not exist"):
        sink.check(query_context())


def test_a_missing_topic_is_created_where_the_broker_does_so(kafka: EmbeddedKafka, producer: str) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    write(kafka, pa.RecordBatch.from_pydict({"value": ["1"]}), topic=topic, producer=producer)
    assert read(kafka, topic, 1, 1)[0].value() == b"1"


def test_a_timeout_above_the_brokers_names_both(strict: EmbeddedKafka) -> None:
    topic = new_topic(strict)
    options = {"kafka.bootstrap.servers": strict.bootstrap_servers, "topic": topic}
    sink = KafkaSink({**options, "kafka.transaction.timeout.ms": "60001"})
    with pytest.raises(ConfigurationError, match=r"60001 ms .* 60000 ms"):
        sink.check(query_context())
    # Left to us, it is the broker's maximum.
    assert KafkaSink(options).check(query_context())["transaction_timeout_ms"] == 60000


def test_servers_that_do_not_answer_are_named() -> None:
    sink = KafkaSink({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1 "):
        sink.check(query_context())
    assert time.monotonic() - started < 40


def test_facts_and_identity_name_the_cluster(kafka: EmbeddedKafka) -> None:
    topic = new_topic(kafka)
    sink = KafkaSink({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic})
    facts = sink.check(query_context(("value", "string")))
    cluster = kafka.admin()
    assert facts["cluster_id"] == cluster.list_topics(timeout=10).cluster_id
    # The fifth version came with 4.0: a coordinator of before speaks the third.
    assert facts["end_txn_version"] == (5 if kafka.release == NEWEST else 3)
    admin = kafka.admin()  # a name of its own: the answer needs the client alive
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(10)
    assert sink.identity() == {
        "cluster": facts["cluster_id"],
        "topic": topic,
        # As Kafka's tools show it; librdkafka writes its own ids with the other two letters of base64.
        "topic_id": str(described.topic_id).replace("+", "-").replace("/", "_"),
        "prefix": "onceonly",
        "marker_topic": topic,
    }
    sink.close()
    sink.close()
    assert sink.check(query_context())["cluster_id"] == facts["cluster_id"]


def test_librdkafka_takes_every_default_that_we_set(kafka: EmbeddedKafka) -> None:
    options = KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t"})
    for timeout_ms in (1000, 60_000, 900_000):
        here = Reach(options, Admin(options), Admin(options))
        here.by_librdkafka(transactional_client(options, "x", timeout_ms)).close()
