"""Older packages, run as the history of this repository has them, refuse by name what a newer one has written.

What they read are recorded checkpoints. Without the history (a shallow clone, an archive) there is nothing to run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from tests.unit.disk_bench import World, contents
from tests.unit.golden_world import GOLDEN, LAST
from tests.unit.test_log_golden import at_home

from onceonly.log.files import VERSION

ROOT = Path(__file__).parents[2]
OLDER = {1: "40b8f96", 2: "5376c527", 3: "c5969fe7"}
"""Code that writes each former format of the log."""
# A driver's start, by the code that the older package was tested with.
START = """
import json, sys
from pathlib import Path
import onceonly
from onceonly.errors import OnceonlyError
from tests.unit.disk_bench import World

def said(folder):
    world = World(Path(folder), last=int(sys.argv[1]))
    try:
        world.live(world.last)
    except OnceonlyError as error:
        return str(error)

print(json.dumps([onceonly.__file__, *map(said, sys.argv[2:])]))
"""


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)


def package(version: int, folder: Path) -> Path:
    """Unpack the code that wrote a format; the test is skipped where it is not to be had."""
    there = ["src", "tests/unit/disk_bench.py", *(["proof/src"] if version > 1 else [])]
    found = git("archive", OLDER[version], *there) if shutil.which("git") else None
    if found is None or found.returncode:
        pytest.skip(f"the history of this repository has no {OLDER[version]}")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def recorded(version: int, folder: Path) -> World:
    """Return a world that died with its last epoch decided, at home where it now is."""
    shutil.copytree(GOLDEN / f"midway-{version}-decided", folder)
    at_home(folder)
    return World(folder, last=LAST + 1)


def started(code: Path, *worlds: World) -> list[str | None]:
    """Start a driver of that code on each world; give what it said, None where it came to its end."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(LAST + 1), *(str(world.folder) for world in worlds)],
        cwd=code,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (code / "src", code / "proof/src", code)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, *said = json.loads(done.stdout.splitlines()[-1])
    assert Path(where).is_relative_to(code), "the code of today was run"
    return list(said)


def test_each_former_format_has_code_that_writes_it() -> None:
    assert list(OLDER) == list(range(1, VERSION))


@pytest.mark.parametrize("version", OLDER)
def test_an_older_package_refuses_a_newer_checkpoint_by_name(version: int, tmp_path: Path) -> None:
    code = package(version, tmp_path / "code")
    own, newer = recorded(version, tmp_path / "own"), recorded(VERSION, tmp_path / "newer")
    upgraded = recorded(version, tmp_path / "upgraded")
    identity = (upgraded.log / "identity.json").read_bytes()
    shutil.rmtree(upgraded.folder)
    upgraded = recorded(VERSION, tmp_path / "upgraded")
    # It was made by the older package, and written to by the newer one since.
    (upgraded.log / "identity.json").write_bytes(identity)
    before = [contents(world.folder) for world in (newer, upgraded)]
    goes_on, *refused = started(code, own, newer, upgraded)
    assert goes_on is None
    for said, world, file in zip(refused, (newer, upgraded), ("identity.json", "links/"), strict=True):
        assert said is not None
        assert f"{world.log}/{file}" in said
        assert f"has format {VERSION}" in said
        assert "upgrade onceonly" in said
    assert [contents(world.folder) for world in (newer, upgraded)] == before, "something was touched"
