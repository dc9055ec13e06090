"""Each file of the log and of the file sink, cut, flipped, lengthened, or of a newer format: named, or not needed.

The world at hand has everything to lose: history, a claim, and an epoch that is decided and half committed.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.disk_bench import World, armed, contents, memory, put_back

from onceonly import files
from onceonly.errors import LogError, OnceonlyError
from onceonly.log import files as log_files
from onceonly.operations import look
from onceonly.operations.find import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["memory"]  # a fixture
KINDS = (
    "alive", "progress/", "identity.json", "links/", "receipts/", "history/", "target-id", "manifest", ".layout",
)  # fmt: skip
# The driver passes over these; who reads them names them.
TOOLS, READERS = ("history/",), ("manifest", ".layout")
# These decide nothing, and nobody asks for them but people.
NEVER = ("alive", "progress/")
# Its damage is told of the folder: it is another than it was.
OF_FOLDER = ("target-id",)


@pytest.fixture(scope="module")
def half_done(memory: Path) -> Iterator[tuple[World, Path]]:
    """Return a world in which an epoch is half committed, and a copy of it."""
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        world = World(Path(folder) / "world")
        world.history()
        world.last += 1
        with armed("commit.before_handle=raise@2"):
            world.live(world.last)
        shutil.copytree(world.folder, Path(folder) / "kept")
        yield world, Path(folder) / "kept"


def damages(data: bytes) -> dict[str, bytes]:
    """Return damaged forms of a file, the same ones each time."""
    chance = random.Random(len(data))
    found = {
        f"cut to {size}": data[:size] for size in {0, 1, len(data) // 2, len(data) - 1} if size < len(data)
    }
    header = data.find(b"\n") + 1
    for size in [*chance.sample(range(len(data)), min(4, len(data))), header]:
        found[f"cut to {size}"] = data[:size]
    for at in chance.sample(range(len(data)), min(8, len(data))):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        found[f"flipped at {at}"] = bytes(changed)
    return {**found, "longer": data + b"\n", "zeros": bytes(len(data) or 1)}


def newer(data: bytes) -> bytes:
    return re.sub(rb'"version":(\d+)', lambda match: b'"version":%d' % (int(match[1]) + 1), data, count=1)


def kind_of(name: str) -> str:
    return next(kind for kind in KINDS if kind in name)


def outcome(world: World, place: Path) -> str:
    """Start the query on a world with a damaged file: give what it said, empty where it came to its end."""
    before = contents(world.target)
    refusal: OnceonlyError | None = None
    try:
        world.live(world.last)
    except OnceonlyError as error:
        refusal = error
    if refusal is None:
        return ""
    assert contents(world.target) == before, "something was touched"
    named = world.target if kind_of(str(place)) in OF_FOLDER else place
    assert str(named) in refusal.what
    return str(refusal)


def places(half_done: tuple[World, Path]) -> list[str]:
    world, kept = half_done
    found = sorted(
        str(path.relative_to(kept))
        for folder in (kept / "checkpoint" / "onceonly", kept / "out" / "_onceonly")
        for path in folder.rglob("*")
        if path.is_file() and "staging" not in path.parts
    )
    assert {kind_of(name) for name in found} == set(KINDS), "the world has every kind of file"
    assert world.last - world.first > 3
    return found


def test_what_is_damaged_is_named_or_not_needed(half_done: tuple[World, Path]) -> None:
    world, kept = half_done
    stopped: set[str] = set()
    for name in places(half_done):
        place, data = world.folder / name, (kept / name).read_bytes()
        for damage, changed in damages(data).items():
            put_back(world.folder, kept)
            if changed == data:
                continue
            place.write_bytes(changed)
            if outcome(world, place):
                stopped.add(kind_of(name))
            else:
                seen_by_others(world, place, name, damage)
            if place.exists() and kind_of(name) not in NEVER:
                place.write_bytes(data)
            world.live(world.last)
            world.judge_midway()
            assert world.rows() == world.wanted(*range(world.first, world.last + 1)), (name, damage)
    assert stopped == {"identity.json", "links/", "receipts/", "target-id"}


def seen_by_others(world: World, place: Path, name: str, damage: str) -> None:
    """See that what the driver has no use for is named by whoever has."""
    kind = kind_of(name)
    assert kind in {*TOOLS, *READERS, *NEVER}, f"{name}, {damage}: nobody has noticed"
    if kind in TOOLS:
        with pytest.raises(LogError, match=re.escape(str(place))):
            look.newest(open_checkpoint(world.checkpoint), limit=None, history=True)
    if kind in READERS and place.exists():
        with pytest.raises(LogError, match=re.escape(str(place))):
            read(world)


def read(world: World) -> None:
    files.committed(str(world.target))
    for path in (world.target / "_onceonly" / "epochs").rglob("*.layout"):
        from onceonly.sinks.files.manifests.manifest import decode_layout

        decode_layout(path.read_bytes(), where=str(path))


def test_a_file_of_a_newer_format_stops_the_query_and_is_named(half_done: tuple[World, Path]) -> None:
    world, kept = half_done
    for name in places(half_done):
        place, data = world.folder / name, (kept / name).read_bytes()
        put_back(world.folder, kept)
        if kind_of(name) in {"alive", "target-id"}:
            continue  # these have no format
        place.write_bytes(newer(data))
        told = json.loads(place.read_bytes().partition(b"\n")[0])
        assert told["version"] == (log_files.VERSION if told["format"] == "onceonly" else 1) + 1
        if kind_of(name) in {"identity.json", "links/", "receipts/"}:
            said = outcome(world, place)
            assert "upgrade onceonly" in said, name
        elif kind_of(name) in TOOLS:
            with pytest.raises(LogError, match=rf"{re.escape(str(place))}.*upgrade onceonly"):
                look.newest(open_checkpoint(world.checkpoint), limit=None, history=True)
        elif kind_of(name) in READERS:
            with pytest.raises(LogError, match=rf"{re.escape(str(place))}.*upgrade onceonly"):
                read(world)
