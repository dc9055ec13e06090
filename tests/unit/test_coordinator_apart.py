"""A fork keeps away from the targets of the query that it comes from, at each start and in each epoch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_coordinator_query import barrier, complete, run

from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ConfigurationError
from onceonly.log import origin
from onceonly.log.place import log_store
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import remember
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from pathlib import Path

THEIRS = origin.Origin(targets=(origin.Target(sink="", identity={"store": "theirs"}),))


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    MemorySink.stores.clear()
    remember(MemorySink)
    for folder in ("offsets", "commits", "onceonly"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    barrier(tmp_path, 0)
    log_store(str(tmp_path)).put_if_absent(origin.NAME, origin.encode(THEIRS))
    return tmp_path


def started(fork: Path, store: str) -> QueryCoordinator:
    made = QueryCoordinator(QuerySettings(checkpoint=str(fork)), actor="driver", application="app")
    made.enlist(SinkSettings(name="memory", options={"store": store}), MemorySink, ())
    return made


def test_a_later_start_may_not_name_a_target_of_the_former_query(fork: Path) -> None:
    run(started(fork, "own"), 0)
    complete(fork, 0)
    barrier(fork, 1)
    with pytest.raises(ConfigurationError, match="writes to a target of the query that it was forked from"):
        started(fork, "theirs").plan(1, run="r")
    run(started(fork, "another"), 1)


def test_nor_may_a_sink_that_a_later_epoch_writes_to_first(fork: Path) -> None:
    coordinator = started(fork, "own")
    coordinator.decide(coordinator.plan(0, run="r", sinks=["memory"]), [])
    complete(fork, 0)
    barrier(fork, 1)
    coordinator.enlist(SinkSettings(name="late", options={"store": "theirs"}), MemorySink, ())
    with pytest.raises(ConfigurationError, match="sink late"):
        coordinator.plan(1, run="r", sinks=["memory", "late"])


def test_another_format_in_the_same_folder_is_the_same_target(fork: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    theirs = origin.Target(
        sink="files", identity={"path": str(target), "format": "parquet", "token": "of the first"}
    )
    store = log_store(str(fork))
    store.replace(origin.NAME, origin.encode(origin.Origin(targets=(theirs,))))
    coordinator = QueryCoordinator(QuerySettings(checkpoint=str(fork)), actor="driver", application="app")
    given = SinkSettings(name="files", options={"path": str(target), "format": "json"})
    coordinator.enlist(given, "onceonly.sinks.files:FilesSink", (("id", "bigint"),))
    with pytest.raises(ConfigurationError, match="forked from"):
        coordinator.plan(0, run="r")
