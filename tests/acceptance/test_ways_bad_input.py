"""Wrong use of both ways: one clear sentence, nothing written, no secret shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ledger_sink
import pytest

import onceonly
import ways
from onceonly import errors
from ways import ROWS, WAIT_S

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ways import Way

way, spark = ways.way, ways.spark  # fixtures
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
def test_wrong_options(way: Way, options: dict[str, str], said: str) -> None:
    def build() -> StreamingQuery:
        return way.start(way.source(), **{"password": CANARY, **options})  # type: ignore[arg-type]

    with pytest.raises(errors.ConfigurationError) as caught:
        onceonly.supervise(build, restart=onceonly.FixedDelay(attempts=3, delay_s=0))
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)
    assert list(ledger_sink.committed(way.out())) == []


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_the_sessions_default_checkpoint_is_not_seen_by_the_sink(way: Way) -> None:
    way.spark.conf.set("spark.sql.streaming.checkpointLocation", str(way.folder / "default"))
    try:
        writer = way.source().writeStream.format("onceonly.ledger").option("folder", str(way.out()))
        found = failure_of(writer.trigger(availableNow=True).start())
    finally:
        way.spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert "checkpointLocation" in found.what


def test_a_checkpoint_of_another_sink_is_adopted_only_on_request(way: Way) -> None:
    checkpoint = str(way.folder / "q" / "checkpoint")
    before = way.source(rows=20).writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert before.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    # Nothing new has come, so that nothing is planned.
    with pytest.raises(errors.AdoptionError) as caught:
        way.start(way.source(rows=20))
    assert "onceonly.adopt=true" in caught.value.next_step
    assert way.spark.streams.active == []
    way.run(way.source(), **{"onceonly.adopt": "true"})
    assert way.ids() == list(range(20, len(ROWS)))


def test_another_collection_on_an_old_checkpoint(way: Way) -> None:
    way.run(way.source(rows=20))
    changed = [(n + 1, app) for n, app in ROWS]
    frame = onceonly.collection(way.spark, changed, "id long, app string")
    assert "another collection" in failure_of(way.start(frame)).what
    assert way.exactly(20)


def test_complete_mode_is_refused_by_a_format_that_cannot_replace(way: Way) -> None:
    counts = way.source().groupBy("app").count()
    if way.kind == "format":
        assert "complete mode" in failure_of(way.start(counts, mode="complete")).what
    else:
        way.run(counts, mode="complete")
        assert len(list(ledger_sink.committed(way.out()))) == 3 * (len(ROWS) // 10)


@pytest.mark.parametrize("way", ["foreach"], indirect=True)
def test_another_querys_checkpoint_location(way: Way) -> None:
    other = str(way.folder / "other" / "checkpoint")
    way.run(way.source(), name="other")
    for wrong in (other, str(way.folder / "nowhere")):
        sink = onceonly.sink("onceonly.ledger", checkpointLocation=wrong, folder=str(way.out()))
        writer = way.source().writeStream.foreachBatch(sink).trigger(availableNow=True)
        found = failure_of(writer.option("checkpointLocation", str(way.folder / "mine")).start())
        assert isinstance(found, errors.ConfigurationError)
        assert "same checkpointLocation" in found.next_step
    assert not (way.folder / "nowhere").exists()
    assert way.exactly(name="other")
    assert way.ids() == []


@pytest.mark.parametrize("way", ["format"], indirect=True)
@pytest.mark.parametrize("action", ["write", "read", "readStream"])
def test_what_a_sink_does_not_do(way: Way, action: str) -> None:
    actions: dict[str, Any] = {
        "write": lambda: way.spark.range(1).write.format("onceonly.ledger").mode("append").save(),
        "read": lambda: way.spark.read.format("onceonly.ledger").load(),
        "readStream": lambda: way.spark.readStream.format("onceonly.ledger").load(),
    }
    with pytest.raises(Exception, match="ONCEONLY") as caught:
        actions[action]()
    assert isinstance(errors.find_error(caught.value), errors.ConfigurationError)


def test_options_are_not_shown_by_plan_and_repr(way: Way) -> None:
    query = way.start(way.source(), password=CANARY)
    assert query.awaitTermination(WAIT_S)
    plan = query._jsq.explainInternal(True)  # noqa: FBT003
    assert CANARY not in plan
    assert CANARY not in str(query.recentProgress)
    given = {"checkpointLocation": "/c", "folder": "/f", "password": CANARY}
    assert CANARY not in repr(onceonly.sink("onceonly.ledger", **given))
    files = [path for path in way.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]
