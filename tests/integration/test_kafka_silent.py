"""Peers that fall silent, without a broker: both clients give up in time, and another one works at once."""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.metadata import MetadataRequest
from tests.unit.certificates import certificate
from tiny_kafka import NODE, TinyKafka

from onceonly import background
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire import names
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly.sinks.kafka.wire.answers import NotAnsweredError
from onceonly.sinks.kafka.wire.client import Client
from onceonly.sinks.kafka.wire.plain_client import PlainClient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
REPLACED_S = 15.0
"""A client that is stuck is replaced within so long."""
STATES = {
    "taken": {},
    "half a handshake": {"kafka.security.protocol": "SSL"},
    "half a log-in": {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "p",
    },
}


def options(address: str, **more: str) -> KafkaOptions:
    return KafkaOptions.parse({"kafka.bootstrap.servers": address, "topic": "t", **more})


def ask(admin: Admin) -> Any:  # noqa: ANN401  kafka-python is untyped
    request = MetadataRequest(
        topics=[],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return admin.send(request, NODE)


def ends(call: Any, *arguments: Any) -> tuple[float, BaseException | None]:  # noqa: ANN401  as above
    """Make a call, and say how long it took and what it raised."""
    began = time.monotonic()
    try:
        call(*arguments)
    except NotAnsweredError as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if kafka-python had lost one of its private names."""
    monkeypatch.setattr(names, "missing", lambda: ("a name",))


def test_a_start_at_a_peer_that_is_silent_ends_in_time_whatever_it_is_silent_at() -> None:
    names.missing()  # it imports, which takes a while
    with TinyKafka() as peer:
        peer.silence()
        begun = {
            (kind.__name__, state): background.begin(
                "start", ends, kind, options(peer.address, **STATES[state])
            )
            for kind in (Client, PlainClient)
            for state in STATES
        }
        ended = {case: each.result(2 * REPLACED_S) for case, each in begun.items()}
    assert [case for case, (_, error) in ended.items() if error is None] == []
    assert {case: took_s for case, (took_s, _) in ended.items() if took_s >= REPLACED_S} == {}


def tls(folder: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    found, key = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    return context, {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": str(found)}


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("is_tls", [False, True], ids=["taken", "half a handshake"])
def test_a_plain_client_whose_broker_falls_silent_is_replaced_by_one_that_works(
    tmp_path: Path, *, is_tls: bool
) -> None:
    context, more = tls(tmp_path) if is_tls else (None, {})
    with TinyKafka(tls=context) as peer:
        admin = Admin(options(peer.address, **more))
        assert ask(admin).cluster_id == "tiny"
        assert isinstance(admin.client(), PlainClient)
        peer.silence()
        peer.cut_all()
        # Several at a time, as the runtime asks; none waits for the ends of all the others.
        asking = [background.begin("ask", ends, ask, admin) for _ in range(4)]
        ended = [each.result(2 * REPLACED_S) for each in asking]
        assert None not in [error for _, error in ended]
        assert max(took_s for took_s, _ in ended) < REPLACED_S
        peer.speak()
        began = time.monotonic()
        assert admin.patiently(REPLACED_S, "an answer", lambda: ask(admin)).cluster_id == "tiny"
        assert time.monotonic() - began < REPLACED_S
        admin.close()


@pytest.mark.parametrize("way", ["quick", "plain"])
def test_where_all_addresses_have_moved_the_bootstrap_names_lead_on(
    way: str, request: pytest.FixtureRequest
) -> None:
    if way == "plain":
        request.getfixturevalue("plain")
    with TinyKafka() as named, TinyKafka() as old, TinyKafka() as new:
        named.leads_to = old.leads_to
        admin = Admin(options(named.address))
        ask(admin)
        assert isinstance(admin.client(), {"quick": Client, "plain": PlainClient}[way])
        assert (old.taken > 0, new.taken) == (True, 0)
        named.leads_to = new.leads_to
        old.silence()
        old.cut_all()
        began = time.monotonic()
        admin.patiently(REPLACED_S, "an answer", lambda: ask(admin))
        assert time.monotonic() - began < REPLACED_S
        assert new.taken > 0
        admin.close()
