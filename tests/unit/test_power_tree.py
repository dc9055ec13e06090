"""What a power cut leaves of a file tree: of each promise the durable side and the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly_proof.power import recording
from onceonly_proof.power.tree import ROOT, STYLES, Keep, Op, Tree, cut, unsynced

if TYPE_CHECKING:
    from pathlib import Path

FILE, FOLDER = 0o100644, 0o040755
A, B, SUB = 11, 12, 13
NOTHING, ALL = Keep("nothing"), Keep("all")


def made(ino: int, name: str, data: bytes = b"", *, folder: int = ROOT) -> list[Op]:
    written = [Op("write", ino=ino, data=data)] if data else []
    return [Op("create", ino=ino, folder=folder, name=name, mode=FILE), *written]


def sync(ino: int) -> Op:
    return Op("sync", ino=ino)


def durable(*ops: Op) -> Tree:
    tree = Tree()
    for op in ops:
        tree.apply(op)
    return tree


def content(tree: Tree) -> dict[str, bytes]:
    return {path: bytes(tree.nodes[ino].data) for path, ino in tree.paths().items()}


def after(*ops: Op, keep: Keep = NOTHING, base: Tree | None = None) -> dict[str, bytes]:
    return content(cut(base or Tree(), ops, keep))


def test_what_was_not_synced_is_gone_and_what_was_is_there() -> None:
    assert after(*made(A, "a", b"one")) == {}
    assert after(*made(A, "a", b"one"), sync(A), sync(ROOT)) == {"a": b"one"}


def test_a_synced_file_has_no_name_until_its_folder_is_synced() -> None:
    assert after(*made(A, "a", b"one"), sync(A)) == {}


def test_a_synced_folder_does_not_make_content_durable() -> None:
    assert after(*made(A, "a", b"one"), sync(ROOT)) == {"a": b""}


def test_what_is_written_after_a_sync_is_not_durable() -> None:
    ops = [*made(A, "a", b"one"), sync(A), sync(ROOT), Op("write", ino=A, offset=3, data=b" two")]
    assert after(*ops) == {"a": b"one"}
    assert after(*ops, keep=ALL) == {"a": b"one two"}


def test_a_file_cut_to_nothing_keeps_what_was_durable() -> None:
    base = durable(*made(A, "a", b"one"))
    assert after(Op("truncate", ino=A), base=base) == {"a": b"one"}
    assert after(Op("truncate", ino=A), sync(A), base=base) == {"a": b""}


def test_a_rename_is_old_or_new_until_its_folder_is_synced() -> None:
    base = durable(*made(A, "old", b"one"))
    rename = Op("rename", folder=ROOT, name="old", to_folder=ROOT, to_name="new")
    assert after(rename, base=base) == {"old": b"one"}
    assert after(rename, base=base, keep=ALL) == {"new": b"one"}
    assert after(rename, sync(ROOT), base=base) == {"new": b"one"}


def test_a_rename_over_a_file_keeps_one_of_both_whole() -> None:
    base = durable(*made(A, "a", b"old"), *made(B, "b", b"new"))
    rename = Op("rename", folder=ROOT, name="b", to_folder=ROOT, to_name="a")
    assert after(rename, base=base) == {"a": b"old", "b": b"new"}
    assert after(rename, sync(ROOT), base=base) == {"a": b"new"}


def test_a_rename_to_another_folder_is_durable_by_that_folder_alone() -> None:
    base = durable(*made(A, "a", b"one"), Op("create", ino=SUB, folder=ROOT, name="sub", mode=FOLDER))
    rename = Op("rename", folder=ROOT, name="a", to_folder=SUB, to_name="a")
    assert after(rename, sync(ROOT), base=base) == {"a": b"one", "sub/": b""}
    assert after(rename, sync(SUB), base=base) == {"sub/": b"", "sub/a": b"one"}


def test_a_link_is_gone_without_its_folder_and_the_first_name_stays() -> None:
    base = durable(*made(A, "a", b"one"))
    link = Op("link", ino=A, folder=ROOT, name="b")
    assert after(link, base=base) == {"a": b"one"}
    assert after(link, sync(ROOT), base=base) == {"a": b"one", "b": b"one"}


def test_a_removal_comes_back_without_its_folder() -> None:
    base = durable(*made(A, "a", b"one"))
    removal = Op("unlink", folder=ROOT, name="a")
    assert after(removal, base=base) == {"a": b"one"}
    assert after(removal, sync(ROOT), base=base) == {}


def test_a_folder_that_was_not_synced_into_its_parent_takes_all_with_it() -> None:
    ops = [
        Op("create", ino=SUB, folder=ROOT, name="sub", mode=FOLDER),
        *made(A, "a", b"one", folder=SUB), sync(A), sync(SUB),
    ]  # fmt: skip
    assert after(*ops) == {}
    assert after(*ops, sync(ROOT)) == {"sub/": b"", "sub/a": b"one"}


def test_operations_on_one_name_stay_in_their_order() -> None:
    """A removal that is durable took the name whose making was not: it does not come back."""
    ops = [*made(A, "a", b"one"), Op("unlink", folder=ROOT, name="a"), *made(B, "a", b"two")]
    for style in STYLES:
        for seed in range(30):
            assert set(after(*ops, keep=Keep(style, seed)).values()) <= {b"", b"o", b"on", b"one", b"t", b"tw",
                                                                         b"two", b"\0\0\0"}  # fmt: skip
    names = durable(*made(A, "a", b"one"))
    moved = [
        Op("rename", folder=ROOT, name="a", to_folder=ROOT, to_name="b"),
        *made(B, "a", b"two"), sync(B), sync(ROOT),
    ]  # fmt: skip
    assert after(*moved, base=names) == {"a": b"two", "b": b"one"}


def test_a_durable_rename_takes_the_file_along_though_its_first_name_was_never_synced() -> None:
    base = durable(Op("create", ino=SUB, folder=ROOT, name="sub", mode=FOLDER))
    rename = Op("rename", folder=ROOT, name="a", to_folder=SUB, to_name="a")
    ops = [*made(A, "a", b"one"), sync(A), rename, sync(SUB)]
    assert after(*ops, base=base) == {"sub/": b"", "sub/a": b"one"}


def test_names_without_content_and_content_of_zeros() -> None:
    ops = made(A, "a", b"one")
    assert after(*ops, keep=Keep("names")) == {"a": b""}
    assert after(*ops, keep=Keep("zeros")) == {"a": b"\0\0\0"}


def test_a_coin_reaches_every_outcome_and_the_seed_decides() -> None:
    ops = made(A, "a", b"one")
    reached = {tuple(after(*ops, keep=Keep("random", seed)).values()) for seed in range(300)}
    assert reached == {(), (b"",), (b"o",), (b"on",), (b"one",), (b"\0\0\0",)}
    assert after(*ops, keep=Keep("random", 7)) == after(*ops, keep=Keep("random", 7))


def test_all_but_one_loses_one_thing_and_one_keeps_one() -> None:
    base = durable(*made(A, "a", b"one"), *made(B, "b", b"two"))
    removals = [Op("unlink", folder=ROOT, name="a"), Op("unlink", folder=ROOT, name="b")]
    for style in ("all-but-one", "one"):
        left = {tuple(after(*removals, base=base, keep=Keep(style, seed))) for seed in range(30)}
        assert left == {("a",), ("b",)}


def test_what_is_durable_is_there_whatever_else_is_kept() -> None:
    ops = [
        *made(A, "a", b"one"),
        sync(A),
        sync(ROOT),
        *made(B, "b", b"two"),
        Op("unlink", folder=ROOT, name="b"),
    ]
    for style in STYLES:
        for seed in range(30):
            assert after(*ops, keep=Keep(style, seed))["a"] == b"one"


def test_what_can_be_lost_is_counted() -> None:
    assert unsynced(made(A, "a", b"one")) == 2
    assert unsynced([*made(A, "a", b"one"), sync(A)]) == 1
    assert unsynced([*made(A, "a", b"one"), sync(A), sync(ROOT)]) == 0


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    base, ops = durable(*made(A, "a", b"one")), [*made(B, "b", b"two"), sync(ROOT)]
    recording.save(tmp_path / "recording", base, ops)
    read, again = recording.load(tmp_path / "recording")
    assert (content(read), read.next_ino, again) == (content(base), base.next_ino, ops)


def test_a_style_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="some is none of"):
        Keep("some")
