"""What of Spark's checkpoint is durable before a decision, and what keeps an epoch from being decided."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from onceonly.checkpoint import syncing
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.checkpoint.syncing import CheckpointSync
from onceonly.durable import disk
from onceonly.model import Guarantee, Mode, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = (
    "metadata", ".metadata.crc", "offsets/0", "offsets/1", "offsets/.1.crc", "commits/0", "sources/0/0", "sources/0/1",
    "state/0/0/1.delta", "state/0/1/1.zip", "state/0/1/2.changelog", "state/0/_metadata/metadata",
)  # fmt: skip


class Synced:
    """Notes what is made durable, by its name below the checkpoint."""

    def __init__(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoint = checkpoint
        self.names: list[str] = []
        self.renewed: list[str] = []
        monkeypatch.setattr(disk, "sync", lambda path: self.names.append(os.path.relpath(path, checkpoint)))
        monkeypatch.setattr(
            disk, "renew", lambda path: self.renewed.append(os.path.relpath(path, checkpoint))
        )

    def again(self) -> set[str]:
        found, self.names = set(self.names), []
        return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    for name in FILES:
        write(made / name)
    write(made / "onceonly/links/0.json")
    write(made / "offsets/.2.77.tmp")
    return made


@pytest.fixture
def synced(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(checkpoint, monkeypatch)


def write(path: Path, text: str = "v1") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plan(name: str = "app.1", epoch: int = 1) -> Plan:
    return Plan(id=name, epoch=epoch, mode=Mode.RUN, index=1, guarantee=Guarantee.EXACTLY_ONCE)


def test_all_files_of_sparks_and_their_folders_are_synced_the_first_time(
    checkpoint: Path, synced: Synced
) -> None:
    assert CheckpointSync(checkpoint).sync() == ""
    found = synced.again()
    assert found >= set(FILES)
    assert found >= {
        ".",
        "offsets",
        "commits",
        "sources",
        "sources/0",
        "state",
        "state/0",
        "state/0/0",
        "state/0/1",
    }
    assert ".." in found, "the checkpoint's own name may be new"
    assert not {name for name in found if "onceonly" in name or name.endswith(".tmp")}


def test_what_another_process_wrote_is_written_anew_where_a_start_reads_it_first(
    checkpoint: Path, synced: Synced
) -> None:
    sync = CheckpointSync(checkpoint)
    sync.sync()
    assert set(synced.renewed) == {"metadata", "offsets/0", "offsets/1", "commits/0", "sources/0/1"}
    write(checkpoint / "offsets/2")
    sync.sync()
    assert len(synced.renewed) == 5, "once a process"


def test_only_what_is_new_is_synced_after_that_with_its_folder(checkpoint: Path, synced: Synced) -> None:
    sync = CheckpointSync(checkpoint)
    sync.sync()
    synced.again()
    for name in ("offsets/2", "commits/1", "sources/0/2", "state/0/0/2.delta", "state/1/0/1.delta"):
        write(checkpoint / name)
    sync.sync()
    assert synced.again() == {
        "offsets/2", "offsets", "commits/1", "commits", "sources/0/2", "sources/0", "state/0/0/2.delta", "state/0/0",
        "state/1/0/1.delta", "state/1/0", "state/1", "state",
    }  # fmt: skip
    sync.sync()
    assert synced.again() == set()


def test_a_file_that_was_replaced_is_synced_again(checkpoint: Path, synced: Synced) -> None:
    sync = CheckpointSync(checkpoint)
    sync.sync()
    synced.again()
    write(checkpoint / "offsets/new")
    (checkpoint / "offsets/new").replace(checkpoint / "offsets/1")
    sync.sync()
    assert synced.again() == {"offsets/1", "offsets"}


def test_a_file_that_is_still_being_written_is_synced_again_though_its_folder_does_not_change(
    checkpoint: Path, synced: Synced
) -> None:
    copied = checkpoint / "state/0/1/SSTs/000008.sst"
    write(copied, "half")
    long_ago = time.time_ns() - 60 * 10**9
    os.utime(copied.parent, ns=(long_ago, long_ago))
    sync = CheckpointSync(checkpoint)
    sync.sync()
    synced.again()
    with copied.open("a") as file:
        file.write("the rest")
    sync.sync()
    assert synced.again() >= {"state/0/1/SSTs/000008.sst"}
    os.utime(copied, ns=(long_ago, long_ago))
    sync.sync()
    synced.again()
    with copied.open("a") as file:
        file.write("nobody writes again after a while")
    sync.sync()
    assert "state/0/1/SSTs/000008.sst" not in synced.again(), "it was looked at no more"


def test_of_files_that_rest_only_those_that_were_replaced_are_looked_at(
    checkpoint: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = time.time_ns() - 60 * 10**9
    for name in FILES:
        os.utime(checkpoint / name, ns=(long_ago, long_ago))
    sync = CheckpointSync(checkpoint)
    sync.sync()
    for name in ("offsets/0", "offsets/1"):  # those that a start reads first were written anew
        os.utime(checkpoint / name, ns=(long_ago, long_ago))
    write(checkpoint / "offsets/2")
    sync.sync()
    synced.again()
    write(checkpoint / "offsets/new", "v1")
    os.utime(checkpoint / "offsets/new", ns=(long_ago, long_ago))
    (checkpoint / "offsets/new").replace(checkpoint / "offsets/1")
    write(checkpoint / "state/0/0/2.delta")
    looked_at = Looks(monkeypatch)
    sync.sync()
    assert synced.again() == {"offsets/1", "offsets", "state/0/0/2.delta", "state/0/0"}
    assert looked_at.names == {"1", "2", "2.delta"}, "what rests is known by its inode"


class Looks:
    """Notes the files of a listing that were looked at one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        scandir = os.scandir

        class Entry:
            def __init__(self, entry: os.DirEntry[str], names: set[str]) -> None:
                self._entry, self._names = entry, names

            def __getattr__(self, name: str) -> object:
                if name == "stat":
                    self._names.add(self._entry.name)
                return getattr(self._entry, name)

        @contextlib.contextmanager
        def listing(path: Path) -> Iterator[list[Entry]]:
            with scandir(path) as entries:
                yield [Entry(entry, self.names) for entry in entries]

        monkeypatch.setattr(os, "scandir", listing)


def test_a_source_that_has_the_name_of_our_folder_is_synced(checkpoint: Path, synced: Synced) -> None:
    write(checkpoint / "sources/onceonly/0")
    CheckpointSync(checkpoint).sync()
    assert synced.again() >= {"sources/onceonly/0", "sources/onceonly"}


def test_what_a_try_that_was_given_up_still_syncs_is_waited_for(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, begun, ends = threading.Event(), threading.Event(), []

    def slow(path: Path) -> None:
        if path.name == "1.zip":
            begun.set()
            assert going_on.wait(10)
            ends.append("synced")

    monkeypatch.setattr(disk, "sync", slow)
    sync = CheckpointSync(checkpoint)
    threads = [threading.Thread(target=lambda: ends.append(sync.sync())) for _ in range(2)]
    for thread in threads:
        thread.start()
        assert begun.wait(10)
    threads[1].join(0.05)
    assert ends == []
    going_on.set()
    for thread in threads:
        thread.join(10)
    assert ends[0] == "synced"


def test_notes_of_applications_of_former_days_are_taken_away(checkpoint: Path) -> None:
    folder = checkpoint / "onceonly"
    for name, age_s in (("synced.old", 2 * 86_400), ("synced.young", 3_600), ("identity.json", 2 * 86_400)):
        write(folder / name)
        os.utime(folder / name, (time.time() - age_s,) * 2)
    planner = CheckpointSync(checkpoint)
    planner.begin(plan())
    assert planner.wait(plan()) == ""
    assert {path.name for path in folder.iterdir()} == {
        "links",
        "synced.young",
        "synced.app",
        "identity.json",
    }


def test_files_that_spark_clears_away_meanwhile_are_no_failure(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(disk, "sync", gone)
    assert CheckpointSync(checkpoint).sync() == ""


def test_a_sync_that_could_not_be_tried_is_told_and_all_is_tried_again(
    checkpoint: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = CheckpointSync(checkpoint)
    with monkeypatch.context() as context:

        def refuse(path: Path) -> None:
            if path.name == "1.zip":
                raise PermissionError(13, "Permission denied", str(path))

        context.setattr(disk, "sync", refuse)
        assert sync.sync() == f"{checkpoint / 'state/0/1/1.zip'}: Permission denied"
    assert sync.sync() == ""
    assert synced.again() >= set(FILES)


def test_the_decision_waits_for_the_syncs_of_its_plan_in_whatever_process(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on, waited = threading.Event(), threading.Event()
    monkeypatch.setattr(CheckpointSync, "sync", lambda _self: going_on.wait(10) and "")
    planner, committer = CheckpointSync(checkpoint), CheckpointSync(checkpoint)
    planner.begin(plan())

    def wait() -> None:
        assert planner.wait(plan()) == committer.wait(plan()) == ""
        waited.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not waited.wait(0.05)
    going_on.set()
    assert waited.wait(10)
    thread.join()


def test_a_commit_process_that_was_stopped_for_long_reads_once_more_what_the_planner_says(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = CheckpointSync(checkpoint)
    planner.begin(plan())
    assert planner.wait(plan()) == ""
    monkeypatch.setattr(syncing, "WAIT_S", -1.0)
    assert CheckpointSync(checkpoint).wait(plan()) == ""


def test_why_the_planner_could_not_sync_is_told_in_the_commit_process(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointSync, "sync", lambda _self: "offsets/1: no descriptors")
    CheckpointSync(checkpoint).begin(plan())
    assert CheckpointSync(checkpoint).wait(plan()) == "offsets/1: no descriptors"


PLANNER = """
import sys
from pathlib import Path
from onceonly.checkpoint.syncing import CheckpointSync
from onceonly.durable import disk as durable
from tests.unit.test_runtime_syncing import plan
durable.os.fsync = lambda _descriptor: (_ for _ in ()).throw(OSError(5, "Input/output error"))
checkpoint = CheckpointSync(Path(sys.argv[1]))
checkpoint.begin(plan())
checkpoint.wait(plan())
"""


def test_a_planner_whose_sync_failed_keeps_the_commit_process_from_deciding(checkpoint: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PLANNER, str(checkpoint)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == disk.EXIT, ended.stderr
    assert "ended before its syncs did" in CheckpointSync(checkpoint).wait(plan())


@pytest.mark.parametrize(
    ("names", "waits"),
    [
        ({"PYTHON_WORKER_FACTORY_SECRET": "s"}, True),
        ({"PYTHON_WORKER_FACTORY_SOCK_DIR": "d"}, True),
        ({"PYTHON_WORKER_FACTORY_SECRET": "s", "SPARK_REUSE_WORKER": "1"}, False),
        ({}, False),
    ],
)
def test_a_planner_that_ends_with_its_plan_ends_its_syncs_first(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, str], *, waits: bool
) -> None:
    for name in [name for name in os.environ if name.startswith(("PYTHON_WORKER_FACTORY_", "SPARK_REUSE_"))]:
        monkeypatch.delenv(name)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    going_on, done = threading.Event(), threading.Event()

    def sync(_self: CheckpointSync) -> str:
        assert going_on.wait(10)
        done.set()
        return ""

    monkeypatch.setattr(CheckpointSync, "sync", sync)
    if waits:
        threading.Timer(0.05, going_on.set).start()
    planner = CheckpointSync(checkpoint)
    planner.begin(plan())
    assert done.is_set() is waits
    going_on.set()
    assert planner.wait(plan()) == ""


def test_without_a_word_of_the_planner_nothing_is_decided(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncing, "_MISSING_S", 0.01)
    assert "does not tell" in CheckpointSync(checkpoint).wait(plan())
    other = CheckpointSync(checkpoint)
    other.begin(plan("app.2"))
    assert "does not tell" in CheckpointSync(checkpoint).wait(plan()), "another plan's is no answer"
    assert other.wait(plan("app.2")) == ""


def test_the_state_that_the_tasks_left_is_synced_by_itself_with_the_folders_above_it(
    checkpoint: Path, synced: Synced
) -> None:
    inputs = SparkInputs(checkpoint)
    assert inputs.sync_state() == ""
    state = {name for name in FILES if name.startswith("state/")}
    assert state | {".", "state", "state/0", "state/0/0", "state/0/1", "state/0/_metadata"} <= synced.again()
    write(checkpoint / "state/0/0/2.delta")
    inputs.sync_state()
    assert {"state/0/0/2.delta", "state/0/0"} <= synced.again()
    assert SparkInputs(checkpoint / "elsewhere").sync_state() == "", "a query without state"
    assert synced.again() == set()
