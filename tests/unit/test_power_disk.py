"""The power-loss file system under real processes. Without /dev/fuse and the right to mount, it fails and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceonly.durable.disk import sync, write_new
from onceonly_proof.power import Keep, PowerDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
NOTHING = Keep("nothing")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerDisk]:
    with PowerDisk(tmp_path / "disk") as mounted:
        yield mounted


def test_files_and_folders_behave_as_on_any_disk(disk: PowerDisk) -> None:
    folder = disk.folder / "a" / "b"
    folder.mkdir(parents=True)
    data = os.urandom(1_000_000)
    (folder / "x").write_bytes(data)
    (folder / "y").hardlink_to(folder / "x")
    (folder / "x").rename(disk.folder / "z")
    assert (folder / "y").read_bytes() == (disk.folder / "z").read_bytes() == data
    assert (folder / "y").stat().st_nlink == 2
    assert (folder / "y").samefile(disk.folder / "z")
    with pytest.raises(FileExistsError):
        (folder / "y").hardlink_to(disk.folder / "z")
    with pytest.raises(OSError, match="not empty"):
        folder.rmdir()
    with (disk.folder / "z").open("r+b") as file:
        file.truncate(10)
        file.seek(0, os.SEEK_END)
        file.write(b"more")
    assert (folder / "y").read_bytes() == data[:10] + b"more"
    assert sorted(path.name for path in disk.folder.rglob("*")) == ["a", "b", "y", "z"]


def test_a_cut_forgets_what_was_not_synced(disk: PowerDisk) -> None:
    write_new(disk.folder / "kept", b"kept")
    sync(disk.folder)
    write_new(disk.folder / "without a name", b"synced, but its folder was not")
    disk.cut(NOTHING)
    assert [path.name for path in disk.folder.iterdir()] == ["kept"]
    assert (disk.folder / "kept").read_bytes() == b"kept"


def test_what_was_open_before_a_cut_is_stale_after_it(disk: PowerDisk) -> None:
    with (disk.folder / "x").open("wb", buffering=0) as file:
        disk.cut(NOTHING)
        with pytest.raises(OSError, match="Stale"):
            file.write(b"late")
    assert list(disk.folder.iterdir()) == []


def test_a_recording_is_cut_at_any_of_its_operations(disk: PowerDisk, tmp_path: Path) -> None:
    for number in range(3):
        write_new(disk.folder / str(number), b"data")  # make, write, sync
    assert disk.save(tmp_path / "recording") == 9
    seen = []
    for at in range(10):
        disk.restore(tmp_path / "recording", at=at, keep=Keep("all"))
        seen.append(sorted(path.name for path in disk.folder.iterdir()))
    assert seen == [[], *[["0"]] * 3, *[["0", "1"]] * 3, *[["0", "1", "2"]] * 3]


def test_a_strike_kills_all_processes_before_the_operation_and_refuses_what_comes(disk: PowerDisk) -> None:
    """The one that writes, its child that only waits, and whoever is left."""
    child = "import time; time.sleep(60)"
    job = (
        f"import pathlib, subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]);"
        f"input(); [pathlib.Path({str(disk.folder)!r}, str(n)).touch() for n in range(100)]"
    )
    process = subprocess.Popen([sys.executable, "-c", job], stdin=subprocess.PIPE, start_new_session=True)
    disk.strike(5, process.pid)
    process.communicate(b"\n", timeout=20)
    assert process.returncode == -signal.SIGKILL
    assert disk.is_off()
    assert sorted(path.name for path in disk.folder.iterdir()) == ["0", "1", "2", "3", "4"]
    with pytest.raises(OSError, match="Input/output"):
        (disk.folder / "late").touch()
    deadline = time.monotonic() + 20
    while _of_session(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    disk.cut(NOTHING)
    (disk.folder / "again").touch()


def _of_session(session: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(entry.name)
    return found


def test_writes_through_memory_arrive_when_they_are_synced(disk: PowerDisk) -> None:
    import mmap

    (disk.folder / "x").write_bytes(bytes(8192))
    sync(disk.folder)
    with (disk.folder / "x").open("r+b") as file, mmap.mmap(file.fileno(), 8192) as mapped:
        mapped[4096:4100] = b"here"
        mapped.flush()
        sync(disk.folder / "x")
    disk.cut(NOTHING)
    assert (disk.folder / "x").read_bytes()[4096:4100] == b"here"


def test_it_is_unmounted_when_its_owner_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    owner = (
        f"from onceonly_proof.power import PowerDisk\n"
        f"with PowerDisk({str(folder)!r}): print('up', flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    assert str(folder) in Path("/proc/mounts").read_text()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while str(folder) in Path("/proc/mounts").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
