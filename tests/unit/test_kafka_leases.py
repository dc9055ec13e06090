"""Transactional ids belong to a machine, and to one process at a time; they are used again in a later epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from onceonly import durable
from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka import leases
from onceonly.sinks.kafka.leases import Leases

if TYPE_CHECKING:
    from pathlib import Path

PROCESS = """
import sys, time
from pathlib import Path
from onceonly.sinks.kafka.leases import Leases
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
    monkeypatch.setattr(durable, "BOOT", boot)
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


def test_what_somebody_else_has_made_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 12345, 12345)
    Leases("p.", tmp_path)
    assert "somebody else's" in caplog.text


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
