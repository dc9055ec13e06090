"""Wrong use of both roads: one clear sentence, nothing written, no secret shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ledger_sink
import pytest
import roads
from roads import ROWS, WAIT_S

import onceonly
from onceonly import errors

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from roads import Road

road, spark = roads.road, roads.spark  # fixtures
pytestmark = pytest.mark.acceptance
CANARY = "canary-5f1c"


def failure_of(query: StreamingQuery) -> errors.OnceonlyError:
    with pytest.raises(Exception, match="ONCEONLY") as caught:
        query.awaitTermination(WAIT_S)
    found = errors.find_error(caught.value)
    assert found is not None
    assert CANARY not in str(caught.value)
    assert "Traceback" not in onceonly.explain(caught.value)
    return found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"onceonly.guarante": "x"}, "did you mean onceonly.guarantee?"),
        ({"onceonly.guarantee": "at-least-once"}, "set onceonly.guarantee to one of exactly-once"),
        ({"only": "id,name"}, "the ledger takes the columns id,name, not id,app"),
    ],
)
def test_wrong_options(road: Road, options: dict[str, str], said: str) -> None:
    def build() -> StreamingQuery:
        return road.start(road.source(), **{"password": CANARY, **options})  # type: ignore[arg-type]

    with pytest.raises(errors.ConfigurationError) as caught:
        onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=3, delay_s=0))
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)
    assert list(ledger_sink.committed(road.out())) == []


@pytest.mark.parametrize("road", ["format"], indirect=True)
def test_the_sessions_default_checkpoint_is_not_seen_by_the_sink(road: Road) -> None:
    road.spark.conf.set("spark.sql.streaming.checkpointLocation", str(road.folder / "default"))
    try:
        writer = road.source().writeStream.format("onceonly.ledger").option("folder", str(road.out()))
        found = failure_of(writer.trigger(availableNow=True).start())
    finally:
        road.spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "checkpointLocation" in found.what


def test_a_checkpoint_of_another_sink_is_adopted_only_on_request(road: Road) -> None:
    checkpoint = str(road.folder / "q" / "checkpoint")
    before = road.source(rows=20).writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert before.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    found = failure_of(road.start(road.source()))
    assert isinstance(found, errors.AdoptionError)
    assert "onceonly.adopt=true" in found.next_step
    assert road.ids() == []
    road.run(road.source(), **{"onceonly.adopt": "true"})
    assert road.ids() == list(range(20, len(ROWS)))


def test_another_collection_on_an_old_checkpoint(road: Road) -> None:
    road.run(road.source(rows=20))
    changed = [(n + 1, app) for n, app in ROWS]
    frame = onceonly.collection(road.spark, changed, "id long, app string")
    assert "another collection" in failure_of(road.start(frame)).what
    assert road.exactly(20)


def test_complete_mode_is_refused_by_a_format_that_cannot_replace(road: Road) -> None:
    counts = road.source().groupBy("app").count()
    if road.kind == "format":
        assert "complete mode" in failure_of(road.start(counts, mode="complete")).what
    else:
        road.run(counts, mode="complete")
        assert len(list(ledger_sink.committed(road.out()))) == 3 * (len(ROWS) // 10)


@pytest.mark.parametrize("road", ["foreach"], indirect=True)
def test_another_querys_checkpoint_location(road: Road) -> None:
    other = str(road.folder / "other" / "checkpoint")
    road.run(road.source(), name="other")
    for wrong in (other, str(road.folder / "nowhere")):
        sink = onceonly.sink("onceonly.ledger", checkpointLocation=wrong, folder=str(road.out()))
        writer = road.source().writeStream.foreachBatch(sink).trigger(availableNow=True)
        found = failure_of(writer.option("checkpointLocation", str(road.folder / "mine")).start())
        assert isinstance(found, errors.ConfigurationError)
        assert "same checkpointLocation" in found.next_step
    assert not (road.folder / "nowhere").exists()
    assert road.exactly(name="other")
    assert road.ids() == []


@pytest.mark.parametrize("road", ["format"], indirect=True)
@pytest.mark.parametrize("action", ["write", "read", "readStream"])
def test_what_a_sink_does_not_do(road: Road, action: str) -> None:
    actions: dict[str, Any] = {
        "write": lambda: road.spark.range(1).write.format("onceonly.ledger").mode("append").save(),
        "read": lambda: road.spark.read.format("onceonly.ledger").load(),
        "readStream": lambda: road.spark.readStream.format("onceonly.ledger").load(),
    }
    with pytest.raises(Exception, match="ONCEONLY") as caught:
        actions[action]()
    assert isinstance(errors.find_error(caught.value), errors.ConfigurationError)


def test_options_are_not_shown_by_plan_and_repr(road: Road) -> None:
    query = road.start(road.source(), password=CANARY)
    assert query.awaitTermination(WAIT_S)
    plan = query._jsq.explainInternal(True)  # noqa: FBT003
    assert CANARY not in plan
    assert CANARY not in str(query.recentProgress)
    given = {"checkpointLocation": "/c", "folder": "/f", "password": CANARY}
    assert CANARY not in repr(onceonly.sink("onceonly.ledger", **given))
    files = [path for path in road.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]
