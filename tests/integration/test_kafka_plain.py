"""The plain way, by kafka-python's public names only: all that an epoch needs of it, against a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka_query import PROPERTIES, Query

from onceonly.model import AlreadyCommitted, Committed, Lost
from onceonly.sinks.kafka.wire import names
from onceonly.sinks.kafka.wire.plain_client import PlainClient
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ENDED = {Committed(), AlreadyCommitted()}


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=PROPERTIES) as broker:
        yield broker


def test_an_epoch_is_prepared_committed_looked_up_and_swept_without_private_names(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "missing", lambda: ("a name",))
    query = Query(kafka)
    assert isinstance(query.sink._admin.client(), PlainClient)
    handles = [query.prepare("a", slot=slot) for slot in range(4)]
    assert len(query.open_transactions()) == 4
    assert set(query.sink.commit_many(handles)) <= ENDED
    assert query.commit(handles[0]) in ENDED
    given_up = query.prepare("b", epoch=1)
    query.sink.abort(given_up)
    assert isinstance(query.commit(given_up), Lost)
    assert query.open_transactions() == []
    query.until_read("a", "a", "a", "a")
    query.sink.close()
