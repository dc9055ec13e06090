"""``onceonly doctor --for`` of a job that reads Kinesis: the stream, rights and retention."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.kinesis_double import Stream, error

from onceonly.families import kinesis
from onceonly.jars.installed import Spark
from onceonly.operations import before_start, planned_job
from onceonly.operations.probes import Health

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Description = dict[str, Any]


class Client(Stream):
    """A stream whose description may be refused, or that is not there."""

    denied = gone = False

    def describe_stream_summary(self, **given: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's
        if self.denied or self.gone:
            raise error("AccessDeniedException" if self.denied else "ResourceNotFoundException")
        return super().describe_stream_summary(**given)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(shards=2)
    made.put("k", b"a row")
    monkeypatch.setattr(kinesis.Stream, "client", lambda _self: made)
    monkeypatch.setattr(before_start, "installed", lambda: Spark(version="4.2.0", scala="2.13"))
    return made


@pytest.fixture
def described(tmp_path: Path) -> Description:
    """A job that is well: a stream to files."""
    return {
        "format": "onceonly.files",
        "columns": {"data": "string"},
        "source": {
            "format": "onceonly.kinesis",
            "options": {"stream": "orders", "region": "r", "onceonly.ranges": str(tmp_path / "ranges")},
        },
        "outage": "4 hours",
        "options": {
            "path": str(tmp_path / "out"),
            "format": "json",
            "checkpointLocation": str(tmp_path / "cp"),
        },
    }


def sick(described: Description, folder: Path) -> dict[tuple[str, str], str]:
    """Say what is not well and what is to be done; see that the stream was asked."""
    file = folder / "job.json"
    file.write_text(json.dumps(described))
    found = before_start.examine(planned_job.read(file), agreed=True, within_s=20)
    assert "source" in {each.category for each in found}
    ill = [each for each in found if each.health is not Health.WELL]
    assert all(each.told and each.next_step for each in ill), ill
    return {(each.category, each.probe): each.next_step for each in ill}


def test_nothing_is_wrong_with_a_stream_that_keeps_its_records(
    described: Description, stream: Client, tmp_path: Path
) -> None:
    assert sick(described, tmp_path) == {}
    stream.denied = True  # the source does without it, too
    assert sick(described, tmp_path) == {}
    assert not (tmp_path / "ranges").exists()


def loses(described: Description) -> None:
    described["format"] = "onceonly.kinesis"
    described["columns"] = {"value": "string"}
    described["options"] = {
        "stream": "orders", "region": "r", "onceonly.guarantee": "at-least-once",
        "checkpointLocation": described["options"]["checkpointLocation"],
    }  # fmt: skip


FAULTS: dict[str, tuple[Callable[[Description, Client], object], tuple[str, str]]] = {
    "a stream that is not there": (lambda _, stream: setattr(stream, "gone", True), ("source", "can be read")),
    "a stream that is being deleted": (
        lambda _, stream: setattr(stream, "status", "DELETING"), ("source", "can be read")
    ),
    "records that may not be read": (
        lambda _, stream: stream.faults.append(error("AccessDeniedException")), ("source", "can be read")
    ),
    "no place for its ranges": (
        lambda each, _: each["source"]["options"].pop("onceonly.ranges"), ("source", "can be read")
    ),
    "an outage that is longer than it keeps records": (
        lambda each, _: each.update(outage="30 hours"), ("source", "keeps its rows")
    ),
    "the stream that it reads": (lambda each, _: loses(each), ("source", "is not the target")),
}  # fmt: skip


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_trips_its_probe_and_no_other(
    described: Description, stream: Client, tmp_path: Path, fault: str
) -> None:
    inject, probe = FAULTS[fault]
    inject(described, stream)
    assert set(sick(described, tmp_path)) == {probe}


def test_a_retention_that_is_told_is_long_enough(
    described: Description, stream: Client, tmp_path: Path
) -> None:
    described["outage"] = "90001 seconds"
    [step] = sick(described, tmp_path).values()
    stream.hours = int(step.rpartition("--retention-period-hours ")[2].rstrip(")"))
    assert sick(described, tmp_path) == {}
