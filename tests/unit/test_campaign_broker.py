"""The kinds of broker that a campaign attacks are words that a report holds and a command takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.test_campaign_matrix import one

from onceonly.errors import ConfigurationError
from onceonly_proof.campaign.broker import BrokerKind
from onceonly_proof.embedded.jars import NEWEST, RELEASES


@pytest.mark.parametrize("text", [*RELEASES, "3.9+tls", "3.3+quotas", "4.2+tls+quotas"])
def test_a_kind_is_read_from_its_words(text: str) -> None:
    assert str(BrokerKind.parse(text)) == text


def test_without_a_word_it_is_the_newest_without_tls_and_quotas() -> None:
    assert str(BrokerKind()) == NEWEST
    assert BrokerKind.parse(f"{NEWEST}+quotas+tls") == replace(BrokerKind(), tls=True, quotas=True)


@pytest.mark.parametrize("text", ["", "2.8", "tls", "3.9+ssl", "3.9 tls"])
def test_a_kind_that_is_not_there_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        BrokerKind.parse(text)
    assert repr(text) in raised.value.what
    assert "4.2, 3.9, 3.3" in raised.value.next_step


def test_the_command_that_runs_a_round_again_names_the_broker_where_it_is_not_the_usual() -> None:
    import msgspec

    assert msgspec.structs.replace(one(), broker="3.9+tls").command.endswith(" --broker 3.9+tls")
    assert "--broker" not in msgspec.structs.replace(one(), broker=NEWEST).command
    assert "--broker" not in one().command
