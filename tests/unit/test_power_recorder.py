"""A recording without a file system of its own."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.disk_bench import World, in_child, memory
from tests.unit.files_bench import Files, rows
from tests.unit.power_recorder import Recorder, read_tree, write_tree

from onceonly.checkpoint.inputs import SparkInputs
from onceonly.durable.disk import sync, write_new
from onceonly_proof.power import Keep, cut, plan, recording

if TYPE_CHECKING:
    from onceonly.ports import InputFiles

__all__ = ["memory"]  # a fixture


def test_what_a_process_does_is_recorded_as_it_was_done(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "x").write_bytes(b"old")
    with Recorder(folder) as recorder:
        write_new(folder / "a", b"one")
        os.link(folder / "a", folder / "old" / "b")
        (folder / "sub").mkdir()
        (folder / "a").rename(folder / "sub" / "c")
        sync(folder / "sub")
        (folder / "old" / "x").write_text("new", encoding="utf-8")
        (folder / "old" / "y").touch()
        (folder / "old" / "y").unlink()
        (folder / "old" / "gone").mkdir()
        shutil.rmtree(folder / "old" / "gone")
    assert plan.fingerprint(recorder.tree) == plan.fingerprint(read_tree(folder))
    assert plan.words(recorder.base, recorder.ops) == [
        "create a", "write a", "sync a", "link old/b", "create sub", "rename to sub/c", "sync sub/", "create old/y",
        "unlink old/y", "create old/gone", "unlink old/gone", "truncate old/x", "write old/x",
    ]  # fmt: skip
    left = cut(recorder.base, recorder.ops, Keep("nothing"))
    assert set(left.paths()) == {"old/", "old/x"}


def test_a_tree_is_written_as_it_was_read(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "sub").mkdir(parents=True)
    second.mkdir()
    (first / "a").write_bytes(b"one")
    (first / "sub" / "b").hardlink_to(first / "a")
    write_tree(read_tree(first), second)
    assert (second / "a").samefile(second / "sub" / "b")
    assert plan.fingerprint(read_tree(first)) == plan.fingerprint(read_tree(second))


class SparksWorld(World):
    """A world in which what Spark writes is made durable before a decision, as on every pipeline."""

    def inputs(self) -> InputFiles:
        return SparkInputs(self.checkpoint)

    def finished(self) -> int:
        noted = (path.name for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal())
        return max(map(int, noted), default=self.first - 1)

    def remains(self) -> list[str]:
        # Where the power fails beside a rename, Spark's folders keep a temporary file, of Spark's or of ours.
        sparks = (self.checkpoint / "offsets", self.checkpoint / "commits", self.checkpoint)
        return [each for each in super().remains() if Path(each).parent not in sparks]


@pytest.mark.parametrize("most", [40, pytest.param(100, marks=pytest.mark.long)])
def test_after_a_power_cut_at_any_operation_each_row_is_there_once(memory: Path, most: int) -> None:
    place = memory / f"states-{most}"
    place.mkdir()
    world = SparksWorld(place / "world")

    def live() -> None:
        with Recorder(world.folder) as recorder:
            world.history()
        recorder.save(place / "recording")

    assert in_child(live, calls=()).status == 0
    base, ops = recording.load(place / "recording")
    states = plan.states(base, ops, seed=1, seeds=1)
    hit = {one.at for state in states for one in state.cuts}
    assert sorted(hit) == list(range(len(ops) + 1))
    wrong: list[str] = []
    for state in states[:most]:
        write_tree(cut(base, ops[: state.first.at], state.first.keep), world.folder)
        fresh = SparksWorld(world.folder)
        end = in_child(fresh.settle, calls=())
        fresh.last += 1
        try:
            assert end.status == 0, end.said
            fresh.judge_settled()
        except (AssertionError, OSError, ValueError) as error:
            wrong.append(f"{state.first}: {error}")
    assert not wrong, f"{len(wrong)} of {most}:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize(
    "kinds", [("folder",), pytest.param(("file", "link", "rename"), marks=pytest.mark.long)]
)
def test_what_a_killed_process_has_named_is_durable_before_another_one_stands_on_it(
    memory: Path, kinds: tuple[str, ...]
) -> None:
    """Kill the first lives just behind each new name, live on, and forget what was not synced by the end of that."""
    place = memory / f"killed-{kinds[0]}"
    world = SparksWorld(place / "world")

    def live() -> None:
        with Recorder(world.folder) as recorder:
            world.history()
        recorder.save(place / "recording")

    assert in_child(live, calls=()).status == 0
    base, ops = recording.load(place / "recording")
    wrong: list[str] = []
    for upto, op in enumerate(ops, 1):
        kind = op.kind if op.kind != "create" else "folder" if stat.S_ISDIR(op.mode) else "file"
        if kind not in kinds:
            continue
        write_tree(cut(base, ops[:upto], Keep("all")), world.folder)
        again = SparksWorld(world.folder)

        def go_on(upto: int = upto, again: SparksWorld = again) -> None:
            with Recorder(again.folder, (base, ops[:upto])) as recorder:
                again.settle()
            recorder.save(place / "again")

        ends = [in_child(go_on, calls=())]
        again.last += 1
        write_tree(cut(*recording.load(place / "again"), Keep("nothing")), world.folder)
        ends.append(in_child(again.settle, calls=()))
        again.last += 1
        try:
            assert not any(end.status for end in ends), [end.said for end in ends]
            again.judge_settled()
        except (AssertionError, OSError, ValueError) as error:
            wrong.append(f"{upto}, {plan.words(base, ops[:upto])[-1]}: {error}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:5])


def test_a_target_that_a_person_has_just_made_is_durable_with_what_is_committed_to_it(memory: Path) -> None:
    place = memory / "disk"
    place.mkdir()
    bench = Files(place / "data" / "out")
    with Recorder(place) as recorder:
        bench.target.mkdir(parents=True)
        assert bench.finish(0, bench.prepared(rows(1, 2))) == ["Committed"]
    write_tree(cut(recorder.base, recorder.ops, Keep("nothing")), place)
    assert bench.ids() == [1, 2]
