"""A broker that holds a client back by a quota: it is waited for, and nobody else is asked."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from kafka_proxy import Api, KafkaProxy
from kafka_query import PROPERTIES, Query

from onceonly.model import AlreadyCommitted, Committed
from onceonly.sinks.kafka.records import record_batches
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.sinks.kafka.wire.admin import Admin

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ROW_BYTES, ROWS = 20_000, 100
BYTES_PER_S = 250_000


@pytest.fixture(scope="module")
def wired() -> Iterator[tuple[KafkaProxy, EmbeddedKafka]]:
    with KafkaProxy() as proxy:
        # A quota's window of 4 s, so that what was written before it does not hold for long.
        more = {"quota.window.num": "4", "quota.window.size.seconds": "1"}
        kafka = EmbeddedKafka(properties={**PROPERTIES, **proxy.properties, **more})
        proxy.forward_to(kafka)
        with kafka:
            yield proxy, kafka


def bound(admin: Admin, client_id: str, **quotas: float) -> None:
    """Set quotas of a client, by its id."""
    from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

    of_entry = AlterClientQuotasRequest.EntryData
    entry = of_entry(
        entity=[of_entry.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[of_entry.OpData(key=key, value=value, remove=False) for key, value in quotas.items()],
    )
    answer = admin.send(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert [each.error_code for each in answer.entries] == [0]


def test_rows_wait_for_a_quota_and_nobody_is_asked_meanwhile(
    wired: tuple[KafkaProxy, EmbeddedKafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, kafka = wired
    client_id = uuid.uuid4().hex
    query = Query(
        kafka,
        **{
            "kafka.bootstrap.servers": proxy.address,
            "kafka.client.id": client_id,
            "kafka.batch.size": "100000",
            "kafka.max.request.size": "100000",
        },
    )
    sealed: Counter[int] = Counter()
    seal = record_batches.seal

    def noted(*given: Any, **how: Any) -> Any:  # noqa: ANN401
        sealed[how["sequence"]] += 1
        return seal(*given, **how)

    monkeypatch.setattr(record_batches, "seal", noted)
    admin = query.admin()
    bound(admin, client_id, producer_byte_rate=BYTES_PER_S)
    transaction = query.sink.begin_transaction(query.attempt())
    before = {api: len(proxy.requests(api)) for api in (Api.METADATA, Api.FIND_COORDINATOR)}
    # Four times what the quota lets pass in a second and more, to one partition, one batch after the other.
    batch = pa.RecordBatch.from_pydict(
        {"value": ["x" * ROW_BYTES] * ROWS, "partition": pa.array([0] * ROWS, pa.int32())}
    )
    query.sink.write(transaction, batch)
    handle = query.sink.pre_commit(transaction)
    assert handle is not None
    asked = sum(len(proxy.requests(api)) for api in before) - sum(before.values())
    assert asked <= 4, "throttled is a state, and no reason to look for others"
    assert set(sealed.values()) == {1}, "a batch goes out as it was sealed"
    assert query.commit(handle) in {Committed(), AlreadyCommitted()}
    admin.close()


def test_commits_under_a_quota_of_requests_are_carried_out_and_each_is_sent_about_once(
    wired: tuple[KafkaProxy, EmbeddedKafka],
) -> None:
    proxy, kafka = wired
    client_id = uuid.uuid4().hex
    query = Query(kafka, **{"kafka.bootstrap.servers": proxy.address, "kafka.client.id": client_id})
    admin = query.admin()
    handles = [query.prepare("a", slot=slot) for slot in range(12)]
    bound(admin, client_id, request_percentage=0.5)
    before = len(proxy.requests(Api.END_TXN))
    outcomes: list[object] = list(query.sink.commit_many(handles[:6]))
    outcomes += [query.commit(handle) for handle in handles[6:]]
    assert set(outcomes) <= {Committed(), AlreadyCommitted()}
    assert len(proxy.requests(Api.END_TXN)) - before <= len(handles) + 2
    query.until_read(*["a"] * 12)
    admin.close()
