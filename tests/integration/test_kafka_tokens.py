"""OAUTHBEARER against a real broker that asks for it: by all clients, by a JAAS line, and beyond a token's life."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

import pytest
from kafka_query import PROPERTIES, Query

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed
from onceonly.sinks.kafka.wire import logins
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
MODULE = "org.apache.kafka.common.security.oauthbearer"
LOGIN = f'{MODULE}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";'
ENDED = {Committed(), AlreadyCommitted()}
BY_TOKEN = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "OAUTHBEARER"}
GIVEN: list[str] = []
"""The tokens that ``counted`` has given."""


def counted(settings: Mapping[str, str]) -> logins.Given:
    """A provider as a user has one."""
    given = logins.unsecured({"claim_sub": "admin", **settings})
    GIVEN.append(given[0])
    return given


def refused(_settings: Mapping[str, str]) -> logins.Given:
    raise RuntimeError("the directory is closed")


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    unsecured = f"{MODULE}.internals.unsecured.OAuthBearerUnsecured"
    listener = "listener.name.broker.oauthbearer"
    with EmbeddedKafka(
        properties={
            **PROPERTIES,
            "listener.security.protocol.map": "BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            f"{listener}.sasl.jaas.config": LOGIN,
            f"{listener}.sasl.login.callback.handler.class": f"{unsecured}LoginCallbackHandler",
            f"{listener}.sasl.server.callback.handler.class": f"{unsecured}ValidatorCallbackHandler",
            # A session ends with its token: who does not log in again is hung up on.
            f"{listener}.connections.max.reauth.ms": "3600000",
        },
        client_properties={
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=admin",
        },
    ) as broker:
        yield broker


@pytest.mark.parametrize("producer", ["direct", "row"])
def test_a_function_gives_the_tokens_of_every_client_and_none_shows(
    guarded: EmbeddedKafka,
    producer: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    GIVEN.clear()
    # Settings of its own for each, so that each begins without a token.
    named = {"onceonly.token.provider": f"{__name__}:counted", "onceonly.token.config": f"claim_a={producer}"}
    query = Query(guarded, **BY_TOKEN, **named, **{"onceonly.producer": producer})
    handle = query.prepare("a", "b")
    assert query.commit(handle) in ENDED
    assert len(GIVEN) == 1, "one is enough for all clients of a process"
    printed = capfd.readouterr()
    shown = [caplog.text, printed.out, printed.err, json.dumps(dict(handle.data))]
    shown += [repr(query.sink), repr(vars(query.sink))]
    assert not [text for text in shown for token in GIVEN if token in text]


@pytest.mark.parametrize("producer", ["direct", "row"])
def test_a_query_lives_longer_than_its_tokens(guarded: EmbeddedKafka, producer: str) -> None:
    GIVEN.clear()
    life_s = 12
    settings = f"life.seconds={life_s},claim_b={producer}"
    named = {"onceonly.token.provider": f"{__name__}:counted", "onceonly.token.config": settings}
    query = Query(guarded, **BY_TOKEN, **named, **{"onceonly.producer": producer})
    began, epoch = time.monotonic(), 0
    while len(GIVEN) < 2 or time.monotonic() - began < life_s + 1:  # the first one has ended by then
        assert time.monotonic() - began < 5 * life_s, "no other token was asked for"
        assert query.commit(query.prepare("a", epoch=epoch)) in ENDED
        epoch += 1
        time.sleep(0.2)


def test_a_line_as_java_takes_it_is_read(guarded: EmbeddedKafka) -> None:
    query = Query(guarded, **BY_TOKEN, **{"kafka.sasl.jaas.config": LOGIN})
    assert query.commit(query.prepare("a")) in ENDED


def test_a_provider_that_fails_or_is_not_there_is_named(guarded: EmbeddedKafka) -> None:
    with pytest.raises(UnavailableError, match=r"refused failed: RuntimeError: the directory is closed"):
        Query(guarded, **BY_TOKEN, **{"onceonly.token.provider": f"{__name__}:refused"})
    with pytest.raises(ConfigurationError, match=r"no\.such\.module:token is not found") as caught:
        Query(guarded, **BY_TOKEN, **{"onceonly.token.provider": "no.such.module:token"})
    assert "executors" in caught.value.next_step
