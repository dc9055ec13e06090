"""Transactional ids belong to a machine, and to one process at a time; they are used again in a later epoch."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from onceonly.durable import machine
from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka.producers import leases
from onceonly.sinks.kafka.producers.leases import Leases

PROCESS = """
import sys, time
from pathlib import Path
from onceonly.sinks.kafka.producers.leases import Leases
has = Leases("p.", Path(sys.argv[1])).claim(int(sys.argv[2]))
print(has.transactional_id, flush=True)
time.sleep(600)
"""


def other(root: Path, epoch: int) -> tuple[subprocess.Popen[str], str]:
    """A process that takes an id for an epoch, and keeps it as long as it lives."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(root), str(epoch)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_what_a_living_process_has_no_other_takes_and_a_dead_ones_is_taken_over(tmp_path: Path) -> None:
    process, has = other(tmp_path, 0)
    try:
        process.send_signal(signal.SIGSTOP)  # it sleeps, and may wake up and go on
        second = Leases("p.", tmp_path).claim(5)
        assert second.transactional_id != has
    finally:
        end(process)
    same_epoch = Leases("p.", tmp_path).claim(0)
    assert same_epoch.transactional_id not in {has, second.transactional_id}, "it may be prepared on"
    same_epoch.give_back()
    assert Leases("p.", tmp_path).claim(1).transactional_id == has


def test_ids_are_as_many_as_an_epoch_needs_however_often_workers_end(tmp_path: Path) -> None:
    used = set()
    for epoch in range(20):
        workers = [Leases("p.", tmp_path) for _ in range(2)]  # each forgets what was before it
        held = [worker.claim(epoch) for worker in workers for _ in range(2)]
        assert len({each.transactional_id for each in held}) == 4
        used |= {each.transactional_id for each in held}
        for each in held:
            each.give_back()
    assert len(used) == 4


def test_a_spare_that_is_used_later_is_not_taken_in_that_epoch(tmp_path: Path) -> None:
    spare = Leases("p.", tmp_path).claim(3)
    spare.use(4)
    spare.give_back()
    spare.give_back()
    assert Leases("p.", tmp_path).claim(4).transactional_id != spare.transactional_id
    assert Leases("p.", tmp_path).claim(5).transactional_id == spare.transactional_id


@pytest.mark.parametrize("locks", [True, False])
def test_one_that_rests_is_not_taken_for_a_long_time(tmp_path: Path, *, locks: bool) -> None:
    if not locks:
        (tmp_path / "root").write_text("", encoding="ascii")
    made = Leases("p.", tmp_path / "root")
    first = made.claim(0)
    first.rest()
    first.give_back()
    assert made.claim(leases.REST_EPOCHS).transactional_id != first.transactional_id
    assert made.claim(leases.REST_EPOCHS + 1).transactional_id == first.transactional_id


def test_another_run_and_another_machine_have_other_ids(tmp_path: Path) -> None:
    names = {
        Leases(prefix, tmp_path / machine).claim(0).transactional_id
        for prefix in ("q.run1.", "q.run2.")
        for machine in ("a", "b")
    }
    assert len(names) == 4


def test_after_a_restart_of_the_machine_no_file_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Leases("p.", tmp_path).claim(0)
    boot = tmp_path / "boot"
    boot.write_text("another", encoding="ascii")
    monkeypatch.setattr(machine, "_BOOT", boot)
    assert Leases("p.", tmp_path).claim(1).transactional_id != before.transactional_id


def test_where_nothing_can_be_locked_they_are_this_processs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    mine, others = (Leases("p.", tmp_path / "file") for _ in range(2))
    first = mine.claim(0)
    assert first.transactional_id != others.claim(0).transactional_id
    assert mine.claim(0).transactional_id != first.transactional_id
    first.use(2)
    first.give_back()
    assert first.transactional_id not in {mine.claim(2).transactional_id for _ in range(3)}
    assert "not used again" in caplog.text


def test_where_nothing_can_be_locked_none_is_taken_that_this_process_has(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    made = Leases("p.", tmp_path / "file")
    spare, attempt = made.claim(0), made.claim(0)
    assert len({each.transactional_id for each in (spare, attempt, made.claim(1), made.claim(7))}) == 4
    attempt.give_back()
    attempt.give_back()
    assert made.claim(0).transactional_id != attempt.transactional_id, "it may be prepared on"
    again = made.claim(1)
    assert again.transactional_id == attempt.transactional_id
    attempt.use(9)  # it has another holder by now
    again.give_back()
    assert made.claim(2).transactional_id == attempt.transactional_id


@pytest.mark.parametrize("call", ["os.open", "os.pread", "os.pwrite", "fcntl.flock"])
def test_a_disk_that_takes_no_locks_is_gone_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    made = Leases("p.", tmp_path)
    before = made.claim(0)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "no")

    with monkeypatch.context() as patched:
        patched.setattr(f"onceonly.sinks.kafka.producers.leases.{call}", refuse)
        opened = len(list(Path("/proc/self/fd").iterdir()))
        held = [made.claim(epoch) for epoch in (1, 1, 2)]
        assert len(list(Path("/proc/self/fd").iterdir())) == opened, "no file is left open"
    assert len({each.transactional_id for each in (before, *held)}) == 4
    assert caplog.text.count("not used again") == 1


def test_what_somebody_else_has_made_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 12345, 12345)
    Leases("p.", tmp_path)
    assert "somebody else's" in caplog.text


@pytest.mark.parametrize("text", ["", "7", "no number, and more than it has bytes", "3".ljust(20) + "half"])
def test_of_a_file_that_tells_too_little_another_id_is_drawn(tmp_path: Path, text: str) -> None:
    first = Leases("p.", tmp_path).claim(0)
    first.give_back()
    (file,) = next(tmp_path.iterdir()).iterdir()
    file.write_text(text, encoding="ascii")
    again = Leases("p.", tmp_path).claim(9)
    assert again.transactional_id != first.transactional_id
    again.give_back()
    assert Leases("p.", tmp_path).claim(10).transactional_id == again.transactional_id


def test_too_many_are_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "IDS_MAX", 3)
    made = Leases("p.", tmp_path)
    for _ in range(3):
        made.claim(0)
    with pytest.raises(ConfigurationError, match="more than 3"):
        made.claim(0)


def test_what_runs_of_long_ago_have_left_is_removed(tmp_path: Path) -> None:
    Leases("old.", tmp_path)
    (old,) = tmp_path.iterdir()
    os.utime(old, (1, 1))
    Leases("new.", tmp_path)
    assert old not in list(tmp_path.iterdir())


def test_what_a_living_process_has_locked_is_not_removed_however_old(tmp_path: Path) -> None:
    process, has = other(tmp_path, 0)
    try:
        (held,) = tmp_path.iterdir()
        os.utime(held, (1, 1))
        Leases("new.", tmp_path)
        assert held.exists()
    finally:
        end(process)
    assert Leases("p.", tmp_path).claim(1).transactional_id == has


def test_a_folder_that_is_used_stays_young_without_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Leases("p.", tmp_path).claim(0)
    (folder,) = tmp_path.iterdir()
    os.utime(folder, (1, 1))
    lease.use(1)
    assert folder.stat().st_mtime == 1, "it is touched now and then only"
    monkeypatch.setattr(leases, "_TOUCH_S", 0.0)
    lease.use(2)
    assert time.time() - folder.stat().st_mtime < 3600


@pytest.mark.parametrize("removed", ["root", "folder", "files"])
def test_what_a_cleaner_removes_is_made_again_and_no_two_have_one_id(tmp_path: Path, removed: str) -> None:
    root = tmp_path / "root"
    mine, others = Leases("p.", root), Leases("p.", root)
    held = [mine.claim(0), others.claim(0)]
    (folder,) = root.iterdir()
    if removed == "files":
        for path in folder.iterdir():
            path.unlink()
    else:
        shutil.rmtree(root if removed == "root" else folder)
    held += [mine.claim(1), others.claim(1), Leases("p.", root).claim(1)]
    assert len({each.transactional_id for each in held}) == 5
    last = held[-1]
    held[0].use(2)
    last.give_back()
    assert mine.claim(2).transactional_id == last.transactional_id, "they are shared as before"


def test_what_cannot_be_made_again_is_gone_on_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "root"
    made = Leases("p.", root)
    first = made.claim(0)
    shutil.rmtree(root)
    root.write_text("", encoding="ascii")
    second = made.claim(1)
    assert first.transactional_id != second.transactional_id != made.claim(1).transactional_id
    first.use(2)
    assert "not used again" in caplog.text


def test_threads_of_a_worker_have_different_ones(tmp_path: Path) -> None:
    made, found = Leases("p.", tmp_path), list[str]()
    threads = [
        threading.Thread(target=lambda: found.append(made.claim(0).transactional_id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    for thread in threads:
        thread.join(deadline - time.monotonic())
    assert len(set(found)) == 8
