"""The options of the Kafka sink: each of Java's has an entry, secrets stay secret."""

from __future__ import annotations

import pickle
from pathlib import Path

import confluent_kafka
import pytest

from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.options import CONSUMER_OPTIONS, OWN_OPTIONS, SOURCE_OPTIONS, KafkaOptions
from onceonly.sinks.kafka.producer_options import JAVA_OPTIONS, OPTIONS, Use, told
from onceonly.sinks.kafka.producers.pool import transactional_client

CANARY = "canary-password-7c1f"
NEEDED = {"kafka.bootstrap.servers": "a:1, b:2", "topic": "t"}
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kafka-options.md"

# Printed by ProducerConfig.configDef().names() of kafka-clients 4.2.0.
JAVA_NAMES = """
acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level
compression.lz4.level compression.type compression.zstd.level config.providers
connections.max.idle.ms delivery.timeout.ms enable.idempotence enable.metrics.push
interceptor.classes key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.mechanism sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type transaction.timeout.ms
transaction.two.phase.commit.enable transactional.id value.serializer
"""


def parse(**options: str) -> KafkaOptions:
    return KafkaOptions.parse({**NEEDED, **{f"kafka.{name}": value for name, value in options.items()}})


def sample(name: str) -> str:
    """A value that the option takes."""
    option = OPTIONS[name]
    if option.only:
        return option.only[0]
    return {"boolean": "true", "integer": "5000"}.get(option.kind, "text")


def test_every_option_of_javas_producer_has_an_entry() -> None:
    assert sorted(JAVA_NAMES.split()) == sorted(JAVA_OPTIONS)


def test_nothing_is_sent_behind_rows_that_are_not_answered() -> None:
    assert parse().client["max.in.flight.requests.per.connection"] == "1"


def test_the_page_has_a_table_of_each_treatment_and_each_option_is_in_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "```{onceonly-kafka-options}\n" in text
    assert all(f"```{{onceonly-kafka-options}} {use}\n" in text for use in Use)
    assert sorted(name for use in Use for names in told(use).values() for name in names) == sorted(OPTIONS)


def test_options_of_one_note_are_told_together_and_what_becomes_of_them_comes_first() -> None:
    assert ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"] in told(Use.TAKEN).values()
    assert told(Use.TRANSLATED)["`socket.timeout.ms`; never above transaction.timeout.ms"] == [
        "request.timeout.ms"
    ]


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.use is Use.REFUSED])
def test_a_refused_option_is_named_with_its_substitute(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(**{name: CANARY})
    assert f"kafka.{name}" in caught.value.what
    assert caught.value.next_step == OPTIONS[name].note
    assert len(caught.value.next_step) > 20
    assert CANARY not in str(caught.value)


TAKEN = [
    name
    for name, option in OPTIONS.items()
    if option.use in {Use.TAKEN, Use.TRANSLATED} and not name.startswith(("ssl.", "sasl.", "security."))
]


@pytest.mark.parametrize("name", TAKEN)
def test_librdkafka_takes_what_is_made_of_an_option(name: str) -> None:
    given = {name: sample(name)}
    if name.startswith("compression.") and name.endswith(".level"):
        given["compression.type"] = name.split(".")[1]
    options = parse(**given)
    # Without a broker: the configuration is checked when the client is made.
    confluent_kafka.Producer(transactional_client(options, "x", options.transaction_timeout_ms or 900_000))


@pytest.mark.parametrize(
    ("name", "value", "target", "expected"),
    [
        ("buffer.memory", "1048576", "queue.buffering.max.kbytes", "1024"),
        ("max.request.size", "5000000", "message.max.bytes", "5000000"),
        ("request.timeout.ms", "7000", "socket.timeout.ms", "7000"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        ("connections.max.idle.ms", "-1", "connections.max.idle.ms", "0"),
        ("max.in.flight.requests.per.connection", "5", "max.in.flight.requests.per.connection", "1"),
        ("acks", "-1", "acks", "-1"),
        ("enable.idempotence", "TRUE", "enable.idempotence", "true"),
        ("ssl.endpoint.identification.algorithm", "", "ssl.endpoint.identification.algorithm", "none"),
        ("bootstrap.servers", "h:1, h:2 ,", "bootstrap.servers", "h:1,h:2"),
    ],
)
def test_values_are_translated(name: str, value: str, target: str, expected: str) -> None:
    assert parse(**{name: value}).client[target] == expected


def test_the_level_counts_for_the_codec_in_use_only() -> None:
    levels = {"compression.gzip.level": "3", "compression.lz4.level": "17"}
    assert parse(**levels, **{"compression.type": "lz4"}).client["compression.level"] == "12"
    assert "compression.level" not in parse(**levels).client


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acks", "1", "all or -1"),
        ("enable.idempotence", "false", "must be true"),
        ("retries", "0", "no guarantee holds"),
        ("linger.ms", "soon", "whole number"),
        ("partitioner.ignore.keys", "true", "must be false"),
        ("security.protocol", "TLS", "SASL_SSL"),
        ("sasl.mechanism", "AWS_MSK_IAM", "SCRAM-SHA-512"),
        ("ssl.keystore.type", "JKS", "must be PEM"),
        ("ssl.truststore.location", "/trust.jks", "which only Java reads"),
    ],
)
def test_wrong_values_are_named(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        parse(**{name: value})
    assert f"kafka.{name}" in caught.value.what


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("tpoic", "topic"),
        ("kafka.linger.sm", "kafka.linger.ms"),
        ("kafka.foo", ""),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("onceonly.transactional.prefix", "onceonly.transactional.id.prefix"),
    ],
)
def test_an_unknown_option_is_named_with_its_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaSink({**NEEDED, name: CANARY})
    assert name in caught.value.what
    assert nearest in caught.value.next_step
    assert CANARY not in str(caught.value)


def test_missing_servers_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers"):
        KafkaSink({"topic": "t"})


def test_names_are_read_in_any_case() -> None:
    options = KafkaOptions.parse({"KAFKA.Bootstrap.Servers": "h:1", "Topic": "T", "includeheaders": "true"})
    assert (options.servers, options.topic, options.marker_topic) == ("h:1", "T", "T")


def test_pem_stores_become_pem_files() -> None:
    client = parse(
        **{
            "ssl.keystore.type": "pem",
            "ssl.keystore.location": "/both.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
        }
    ).client
    assert client["ssl.certificate.location"] == client["ssl.key.location"] == "/both.pem"
    assert client["ssl.ca.location"] == "/ca.pem"
    assert not any(name.startswith(("ssl.keystore", "ssl.truststore")) for name in client)


def test_delivery_is_never_longer_than_the_transaction() -> None:
    client = transactional_client(parse(), "x", 1000)
    assert client["delivery.timeout.ms"] == "1000"
    assert int(client["socket.timeout.ms"]) <= 900


@pytest.mark.parametrize(
    "name",
    [name for name, option in OPTIONS.items() if option.secret and not option.to.startswith("(")],
)
def test_a_secret_is_shown_nowhere(name: str) -> None:
    options = {**NEEDED, f"kafka.{name}": CANARY, "kafka.linger.ms": "5"}
    if OPTIONS[name].use is Use.REFUSED:
        with pytest.raises(ConfigurationError) as caught:
            KafkaSink(options)
        assert CANARY not in str(caught.value) + repr(caught.value)
        return
    sink = KafkaSink(options)
    shown = [repr(sink), repr(sink.options), str(sink.options), repr(sink._kafka), str(sink._kafka)]
    shown += [repr(vars(sink)), repr(sink._kafka.client)]
    assert not [text for text in shown if CANARY in text]
    # It is still what librdkafka is given.
    assert sink._kafka.client[OPTIONS[name].to] == CANARY


def test_a_secret_survives_pickle_and_stays_hidden() -> None:
    options = pickle.loads(pickle.dumps(parse(**{"sasl.password": CANARY})))  # noqa: S301  our own
    assert CANARY not in repr(options)
    assert options.client["sasl.password"] == CANARY


def test_options_of_sparks_source_are_ignored_and_named() -> None:
    options = KafkaOptions.parse({
        "kafka.bootstrap.servers": "h:1", "topic": "t", "subscribe": "in", "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "5", "kafka.group.id": "g", "kafka.isolation.level": "read_committed",
    })  # fmt: skip
    assert options.ignored == (
        "kafka.group.id", "kafka.isolation.level", "maxoffsetspertrigger", "startingoffsets", "subscribe"
    )  # fmt: skip
    assert "group.id" not in options.client
    KafkaSink({"kafka.bootstrap.servers": "h:1", "topic": "t", "subscribe": "in", "kafka.group.id": "g"})


@pytest.mark.parametrize(("given", "meant"), [("direct", "direct"), ("Row", "row"), ("batch", "row")])
def test_there_are_two_producers_and_a_former_name_of_one(given: str, meant: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "onceonly.producer": given}
    assert KafkaOptions.parse(options).producer == meant
    with pytest.raises(ConfigurationError, match="must be direct or row"):
        KafkaOptions.parse({**options, "onceonly.producer": "java"})


def test_no_option_of_the_producer_is_taken_for_the_consumers() -> None:
    assert not CONSUMER_OPTIONS & OPTIONS.keys()
    assert not SOURCE_OPTIONS & {name.lower() for name in OWN_OPTIONS}


@pytest.mark.parametrize("servers", ["h:abc", "h:1,h:", "h:0", "h:65536", "::1:9092", "[::1]9092", "h:1 h:2"])
def test_servers_that_no_client_can_read_are_refused_by_name(servers: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"kafka\.bootstrap\.servers names '.*', which is no host:port"
    ):
        KafkaOptions.parse({**NEEDED, "kafka.bootstrap.servers": servers})


@pytest.mark.parametrize(
    "servers", ["u:hunter2@h:1", "SASL_SSL://u:hunter2@h:1", "h:1,u:hunt@er2@h:1", "hunter2@h:1"]
)
def test_a_password_before_a_server_is_refused_and_not_shown(servers: str) -> None:
    with pytest.raises(ConfigurationError, match="'…@h:1', which is no host:port") as raised:
        KafkaOptions.parse({**NEEDED, "kafka.bootstrap.servers": servers})
    assert "hunt" not in str(raised.value)


@pytest.mark.parametrize(
    "servers", ["h", "h:65535", "[::1]:9092", "[::1]", "SASL_SSL://h-1.x_y:9", "10.0.0.1:9,h"]
)
def test_servers_are_taken_as_javas_clients_read_them(servers: str) -> None:
    assert KafkaOptions.parse({**NEEDED, "kafka.bootstrap.servers": servers}).servers == servers
