"""Permissions, passwords and TLS, with a real broker that asks for them."""

from __future__ import annotations

import json
import logging
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka_query import wait_for
from tests.unit.certificates import certificate

from onceonly.coordinator.commits import CommitLoop
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import (
    AlreadyCommitted,
    Committed,
    Guarantee,
    Handle,
    Link,
    LinkKind,
    Outcome,
    RetryLater,
    Vote,
)
from onceonly.ports import QueryContext, WriteContext
from onceonly.protocol import CommitHandle
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

CANARY = "canary-password-7c1f"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def context() -> QueryContext:
    return QueryContext(query=uuid.uuid4().hex, sink="kafka", guarantee=Guarantee.EXACTLY_ONCE)


def prepare(sink: KafkaSink, query: QueryContext) -> Handle:
    """Check, write, prepare."""
    facts = sink.check(query)
    transaction = sink.begin_transaction(
        WriteContext(
            query=query.query,
            sink="kafka",
            run="run",
            epoch=0,
            plan="plan",
            slot=0,
            attempt="0",
            guarantee=query.guarantee,
            facts=facts,
        )
    )
    sink.write(transaction, pa.RecordBatch.from_pydict({"value": ["a"]}))
    handle = sink.pre_commit(transaction)
    assert handle is not None
    return handle


def round_trip(sink: KafkaSink) -> Handle:
    """Check, write, prepare, commit."""
    query = context()
    handle = prepare(sink, query)
    outcome = sink.commit(handle)
    while isinstance(outcome, RetryLater):
        outcome = sink.commit(handle)
    assert outcome == Committed()
    assert sink.recover(query) == []
    return handle


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """A broker with permissions; what has none set is open to everybody."""
    with EmbeddedKafka(
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    ) as broker:
        yield broker


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (ResourceType.TOPIC, "WRITE and DESCRIBE on topic"),
        (ResourceType.TRANSACTIONAL_ID, "WRITE and DESCRIBE on transactional id"),
        (ResourceType.GROUP, "READ and DESCRIBE on group"),
    ],
)
@pytest.mark.parametrize("granted", [AclOperation.WRITE, AclOperation.ALL])
def test_a_missing_permission_is_named_before_the_first_record(
    guarded: EmbeddedKafka, kind: ResourceType, advice: str, granted: AclOperation
) -> None:
    name = f"x-{uuid.uuid4().hex}"
    topic = name if kind is ResourceType.TOPIC else f"t-{uuid.uuid4().hex}"
    guarded.create_topic(topic)
    pattern = ResourcePatternType.PREFIXED
    # The resource is somebody else's.
    acl = AclBinding(kind, name, pattern, "User:other", "*", granted, AclPermissionType.ALLOW)
    admin = guarded.admin()
    for answer in admin.create_acls([acl], request_timeout=10).values():
        answer.result(10)
    # The controller has taken it; the broker that is asked knows it a moment later.
    shown = AclBindingFilter(kind, name, pattern, "User:other", "*", granted, AclPermissionType.ALLOW)
    deadline = time.monotonic() + 30
    while not admin.describe_acls(shown, request_timeout=10).result(10):
        assert time.monotonic() < deadline, "the broker does not show the permission"
    sink = KafkaSink(
        {
            "kafka.bootstrap.servers": guarded.bootstrap_servers,
            "topic": topic,
            "onceonly.transactional.id.prefix": name,
        }
    )
    with pytest.raises(ConfigurationError) as caught:
        sink.check(context())
    assert advice in caught.value.next_step
    assert name in caught.value.what


def _given(ask: Callable[[], Future[list[AclBinding]]]) -> list[AclBinding]:
    return ask().result(10)


def allow(broker: EmbeddedKafka, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Let everybody do these with a thing, and nobody anything else."""
    everybody = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermissionType.ALLOW
        )
        for operation in operations
    ]
    admin = broker.admin()
    for answer in admin.create_acls(everybody, request_timeout=10).values():
        answer.result(10)
    for each in everybody:
        shown = AclBindingFilter(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            each.operation,
            AclPermissionType.ALLOW,
        )
        is_shown = partial(admin.describe_acls, shown, request_timeout=10)
        wait_for(partial(_given, is_shown), "the permission")


@pytest.mark.parametrize("topic_by", ["option", "column"])
def test_a_marker_topic_that_may_not_be_read_is_named_before_the_first_record(
    guarded: EmbeddedKafka, topic_by: str
) -> None:
    markers = f"m-{uuid.uuid4().hex}"
    guarded.create_topic(markers)
    allow(guarded, ResourceType.TOPIC, markers, AclOperation.WRITE, AclOperation.DESCRIBE)
    options = {"kafka.bootstrap.servers": guarded.bootstrap_servers, "onceonly.marker.topic": markers}
    if topic_by == "option":
        options["topic"] = markers
    with pytest.raises(ConfigurationError) as caught:
        KafkaSink(options).check(context())
    assert f"READ and DESCRIBE on topic {markers}" in caught.value.next_step
    # Where it is taken away later, the topic is named, and no group.
    with pytest.raises(ConfigurationError, match=f"topic {markers}") as caught:
        marker.read_or_seed(Admin(KafkaOptions.parse(options)), "some-group", markers)
    assert "READ" in caught.value.next_step


@pytest.mark.parametrize("producer", ["direct", "row"])
def test_a_topic_of_markers_need_only_be_read(guarded: EmbeddedKafka, producer: str) -> None:
    """As their own one may be that an operator has made: writing to it is nobody's business."""
    prefix, topic = f"p-{uuid.uuid4().hex}", f"t-{uuid.uuid4().hex}"
    for name in (topic, f"{prefix}.markers"):
        guarded.create_topic(name)
    allow(guarded, ResourceType.TOPIC, f"{prefix}.markers", AclOperation.READ, AclOperation.DESCRIBE)
    handle = round_trip(
        KafkaSink(
            {
                "kafka.bootstrap.servers": guarded.bootstrap_servers, "topic": topic,
                "onceonly.transactional.id.prefix": prefix, "onceonly.producer": producer,
            }
        )
    )  # fmt: skip
    assert handle.data["marker_topic"] == f"{prefix}.markers"


def test_a_commit_that_is_refused_is_asked_for_again_and_names_the_transactional_id(
    guarded: EmbeddedKafka,
) -> None:
    topic, prefix = f"t-{uuid.uuid4().hex}", f"p-{uuid.uuid4().hex}"
    guarded.create_topic(topic)
    sink = KafkaSink({
        "kafka.bootstrap.servers": guarded.bootstrap_servers, "topic": topic, "onceonly.transactional.id.prefix": prefix
    })  # fmt: skip
    handle = prepare(sink, context())
    name = str(handle.data["transactional_id"])
    acl = AclBinding(
        ResourceType.TRANSACTIONAL_ID, name, ResourcePatternType.LITERAL, "User:other", "*", AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin = guarded.admin()
    for answer in admin.create_acls([acl], request_timeout=10).values():
        answer.result(10)
    vote = Vote(
        sink="kafka", epoch=0, slot=0, plan="p", run="r", attempt="0", rows=1, checksum="0" * 16, handle=handle
    )  # fmt: skip
    link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")

    def outcome() -> Outcome:
        loop = CommitLoop({"kafka": sink}, timeout_s=2.0, clock=time)
        return next(iter(loop.run([CommitHandle(vote, link)], recovery=False)))[1]

    wait_for(lambda: isinstance(refused := outcome(), RetryLater) and refused.needs, "the refusal")
    refused = outcome()
    assert isinstance(refused, RetryLater)
    assert refused.needs == f"grant the client's user WRITE and DESCRIBE on transactional id {name}"
    same = AclBindingFilter(
        ResourceType.TRANSACTIONAL_ID, name, ResourcePatternType.LITERAL, "User:other", "*", AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for gone in admin.delete_acls([same], request_timeout=10).values():
        gone.result(10)
    wait_for(lambda: outcome() in {Committed(), AlreadyCommitted()}, "the commit once it is granted")


def test_with_all_permissions_it_writes(guarded: EmbeddedKafka) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    guarded.create_topic(topic)
    round_trip(KafkaSink({"kafka.bootstrap.servers": guarded.bootstrap_servers, "topic": topic}))


def test_a_password_works_and_shows_nowhere(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    jaas = f'{LOGIN} required username="admin" password="{CANARY}" user_admin="{CANARY}";'
    user = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
    caplog.set_level(logging.DEBUG)
    with EmbeddedKafka(
        properties={
            "listener.security.protocol.map": "BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.broker.plain.sasl.jaas.config": jaas,
        },
        client_properties={**user, "sasl.password": CANARY},
    ) as broker:
        broker.create_topic("t")
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": "t",
            **{f"kafka.{name}": value for name, value in user.items()},
        }
        sink = KafkaSink({**options, "kafka.sasl.password": CANARY})
        handle = round_trip(sink)
        wrong = KafkaSink({**options, "kafka.sasl.password": f"{CANARY}-wrong"})
        with pytest.raises(UnavailableError, match=r"check kafka\.sasl\.username") as caught:
            wrong.check(context())
    printed = capfd.readouterr()
    shown = [caplog.text, printed.out, printed.err, json.dumps(dict(handle.data)), str(caught.value)]
    shown += [repr(sink), repr(vars(sink))]
    assert not [text for text in shown if CANARY in text]


def test_tls_with_client_certificates(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, names="IP:127.0.0.1,DNS:localhost")
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + made.read_text())
    client = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(made),
        "ssl.certificate.location": str(made),
        "ssl.key.location": str(key),
    }
    with EmbeddedKafka(
        properties={
            "listener.security.protocol.map": "BROKER:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(made),
            "ssl.client.auth": "required",
        },
        client_properties=client,
    ) as broker:
        broker.create_topic("t")
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
        round_trip(KafkaSink({**options, **{f"kafka.{name}": value for name, value in client.items()}}))
        # As a Java client would say it.
        java = {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(made),
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(both),
        }
        round_trip(KafkaSink({**options, **java}))
        with pytest.raises(ConfigurationError, match="cannot be used here"):
            KafkaSink({**options, **java, "kafka.ssl.truststore.location": "/nowhere.pem"}).check(context())
