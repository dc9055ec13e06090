"""A job whose checkpoint is on S3 dies with its rows staged there: finished by the next start, or by an operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import run
from tests.unit.s3_double import BUCKET, S3Double
from tests.unit.staged_double import StagedDouble, StagedSuite
from tests.unit.store_bench import SECRET, serving

from onceonly import failpoints
from onceonly.coordinator.query import QueryCoordinator
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, Mode
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import build
from onceonly.stores.address import parse
from onceonly.stores.opened import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKPOINT = f"s3a://{BUCKET}/chk"


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    yield from serving(monkeypatch, tmp_path)


class Job:
    """A query of two slots, up to the moment at which its driver dies."""

    def __init__(self, double: S3Double, folder: Path) -> None:
        self.double, self.suite = double, StagedSuite()
        self.options = self.suite.options(folder)
        self.settings = SinkSettings(name="staged", options=self.options)
        store = open_store(parse(CHECKPOINT))
        store.replace("metadata", json.dumps({"id": "q"}).encode())
        store.replace("offsets/0", b'v1\n{}\n{"t":{"0":2}}')

    def started(self) -> QueryCoordinator:
        made = QueryCoordinator(QuerySettings(checkpoint=CHECKPOINT), actor="driver", application="app")
        made.enlist(self.settings, StagedDouble, ())
        return made

    def dies_behind_its_link(self, patch: pytest.MonkeyPatch) -> None:
        coordinator = self.started()
        plan = coordinator.plan(0, run="r")
        ballots = []
        for slot in range(2):
            sink = build(self.settings, StagedDouble, checkpoint=CHECKPOINT)
            context = WriteContext(
                query="q", sink="staged", run="r", epoch=0, plan=plan.id, slot=slot, attempt=str(slot),
                guarantee=Guarantee.EXACTLY_ONCE,
            )  # fmt: skip
            ballots.append(run_slot(sink, plan, context, [self.suite.batch([slot])]))
        patch.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
        failpoints._counts.clear()
        with pytest.raises(failpoints.FailpointError):
            coordinator.decide(plan, ballots)
        patch.delenv("ONCEONLY_FAILPOINTS")
        coordinator.close()

    def staged(self) -> list[str]:
        return [name for name in self.double.objects if "/staged/" in name]

    def visible(self) -> list[str]:
        return sorted(value for _, value in self.suite.visible(self.options))


@pytest.fixture
def job(double: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    made = Job(double, tmp_path)
    made.dies_behind_its_link(monkeypatch)
    assert len(made.staged()) == 4
    assert made.visible() == []
    return made


def test_the_next_start_applies_what_is_decided(job: Job) -> None:
    assert job.started().plan(0, run="r2").mode is Mode.DRAIN
    assert job.visible() == ["row 0", "row 1"]
    assert job.staged() == []


def test_so_does_an_operator_with_the_job_down(job: Job) -> None:
    sink = ("--sink", "staged=staged_double:StagedDouble")
    done = run("transactions", "commit", "chk-0", CHECKPOINT, "--yes", *sink)
    assert done.returncode == 0, done.stderr
    assert job.visible() == ["row 0", "row 1"]
    assert job.staged() == []
    assert SECRET not in done.stdout + done.stderr
