"""A job of a campaign runs what its task says, and does not outlive a campaign that dies at the job's start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

import onceonly
from onceonly_proof.campaign import job
from onceonly_proof.campaign.targets.keyed import KEYED, NUMBER, SEQUENCE
from onceonly_proof.campaign.task import Task
from onceonly_proof.parent import PARENT

if TYPE_CHECKING:
    from pathlib import Path

GONE = 2**22 + 1  # no Linux gives such a pid


def test_a_job_whose_campaign_has_died_meanwhile_ends_before_it_starts_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "onceonly_proof.campaign.job", str(tmp_path)]
    environment = {**os.environ, PARENT: str(GONE)}
    process = subprocess.run(command, env=environment, check=False, timeout=120, capture_output=True)

    assert process.returncode == 1
    assert process.stderr == b""
    assert list(tmp_path.iterdir()) == []


class Stream:
    """A frame and its writer, which keeps what it is given."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.write: Any = None
        self.writeStream = self

    def option(self, name: str, value: str) -> Stream:
        self.given[name] = value
        return self

    def options(self, **given: str) -> Stream:
        self.given |= given
        return self

    def format(self, _name: str) -> Stream:
        return self

    def foreachBatch(self, write: Any) -> Stream:  # noqa: ANN401, N802  as in Spark
        self.write = write
        return self

    def start(self) -> None: ...


def task(connector: str, limit_s: float | None) -> Task:
    return Task(
        servers="a:1", source="in", target="out", files="/files", checkpoint="/checkpoint", connector=connector,
        guarantee="exactly-once", per_epoch=10, limit_s=limit_s,
    )  # fmt: skip


def started(connector: str, limit_s: float | None, monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream()
    monkeypatch.setattr(job, "rows", lambda *_: stream)
    job.start(cast("Any", None), task(connector, limit_s))
    return stream


@pytest.mark.parametrize("connector", ["kafka", "files"])
def test_the_limit_of_a_round_is_the_querys(connector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(connector, 120.0, monkeypatch).given["onceonly.epoch.timeout"] == "120"
    assert "onceonly.epoch.timeout" not in started(connector, None, monkeypatch).given


class Frame:
    """A frame that notes what it is made into."""

    def __init__(self, *done: str) -> None:
        self.done = done

    def selectExpr(self, *names: str) -> Frame:  # noqa: N802  as in Spark
        return Frame(*self.done, *names)

    def repartition(self, count: int, key: str) -> Frame:
        return Frame(*self.done, f"{count} by {key}")


def test_a_sink_by_key_gets_numbered_rows_and_all_of_a_key_in_one_partition() -> None:
    given: Any = Frame()
    assert job.fitted(given, {"table": "t"}) is given
    made: Any = job.fitted(given, KEYED)
    number = f"{NUMBER} as {SEQUENCE}"
    assert made.done == ("key", "value", number, "2 by key")


def test_rows_by_key_are_seen_early_where_that_is_asked() -> None:
    told = msgspec.structs.replace(task("redis", None), tables={"redis": KEYED}, visible="early")
    assert told.options("redis")["onceonly.visible"] == "early"
    assert "onceonly.visible" not in msgspec.structs.replace(told, visible="").options("redis")


def test_cassandra_gets_no_sequence_where_rows_are_seen_early_as_it_takes_none() -> None:
    told = msgspec.structs.replace(task("cassandra", None), tables={"cassandra": KEYED}, visible="early")
    assert "sequence" not in told.options("cassandra")
    assert told.options("cassandra")["key"] == "key"
    assert "sequence" in msgspec.structs.replace(told, visible="").options("cassandra")


@pytest.mark.parametrize("limit_s", [120.0, None])
def test_of_several_sinks_the_limit_is_their_epochs(
    limit_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = started("kafka+files", limit_s, monkeypatch)
    asked: list[float | None] = []

    def epoch(*_: object, log: str, epoch_timeout_s: float | None) -> None:
        assert log == "/checkpoint"
        asked.append(epoch_timeout_s)
        raise InterruptedError  # what it writes is not looked at here

    monkeypatch.setattr(onceonly, "epoch", epoch)
    with pytest.raises(InterruptedError):
        stream.write(None, 1)

    assert asked == [limit_s]
    assert "onceonly.epoch.timeout" not in task("kafka+files", limit_s).options("files")
