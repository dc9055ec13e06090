"""What people do to checkpoints and sinks, and two drivers to one another: on a real disk, with the file sink."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.disk_bench import TYPED, World, armed, contents, in_child, memory, put_back, started, world

from onceonly import errors, failpoints
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.disk_bench import Child

__all__ = ["memory", "world"]  # fixtures
# Where a driver is paused in the second epoch that it runs, and how often it has passed there then.
PAUSES = {
    "plan.before_resolve": 2, "plan.after_claim": 1, "plan.after_resolve": 2,
    "slot.before_begin": 3, "slot.during_write": 3, "slot.before_prepare": 4, "slot.after_prepare": 4,
    "link.before_put": 2, "link.during_put": 3, "link.after_put": 2,
    "commit.before_handle": 3, "commit.after_handle": 3, "complete.before": 2,
    "receipt.before_put": 2, "receipt.after_put": 2, "sweep.before": 3, "commit.before_return": 2,
}  # fmt: skip
WAIT_S = 30.0


def paused(world: World, point: str) -> tuple[Child, Path]:
    """Start a driver that stops at a point until a file ``resume`` is put into the folder."""
    folder = world.folder / "failpoints"
    folder.mkdir()

    def live() -> None:
        os.environ["ONCEONLY_FAILPOINTS"] = f"{point}=pause@{PAUSES[point]}"
        os.environ["ONCEONLY_FAILPOINTS_DIR"] = str(folder)
        failpoints._counts.clear()
        world.live(world.last, run="paused")

    child = started(live)
    deadline = time.monotonic() + WAIT_S
    while not list(folder.glob("*.fired")):
        assert time.monotonic() < deadline, f"{point} was not reached"
        time.sleep(0.002)
    return child, folder


@pytest.mark.parametrize("far", [False, True], ids=["by an epoch", "by a fold"])
@pytest.mark.parametrize("point", PAUSES)
def test_a_driver_that_is_paused_while_another_takes_over_stops_and_doubles_nothing(
    world: World, point: str, *, far: bool
) -> None:
    child, folder = paused(world, point)
    try:
        # The other has completed the very epoch, or so many that it is folded.
        newer = in_child(lambda: world.live(world.last if far else world.finished() + 1, run="newer"))
        assert newer.status == 0, newer.said
        seen = contents(world.target)
    finally:
        (folder / "resume").touch()
        end = child.end()
    # Whose own decision stands and is complete finds all later epochs complete as well: it drains them.
    drains = far and list(PAUSES).index(point) >= list(PAUSES).index("link.after_put")
    assert end.status == TYPED or (drains and end.status == 0), end.said
    rows = Counter(world.rows())
    assert rows == world.wanted(*range(world.first, world.finished() + 1))
    shown = {name: data for name, data in seen.items() if not name.startswith("_")}
    assert shown.items() <= contents(world.target).items(), "what was visible stays"
    assert drains or re.search(r"ONCEONLY:(SUPERSEDED|UNAVAILABLE|WRITE_FAILED|LOG)\]", end.said), end.said
    # A log that has folded the epoch is at a later one: nobody is sent for a backup by a newer run alone.
    assert "epochs are missing" not in end.said or "a newer run works on this checkpoint" in end.said
    shutil.rmtree(folder)
    world.settle()
    world.judge_settled()


def test_an_older_checkpoint_over_a_newer_world_stops_and_touches_nothing(world: World, memory: Path) -> None:
    kept = world.folder.with_name("kept")
    world.live(world.first + 1)
    shutil.copytree(world.checkpoint, kept)
    world.live(world.last)
    newest = world.folder.with_name("newest")
    shutil.copytree(world.checkpoint, newest)
    before = contents(world.target)
    put_back(world.checkpoint, kept)
    for _ in range(2):
        with pytest.raises(errors.LogError, match="older checkpoint was restored"):
            world.live(world.last)
        assert contents(world.target) == before
    put_back(world.checkpoint, newest)
    world.settle()
    world.judge_settled()


def test_a_copy_of_a_checkpoint_stops_before_it_touches_what_is_pending(world: World) -> None:
    world.half_commit()
    before = contents(world.folder)
    other = World(world.folder.with_name("other"))
    put_back(other.checkpoint, world.checkpoint)
    other.target.symlink_to(world.target)
    for _ in range(2):
        with pytest.raises(errors.CheckpointMovedError, match="copied or moved"):
            other.live(other.last)
    assert contents(world.folder) == before
    world.settle()
    world.judge_settled()


@pytest.mark.parametrize("name", ["", "renamed"], ids=["removed", "renamed"])
def test_a_sink_that_is_gone_while_handles_are_pending_is_refused_and_nothing_is_touched(
    world: World, name: str
) -> None:
    world.half_commit()
    world.name = name
    before = {
        key: value for key, value in contents(world.target).items() if "staging" in key or key[0] != "_"
    }
    for _ in range(2):
        with pytest.raises(errors.OnceonlyError, match="files"):
            world.live(world.last)
        after = contents(world.target)
        assert before.items() <= after.items()
        assert len(world.visible()) == 3
    world.name = "files"
    world.settle()
    world.rows()
    assert world.rows() == world.wanted(*range(world.first, world.last + 1))


def test_what_others_left_beside_it_is_neither_taken_nor_touched(world: World) -> None:
    world.half_commit()
    query = next((world.target / "_onceonly" / "epochs").iterdir()).name
    foreign = [
        world.log / "links" / "note.txt",
        world.log / "links" / "00000000000000000018.0.json.bak",
        world.log / "receipts" / "18.json",
        world.log / "history" / "19-20.json",
        world.log / "a-folder" / "00000000000000000099.0.json",
        world.target / "README",
        world.target / "_onceonly" / "epochs" / query / "files" / "0-19.manifest",
        world.target / "_onceonly" / "epochs" / "another" / "files" / "0-99.manifest",
        world.target / "_onceonly" / "staging" / query / "files" / "mine" / "part-1.json",
        world.target / "_onceonly" / "staging" / "another" / "files" / f"9-0-{'a' * 32}" / "part-1.json",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not ours")
    world.live(world.last)
    world.live(world.last + 1)
    world.last += 1
    for path in foreign:
        assert path.read_bytes() == b"not ours", path
        path.unlink()
    shutil.rmtree(world.log / "a-folder")
    world.judge_settled()


# --- replays that give other rows -------------------------------------------------------------------------


def test_a_replay_with_other_rows_is_reported_and_the_files_stand(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.half_commit()
    world.others = {}
    sound = world.wanted(world.first, world.first + 1)
    real, world.shift = world.shift, 1000
    world.live(world.first + 1)  # the same number of rows, others than were decided
    assert world.rows() == sound
    assert [record for record in caplog.records if record.levelno == logging.ERROR], "reported loudly"
    assert "chk-19" in caplog.text or "epoch 19" in caplog.text
    world.shift = real
    world.settle()
    world.judge_settled()


def test_a_replay_with_other_rows_stops_where_rows_must_be_written_again(world: World) -> None:
    MemorySink.stores.clear()
    world.others = {"memory": MemorySink({"store": "r71"})}
    store = MemorySink.stores["r71"]
    world.live(world.first)
    with armed("commit.before_handle[memory]=raise@1"):
        world.live(world.first + 1)
    for name in store.pending():
        store.expire(name)  # proven lost: its rows must be written again
    before = store.visible()
    world.shift = 1000
    told = []
    for _ in range(3):
        with pytest.raises(errors.OnceonlyError) as caught:
            world.live(world.first + 1)
        told.append(caught.value.code)
    assert "REPLAY_MISMATCH" in told
    assert store.visible() == before
    world.shift = 0
    assert world.rows() == world.wanted(world.first, world.first + 1), "the files were committed, and stand"
    world.live(world.first + 1)
    assert store.visible() == Counter((one,) for one in world.rows())
