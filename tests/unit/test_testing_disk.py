"""The faulty disk itself: it counts what it should, strikes once or for good, and leaves no trace."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from onceonly_proof.disk import CHANGES, READS, Fault, FaultyDisk, How

if TYPE_CHECKING:
    from pathlib import Path


def work(folder: Path) -> None:
    """Make each kind of call that changes something, once or twice."""
    place = folder / "a"
    place.mkdir()
    with (place / "one").open("xb") as file:
        file.write(b"0123456789")
        file.flush()
        os.fsync(file.fileno())
    (place / "two").hardlink_to(place / "one")
    (place / "two").replace(place / "three")
    (place / "three").rename(place / "four")
    shutil.rmtree(place)


def test_calls_are_counted_by_kind_and_only_in_the_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "inside out"
    inside.mkdir()
    outside.mkdir()
    with FaultyDisk(inside) as disk:
        work(outside)
        assert disk.total == 0
        work(inside)
    assert disk.counts == {
        "mkdir": 1, "open": 1, "write": 1, "fsync": 1, "link": 1, "rename": 2, "unlink": 2, "rmdir": 1,
    }  # fmt: skip
    assert disk.counts.keys() == CHANGES
    assert disk.at is None


def test_reads_are_counted_where_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    with FaultyDisk(tmp_path, calls=READS) as disk:
        (tmp_path / "a").read_bytes()
        list(tmp_path.iterdir())
        assert (tmp_path / "a").exists()
    assert disk.counts == {"read": 1, "list": 1, "stat": 1}


def test_everything_is_put_back(tmp_path: Path) -> None:
    before = [os.fsync, os.open, os.link, io.open, builtins.open]
    with pytest.raises(OSError, match="Input/output"), FaultyDisk(tmp_path, fault=Fault(1, How.REFUSE)):
        work(tmp_path)
    assert before == [os.fsync, os.open, os.link, io.open, builtins.open]


@pytest.mark.parametrize("how", [How.REFUSE, How.LOSE])
def test_each_call_is_refused_or_done_without_an_answer(tmp_path: Path, how: How) -> None:
    with FaultyDisk(tmp_path) as disk:
        work(tmp_path)
    for nth in range(1, disk.total + 1):
        folder = tmp_path / str(nth)
        folder.mkdir()
        with (
            pytest.raises(OSError, match="No space") as caught,
            FaultyDisk(folder, fault=Fault(nth, how, errno.ENOSPC)) as disk,
        ):
            work(folder)
        assert caught.value.errno == errno.ENOSPC
        assert disk.at is not None


def test_a_call_whose_answer_is_lost_was_made_and_of_a_write_one_half(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output"), FaultyDisk(tmp_path, fault=Fault(1, How.LOSE)):
        (tmp_path / "made").mkdir()
    assert (tmp_path / "made").is_dir()
    with FaultyDisk(tmp_path, fault=Fault(2, How.LOSE)):
        file = (tmp_path / "torn").open("wb")
        file.write(b"0123456789")
        assert isinstance(file, io.BufferedWriter)
        with pytest.raises(OSError, match="Input/output") as caught:
            file.flush()
        assert caught.value.filename is None, "as write(2) knows no name"
        file.raw.close()
    assert (tmp_path / "torn").read_bytes() == b"01234"


def test_a_full_disk_stays_full_for_what_needs_space(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    with FaultyDisk(tmp_path, fault=Fault(1, How.FULL, errno.ENOSPC)) as disk:
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "old").unlink()
    assert disk.at == ("open", str(tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


def test_a_kill_comes_before_the_call(tmp_path: Path) -> None:
    script = (
        "import os, sys; from onceonly_proof.disk import *\n"
        "with FaultyDisk(sys.argv[1], fault=Fault(2, How.KILL)):\n"
        "    os.mkdir(sys.argv[1] + '/1'); os.mkdir(sys.argv[1] + '/2')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
