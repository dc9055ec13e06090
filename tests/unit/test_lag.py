"""The group that shows how far a query is: what is committed to it, when, and what is told where nothing is."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from decided_query import DecidedQuery

from onceonly import failpoints
from onceonly.durable import disk
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.guards import lag, positions
from onceonly.guards.lag import Keeper, settled
from onceonly.guards.positions import Stood, due, owner, words
from onceonly.guards.source import FILES, KAFKA, Source
from onceonly.log import lag_state
from onceonly.log.place import log_store
from onceonly.settings.batches import batch_query
from onceonly.settings.query import QuerySettings, parse
from onceonly.spark import lag as wanting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from onceonly.errors import OnceonlyError
    from onceonly.guards.positions import Place
    from onceonly.log import FileDecisionLog
    from onceonly.model import Link

SOURCE = Source(KAFKA, {"kafka.bootstrap.servers": "x", "subscribe": "a"})
WAIT_S = 30.0


class Held:
    """Stands in for the groups of a cluster."""

    def __init__(self) -> None:
        self.offsets: dict[Place, Stood] = {}
        self.seen: list[tuple[int, ...]] = []
        self.error: OnceonlyError | None = None
        self.retention = 400_000.0

    def read(self, places: Mapping[Place, int]) -> dict[Place, Stood]:
        if self.error is not None:
            raise self.error
        return {place: self.offsets[place] for place in places if place in self.offsets}

    def commit(self, places: Mapping[Place, int], text: str) -> None:
        self.offsets |= {place: Stood(at, text) for place, at in places.items()}
        self.seen.append(tuple(places.values()))

    def retention_s(self) -> float:
        return self.retention

    def close(self) -> None: ...


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    made = Held()
    monkeypatch.setattr(positions, "Group", lambda *_: made)
    return made


@pytest.fixture
def query(tmp_path: Path) -> DecidedQuery:
    return DecidedQuery(tmp_path / "chk")


@pytest.fixture
def keep(query: DecidedQuery) -> Iterator[Callable[..., Keeper]]:
    made: list[Keeper] = []

    def begin(*sources: Source, checkpoint: Path = query.checkpoint) -> Keeper:
        settings = QuerySettings(checkpoint=str(checkpoint), lag_group="g")
        made.append(Keeper(settings, query.id, lambda: sources or [SOURCE], every_s=0.01))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def at(held: Held) -> dict[int, int]:
    return {partition: stood.at for (_, partition), stood in held.offsets.items()}


# ------------------------------------------------------------------------------------------------ pure
def test_what_goes_back_is_left_unless_the_checkpoint_did_and_the_rest_is_committed_again() -> None:
    before = {("a", 0): Stood(5), ("a", 1): Stood(5), ("a", 2): Stood(5)}
    now = {("a", 0): 4, ("a", 1): 5, ("a", 2): 6, ("a", 3): 0}
    assert due(now, before, back=False) == {("a", 1): 5, ("a", 2): 6, ("a", 3): 0}
    assert due(now, before, back=True) == now


def test_a_group_of_another_query_is_known_by_the_words_beside_its_offsets() -> None:
    assert owner({("a", 0): Stood(1, words("q", 7)), ("a", 1): Stood(1, "")}, "q") == ""
    assert owner({("a", 0): Stood(1, words("other", 7))}, "q") == "onceonly other chk-7"


def test_of_several_sources_of_one_topic_the_lowest_position_counts() -> None:
    [(_, places)] = positions.positions(
        [SOURCE, SOURCE], ['{"a":{"0":5,"1":9}}', '{"logOffset":1}', '{"a":{"0":3}}']
    )
    assert places == {("a", 0): 3, ("a", 1): 9}


def test_each_cluster_has_its_own_positions() -> None:
    other = Source(KAFKA, {"kafka.bootstrap.servers": "y", "subscribe": "b"})
    found = positions.positions([SOURCE, other], ['{"a":{"0":5}}', '{"b":{"0":9}}'])
    assert [(source, places) for source, places in found] == [(SOURCE, {("a", 0): 5}), (other, {("b", 0): 9})]
    with pytest.raises(ConfigurationError, match="several clusters may read the topics c"):
        positions.positions([SOURCE, other], ['{"c":{"0":5}}'])


def test_a_query_without_a_topic_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="none of the query's sources is Kafka's"):
        positions.positions([Source(FILES)], ['{"logOffset":1}'])


# ------------------------------------------------------------------------------------------------ the keeper
def test_only_the_newest_epoch_that_is_decided_and_committed_is_shown(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keep()
    query.decide(0, {"a": {0: 5, 1: 2}})
    query.decide(1, {"a": {0: 7, 1: 2}})
    keeper.moved()
    until(lambda: at(held) == {0: 7, 1: 2}, "chk-1 is shown")
    assert {stood.words for stood in held.offsets.values()} == {words(query.id, 1)}
    for point in ("link.before_put", "commit.before_handle", "receipt.before_put"):
        monkeypatch.setattr(failpoints, "_counts", {})
        monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise")
        with pytest.raises(failpoints.FailpointError):
            query.decide(2, {"a": {0: 9, 1: 4}})
        seen = len(held.seen)
        keeper.moved()
        until(lambda: len(held.seen) > seen, "it is committed again")  # noqa: B023
        assert at(held) == {0: 7, 1: 2}
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    query.decide(2, {"a": {0: 9, 1: 4}})
    keeper.close()
    assert at(held) == {0: 9, 1: 4}, "the end of a run shows what it has decided last"


def test_the_end_of_a_run_shows_what_nobody_has_reported(
    query: DecidedQuery, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(threading.Event):
        def set(self) -> None:
            super().set()
            time.sleep(0.2)

    monkeypatch.setattr(lag, "threading", SimpleNamespace(Event=Slow))
    query.decide(0, {"a": {0: 5}})
    keeper = Keeper(
        QuerySettings(checkpoint=str(query.checkpoint), lag_group="g"), query.id, lambda: [SOURCE]
    )
    until(lambda: at(held) == {0: 5}, "chk-0 is shown")
    query.decide(1, {"a": {0: 6}})
    keeper.close()
    assert at(held) == {0: 6}


def test_what_a_killed_run_has_not_shown_the_next_start_does_without_a_new_epoch(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper]
) -> None:
    query.decide(0, {"a": {0: 5}})
    keep()
    until(lambda: at(held) == {0: 5}, "chk-0 is shown")


def test_within_a_run_nothing_goes_back_and_at_a_start_what_stands_ahead_of_the_checkpoint_does(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper], caplog: pytest.LogCaptureFixture
) -> None:
    query.decide(0, {"a": {0: 5, 1: 5}})
    held.offsets = {("a", 0): Stood(9, words(query.id, 3))}
    keeper = keep()
    until(lambda: at(held) == {0: 5, 1: 5}, "the group is where the restored checkpoint is")
    assert "stood ahead of the checkpoint, which was set back to chk-0" in caplog.text
    held.offsets["a", 0] = Stood(6, words(query.id, 1))  # of another driver, that has gone on
    seen = len(held.seen)
    keeper.moved()
    until(lambda: len(held.seen) > seen, "the other partition is committed again")
    assert at(held) == {0: 6, 1: 5}


def test_idle_partitions_are_committed_again_before_they_expire(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper]
) -> None:
    query.decide(0, {"a": {0: 5}})
    held.retention = 0.2
    keep()
    until(lambda: len(held.seen) > 3, "it is committed again and again without an epoch")
    assert set(held.seen) == {(5,)}


def test_a_failure_is_told_once_and_as_a_state_and_the_query_goes_on(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(lag, "_AGAIN_S", 0.01)
    caplog.set_level(logging.INFO, "onceonly")
    store = log_store(str(query.checkpoint))
    query.decide(0, {"a": {0: 5}})
    held.error = UnavailableError("Kafka is silent.", next_step="see that it runs")
    keeper = keep()
    until(lambda: (state := lag_state.read(store)) and state.told == "Kafka is silent.", "the state says so")
    query.decide(1, {"a": {0: 6}})
    keeper.moved()
    held.error = None
    until(lambda: (state := lag_state.read(store)) and not state.told, "the state says that it is well")
    until(lambda: at(held) == {0: 6}, "chk-1 is shown")
    assert (
        caplog.text.count("the group g does not show its lag: Kafka is silent. Next: see that it runs.") == 1
    )
    assert "shows its lag again" in caplog.text


def test_a_disk_that_fails_an_fsync_does_not_end_the_job_for_the_groups_state(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    query.decide(0, {"a": {0: 5}})
    synced: list[object] = []
    monkeypatch.setattr(disk, "fsync", lambda _descriptor, path, **_: synced.append(path))
    keep()
    state = query.checkpoint / "onceonly" / lag_state.NAME
    until(state.exists, "the state is noted")
    wanting.keeper(str(query.checkpoint), "q", starts=True)
    until(lambda: not state.exists(), "the state is forgotten")
    assert not synced


def test_without_kafkas_client_it_is_told_what_to_install(
    query: DecidedQuery, keep: Callable[..., Keeper], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(lag, "_AGAIN_S", 0.01)
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.delitem(sys.modules, "onceonly.sinks.kafka.wire.requests", raising=False)
    rounds = []

    def looked(found: FileDecisionLog) -> Link | None:
        rounds.append(found)
        return settled(found)

    monkeypatch.setattr(lag, "settled", looked)
    query.decide(0, {"a": {0: 5}})
    keep()
    until(lambda: len(rounds) > 2, "it is tried again")
    assert caplog.text.count("does not show its lag") == 1
    assert "needs the package kafka-python" in caplog.text
    assert "Next: pip install 'onceonly[kafka]'" in caplog.text


def test_a_group_that_shows_another_query_is_left_alone(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper], caplog: pytest.LogCaptureFixture
) -> None:
    query.decide(0, {"a": {0: 5}})
    held.offsets = {("a", 0): Stood(3, words("other", 7))}
    keep()
    until(lambda: "shows the positions of another query (other chk-7)" in caplog.text, "it is told")
    assert at(held) == {0: 3}


def test_the_group_of_a_consumer_that_is_down_is_left_alone_and_not_said_to_go_back(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper], caplog: pytest.LogCaptureFixture
) -> None:
    query.decide(0, {"a": {0: 5, 1: 5}})
    held.offsets = {("a", 0): Stood(9, ""), ("a", 1): Stood(3, "its own")}
    keep()
    until(lambda: "did not put there (a-0 at 9)" in caplog.text, "it is told")
    assert at(held) == {0: 9, 1: 3}
    assert "stood ahead" not in caplog.text


def test_offsets_that_somebody_has_set_by_hand_during_a_run_are_brought_forward_again(
    query: DecidedQuery, held: Held, keep: Callable[..., Keeper]
) -> None:
    query.decide(0, {"a": {0: 5}})
    keeper = keep()
    until(lambda: at(held) == {0: 5}, "chk-0 is shown")
    held.offsets = {("a", 0): Stood(1, "")}
    keeper.moved()
    until(lambda: at(held) == {0: 5}, "it is shown again")


def test_a_copied_checkpoint_does_not_set_the_group_back(
    query: DecidedQuery,
    held: Held,
    keep: Callable[..., Keeper],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    query.decide(0, {"a": {0: 5}})
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    held.offsets = {("a", 0): Stood(9, words(query.id, 3))}
    keep(checkpoint=tmp_path / "copy")
    until(lambda: "is at home at" in caplog.text, "it is told")
    assert at(held) == {0: 9}


# ------------------------------------------------------------------------------------------------ who wants it
def test_the_option_is_a_streams_alone() -> None:
    settings = parse({"checkpointLocation": "/c", "onceonly.lag.group": " g "}, default_name="kafka")
    assert settings.query is not None
    assert settings.query.lag_group == "g"
    with pytest.raises(ConfigurationError, match=r"'onceonly\.lag\.group' is a stream's"):
        batch_query(settings, "job")


def test_a_start_without_the_option_is_what_cures_a_group_that_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanting, "_wanted", {})
    (tmp_path / "onceonly").mkdir()
    store = log_store(str(tmp_path))
    lag_state.write(store, lag_state.LagState(group="g", told="no topics"))
    wanting.keeper(str(tmp_path), "q")
    wanting.keeper(str(tmp_path), "q", starts=True)
    until(lambda: lag_state.read(store) is None, "what the start before has left is gone")


def test_a_start_without_the_option_forgets_that_of_the_start_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wanting, "_wanted", {})
    made: list[str] = []
    monkeypatch.setattr(wanting, "Keeper", lambda settings, *_: made.append(settings.lag_group))
    location = str(tmp_path)
    wanting.want(location, {"onceonly.lag.group": "g", "path": "/x"})
    wanting.keeper(f"file:{location}", "q")
    wanting.want(location, {"path": "/x"})
    wanting.keeper(location, "q")
    assert made == ["g"]
