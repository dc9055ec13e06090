"""Whether a run is alive: seen while it is, and never after it has died."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import UnavailableError
from onceonly.log.presence import Presence, present

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOLDER = """
import sys
from onceonly.log.presence import Presence
presence = Presence.hold(sys.argv[1], actor="driver")
print(presence.held, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    (tmp_path / "onceonly").mkdir()
    return str(tmp_path)


@pytest.fixture
def holder(checkpoint: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, checkpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    with process:
        yield process
        process.stdin.close()


def test_a_checkpoint_on_which_nobody_works(tmp_path: Path, checkpoint: str) -> None:
    assert present(checkpoint) is None
    assert present(str(tmp_path / "none")) is None
    assert list((tmp_path / "onceonly").iterdir()) == []


def test_a_living_process_is_named_and_a_killed_one_is_gone(
    checkpoint: str, holder: subprocess.Popen[str]
) -> None:
    for _ in range(3):  # looking leaves nothing locked and takes nothing away
        told = present(checkpoint)
        assert told is not None
        assert f"process {holder.pid} (driver)" in told
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert present(checkpoint) is None


def test_the_dead_are_not_named_among_the_living(checkpoint: str, holder: subprocess.Popen[str]) -> None:
    mine = Presence.hold(checkpoint, actor="planner")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    told = present(checkpoint)
    assert told is not None
    assert f"process {os.getpid()} (planner)" in told
    mine.close()


def test_many_hold_it_and_the_last_one_counts(checkpoint: str) -> None:
    first, second = Presence.hold(checkpoint), Presence.hold(checkpoint, actor="planner")
    assert (first.held, second.held) == (True, True)
    first.close()
    first.close()
    assert present(checkpoint) is not None
    second.close()
    assert present(checkpoint) is None


def test_a_forked_child_does_not_hold_what_its_parent_held(checkpoint: str) -> None:
    presence = Presence.hold(checkpoint)
    ready, go_on = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_on[1])  # so that it ends when its parent does
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert present(checkpoint) is not None
    presence.close()
    assert present(checkpoint) is None
    os.write(go_on[1], b"x")
    os.waitpid(child, 0)


def test_the_list_of_names_does_not_grow_without_end(tmp_path: Path, checkpoint: str) -> None:
    with_first = Presence.hold(checkpoint)
    for number in range(500):
        Presence.hold(checkpoint, actor=f"planner-{number}").close()
    assert (tmp_path / "onceonly/alive").stat().st_size < 5000
    assert "(driver)" in str(present(checkpoint))
    with_first.close()
    Presence.hold(checkpoint, actor="again").close()
    assert (tmp_path / "onceonly/alive").read_text(encoding="utf-8").count("\n") == 1


def test_a_process_that_comes_again_and_again_is_written_down_once(tmp_path: Path, checkpoint: str) -> None:
    first = Presence.hold(checkpoint, actor="driver")
    for _ in range(5):
        Presence.hold(checkpoint, actor="planner").close()
    lines = (tmp_path / "onceonly" / "alive").read_text(encoding="utf-8").splitlines()
    first.close()
    assert len(lines) == len(set(lines)) == 2


def test_where_there_are_no_locks_a_run_goes_on_and_a_tool_cannot_tell(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    presence = Presence.hold(checkpoint)
    assert not presence.held
    presence.close()
    with pytest.raises(UnavailableError, match="cannot be told"):
        present(checkpoint)


def test_on_nfs_where_an_exclusive_lock_wants_a_descriptor_that_can_write_a_run_is_seen(
    checkpoint: str, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def as_nfs(descriptor: int, operation: int) -> None:
        """Do as Linux' NFS client, which makes locks of the file's bytes of them: flock(2)."""
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if operation & fcntl.LOCK_EX and mode == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    assert f"process {holder.pid} (driver)" in str(present(checkpoint))


@pytest.mark.parametrize("refused", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_who_may_only_read_sees_a_run_too(
    checkpoint: str, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    real = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(refused, os.strerror(refused))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    assert f"process {holder.pid} (driver)" in str(present(checkpoint))


def test_a_checkpoint_without_a_log_gets_none(tmp_path: Path) -> None:
    assert not Presence.hold(str(tmp_path)).held
    assert list(tmp_path.iterdir()) == []
