"""A recording without a file system of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onceonly.durable import sync, write_new
from onceonly.testing.power import Keep, cut, plan
from onceonly.testing.power.recorder import Recorder, read_tree, write_tree

if TYPE_CHECKING:
    from pathlib import Path


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
    assert plan.fingerprint(recorder.tree) == plan.fingerprint(read_tree(folder))
    assert plan.words(recorder.base, recorder.ops) == [
        "create a", "write a", "sync a", "link old/b", "create sub", "rename to sub/c", "sync sub/", "create old/y",
        "unlink old/y", "truncate old/x", "write old/x",
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
