"""``onceonly files expire``: found by a checkpoint or a target, shown before it is done, and done in two steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.disk_bench import COLUMNS, World, armed
from tests.unit.operator_bench import QueryCoordinator, run

from onceonly import files
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.log import open_log
from onceonly.model import Guarantee, SinkUse

if TYPE_CHECKING:
    from onceonly.ports import Sink


class Noted(World):
    """A world whose links say how its sinks are used, as those of a query do."""

    def coordinator(self, sinks: dict[str, Sink]) -> Coordinator:
        opened = open_log(str(self.checkpoint), query=self.query, keep=2, create=True)
        coordinator = Coordinator(log=opened, actor="driver", commit_timeout_s=1.0, clock=self.clock())
        use = SinkUse(sink="files", options={"path": str(self.target), "format": "json"})
        for name, sink in sinks.items():
            coordinator.join(
                name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS, use=use)
            )
        return coordinator

    @property
    def query(self) -> str:
        return str(json.loads((self.checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = Noted(tmp_path / "w")
    found.live(found.last)
    return found


def listed(world: World) -> list[int]:
    return [epoch.epoch for epoch in files.committed(str(world.target))]


@pytest.mark.parametrize("by", ["checkpoint", "target"])
def test_a_dry_run_shows_what_goes_and_nothing_goes(world: World, by: str) -> None:
    told = run("files", "expire", getattr(world, by), "--older-than", "0s", "--dry-run")
    assert told.returncode == 0, told.stderr
    assert "chk-18" in told.stdout
    assert "chk-19" in told.stdout
    assert "chk-20" not in told.stdout
    assert listed(world) == [18, 19, 20, 21]
    assert len(world.visible()) == 8


@pytest.mark.parametrize("by", ["checkpoint", "target"])
def test_epochs_leave_the_manifests_and_a_later_call_deletes_their_files(world: World, by: str) -> None:
    place = getattr(world, by)
    told = run("files", "expire", place, "--older-than", "0s", "--yes")
    assert told.returncode == 0, told.stderr
    assert "leaves the manifests" in told.stdout
    assert (listed(world), len(world.visible())) == ([20, 21], 8)
    # Within the grace time, nothing more.
    told = run("files", "expire", place, "--older-than", "0s", "--yes")
    assert "waiting" in told.stdout
    assert (listed(world), len(world.visible())) == ([20, 21], 8)
    told = run("files", "expire", place, "--older-than", "0s", "--grace", "0s", "--yes")
    assert "removed" in told.stdout
    assert (listed(world), len(world.visible())) == ([20, 21], 4)
    told = run("files", "expire", place, "--older-than", "0s", "--grace", "0s", "--yes")
    assert (told.returncode, "nothing is so old" in told.stdout) == (0, True)
    world.last += 2
    world.live(world.last)
    assert listed(world) == [20, 21, 22, 23]


def test_young_epochs_stay(world: World) -> None:
    told = run("files", "expire", world.target, "--older-than", "1 hour", "--yes")
    assert (told.returncode, "nothing is so old" in told.stdout) == (0, True)
    assert listed(world) == [18, 19, 20, 21]


def test_what_is_decided_and_not_committed_stays_and_is_committed_later(tmp_path: Path) -> None:
    world = Noted(tmp_path / "w")
    world.live(world.last)
    with armed("commit.before_handle=raise@2"):
        world.live(world.last + 1)
    assert len(world.visible()) == 9
    told = run("files", "expire", world.checkpoint, "--older-than", "0s", "--grace", "0s", "--yes")
    assert told.returncode == 0, told.stderr
    world.settle()
    assert listed(world) == [20, 21, 22]
    assert len(world.visible()) == 6


def test_nobody_to_ask_is_wrong_usage_and_nothing_is_done(world: World) -> None:
    told = run("files", "expire", world.target, "--older-than", "0s", "--grace", "0s")
    assert (told.returncode, "--yes" in told.stderr) == (64, True)
    assert (listed(world), len(world.visible())) == ([18, 19, 20, 21], 8)


def test_for_machines(world: World) -> None:
    told = json.loads(run("files", "expire", world.target, "--older-than", "0s", "--yes", "--json").stdout)
    assert [(each["epoch"], each["step"]) for each in told["sinks"][0]["epochs"]] == [
        (18, "expired"),
        (19, "expired"),
    ]
    reference = (Path(__file__).parents[2] / "docs/reference/cli-json.md").read_text(encoding="utf-8")
    keys = {*told, *told["sinks"][0], *told["sinks"][0]["epochs"][0]}
    assert {key for key in keys if f"`{key}`" not in reference} == set()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--older-than", "7"],
        ["--older-than", "1 month"],
        ["--older-than", "1 day", "--grace", "soon"],
    ],
)
def test_a_time_must_be_given_and_be_one(world: World, arguments: list[str]) -> None:
    told = run("files", "expire", world.target, *arguments)
    assert told.returncode == 64
    assert "Traceback" not in told.stderr


def test_a_target_that_is_not_mounted_is_left_alone(world: World) -> None:
    (world.target / "_onceonly" / "target-id").write_text("another", encoding="utf-8")
    told = run("files", "expire", world.checkpoint, "--older-than", "0s", "--yes")
    assert (told.returncode, "is not the folder" in told.stderr) == (64, True)
    assert len(listed(world)) == 4


def test_a_checkpoint_without_file_sinks_and_a_folder_without_anything_are_wrong_usage(
    tmp_path: Path,
) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    coordinator.complete(0)
    for place in (coordinator.path, tmp_path / "none"):
        assert run("files", "expire", place, "--older-than", "0s", "--yes").returncode == 64


def test_a_damaged_manifest_cannot_be_told(world: World) -> None:
    first = min((world.target / "_onceonly" / "epochs").rglob("*.manifest"))
    first.write_bytes(first.read_bytes()[:-3])
    told = run("files", "expire", world.target, "--older-than", "0s", "--yes")
    assert (told.returncode, "is torn" in told.stderr) == (2, True)
    assert len(world.visible()) == 8
