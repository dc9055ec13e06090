"""A put on a file system: exactly one wins, a failure is classified, a kill at any step leaves all or nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.log import LocalStore, open_log
from onceonly.model import Link, LinkKind, Receipt
from onceonly.stores import port as store_module
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "links/00000000000000000000.0.json"
FOLDERS = ("links/", "receipts/", "history/")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    made = LocalStore(tmp_path / "onceonly")
    made.prepare(FOLDERS)
    return made


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*.tmp")]


class Fault:
    """Replaces a function of ``os`` and fails at chosen calls, before or after the work is done."""

    def __init__(self, name: str, number: int, *, calls: set[int], after: bool = False) -> None:
        self._real: Callable[..., Any] = getattr(os, name)
        self._number, self._calls, self._after = number, calls, after
        self.count = 0

    def __call__(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401
        self.count += 1
        fails = self.count in self._calls
        if fails and not self._after:
            raise OSError(self._number, os.strerror(self._number))
        result = self._real(*args, **more)
        if fails:
            raise OSError(self._number, os.strerror(self._number))
        return result


def test_a_name_is_given_once_and_never_overwritten(store: LocalStore) -> None:
    assert store.get(NAME) is None
    assert store.put_if_absent(NAME, b"one")
    assert not store.put_if_absent(NAME, b"two")
    assert store.get(NAME) == b"one"
    assert store.list_names("links/") == [NAME]
    store.delete(NAME)
    store.delete(NAME)
    assert store.get(NAME) is None
    assert not temporaries(store.root)


def test_the_data_is_synced_before_its_name_appears_and_the_folder_before_the_put_returns(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def sync(descriptor: int) -> None:
        steps.append("folder" if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir() else "file")
        fsync(descriptor)

    def name(source: Path, target: Path) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", name)
    assert store.put_if_absent(NAME, b"one", before_publish=lambda: steps.append("hook"))
    assert steps == ["file", "hook", "link", "folder"]


def test_folders_that_are_made_are_on_the_disk_before_anything_is_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(LocalStore, "probe", lambda _self: None)
    LocalStore(tmp_path / "checkpoint" / "onceonly").prepare(["links/"])
    above = [tmp_path / "checkpoint", tmp_path, tmp_path.parent]
    assert synced == [tmp_path, tmp_path / "checkpoint", tmp_path / "checkpoint" / "onceonly", *above]
    synced.clear()
    LocalStore(tmp_path / "checkpoint" / "onceonly").prepare(["links/"])
    assert synced == above, "who made them may have been killed before they were durable"


def test_of_many_threads_exactly_one_wins(store: LocalStore) -> None:
    wins: list[tuple[str, bytes]] = []
    gate = threading.Barrier(8)

    def putter(me: bytes) -> None:
        gate.wait()
        for number in range(40):
            name = f"links/{number:020d}.0.json"
            if store.put_if_absent(name, me):
                wins.append((name, me))

    threads = [threading.Thread(target=putter, args=(bytes([65 + n]) * 1000,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 40
    assert all(store.get(name) == data for name, data in wins)
    assert not temporaries(store.root)


RACER = """
import sys
from onceonly.log import open_log
from onceonly.model import Link, LinkKind
log = open_log(sys.argv[1], query="q", create=True)
for index in range(60):
    mine = Link(epoch=0, index=index, kind=LinkKind.ABORT, plan=sys.argv[2], run=sys.argv[2])
    if log.put_link(mine) == mine:
        print(index)
"""


def test_of_several_processes_exactly_one_gets_each_link(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), f"run-{n}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(4)
    ]
    answers = [racer.communicate(timeout=60) for racer in racers]
    assert [(racer.returncode, error) for racer, (_, error) in zip(racers, answers, strict=True)] == [
        (0, b"")
    ] * 4
    won: dict[int, str] = {}
    for number, (out, _) in enumerate(answers):
        for line in out.split():
            assert int(line) not in won
            won[int(line)] = f"run-{number}"
    chain = open_log(str(tmp_path), query="q", create=False).chain(0)
    assert [link.run for link in chain] == [won[index] for index in range(60)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_lack_of_space_that_shows_at_the_sync_of_a_new_file_is_a_definite_failure(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Fault("fsync", number, calls={1}))
        with pytest.raises(UnavailableError) as caught:
            put_once(store, NAME, b"one")
    assert errno.errorcode[number] in caught.value.what
    assert str(store.root / "links") in caught.value.what
    assert not temporaries(store.root)
    assert put_once(store, NAME, b"one") == b"one"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_fails_before_the_name_is_a_definite_failure(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Path, *_: object) -> object:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(UnavailableError) as caught:
            put_once(store, NAME, b"one")
    assert errno.errorcode[number] in caught.value.what
    assert str(store.root / "links") in caught.value.what
    assert not temporaries(store.root)
    assert put_once(store, NAME, b"one") == b"one"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_link_that_is_refused_is_a_definite_failure(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", Fault("link", number, calls={1}))
    with pytest.raises(UnavailableError, match=errno.errorcode[number]):
        put_once(store, NAME, b"one")
    assert store.get(NAME) is None


def test_a_lost_answer_is_read_back_and_found_ours(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", Fault("link", errno.EIO, calls={1}, after=True))
    assert put_once(store, NAME, b"one") == b"one"


def test_a_repeated_request_of_a_shared_mount_is_found_ours(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # NFS may send a link request twice; the second answer is EEXIST though the first did it.
    monkeypatch.setattr(os, "link", Fault("link", errno.EEXIST, calls={1}, after=True))
    assert put_once(store, NAME, b"one") == b"one"


def test_a_lost_answer_is_read_back_and_found_anothers(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent(NAME, b"theirs")
    monkeypatch.setattr(os, "link", Fault("link", errno.ESTALE, calls={1}))
    assert put_once(store, NAME, b"ours") == b"theirs"


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass only where the put waits; give how long."""
    waited: list[float] = []
    monkeypatch.setattr(
        store_module, "time", SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append)
    )
    return waited


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
@pytest.mark.parametrize("made", [False, True], ids=["not made", "made"])
def test_a_put_is_repeated_until_an_answer_is_definite(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, waits: list[float], number: int, *, made: bool
) -> None:
    fault = Fault("link", number, calls={1, 2, 3}, after=made)
    monkeypatch.setattr(os, "link", fault)
    assert put_once(store, NAME, b"one") == b"one"
    assert store.get(NAME) == b"one"
    # Where the first one was made, the second finds its name taken, and its own bytes there.
    assert fault.count == (2 if made else 4)
    assert 0 < sum(waits) < 1
    assert not temporaries(store.root)


def test_a_repeated_put_that_another_was_quicker_than_is_not_ours(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "link", real)
        LocalStore(store.root).put_if_absent(NAME, b"theirs")
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    monkeypatch.setattr(os, "link", link)
    assert put_once(store, NAME, b"ours") == b"theirs"
    assert waits


def test_a_put_that_is_never_answered_is_unavailable_after_a_bound_and_a_restart_may_heal_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", Fault("link", errno.ESTALE, calls=set(range(1, 1000))))
        with pytest.raises(UnavailableError, match="no answer told whether it stands") as caught:
            put_once(store, NAME, b"one")
    assert caught.value.restartable
    assert str(store.root / NAME) in caught.value.what
    assert "ESTALE" in caught.value.what or os.strerror(errno.ESTALE) in caught.value.what
    assert store_module.AGAIN_S - 2 <= sum(waits) <= store_module.AGAIN_S
    assert put_once(store, NAME, b"two") == b"two"


def test_what_cannot_be_read_back_is_asked_for_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    store.put_if_absent(NAME, b"theirs")
    real: Any = Path.open
    left = [0, 1, 2]

    def unreadable(path: Path, *mode: str) -> object:
        if left and mode == ("rb",):
            left.pop()
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *mode)

    monkeypatch.setattr(Path, "open", unreadable)
    assert put_once(store, NAME, b"ours") == b"theirs"
    assert len(waits) == 3


@pytest.mark.parametrize("which", ["link", "receipt"])
def test_one_unclear_answer_of_a_shared_mount_stops_neither_a_decision_nor_a_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float], which: str
) -> None:
    log = open_log(str(tmp_path), query="q", create=True)
    link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")
    if which == "receipt":
        log.put_link(link)
    monkeypatch.setattr(os, "link", Fault("link", errno.ESTALE, calls={1}))
    if which == "link":
        assert log.put_link(link) == link
    else:
        log.put_receipt(Receipt(epoch=0, index=0, plan="p", outcomes={}))
        assert log.receipt(0) is not None
    assert waits


# Its n-th fsync from the put on fails with an error; each one is told of in a file, as it ends without a word.
SYNCING = """
import errno, os, pathlib, sys
from onceonly.log import LocalStore
from onceonly.stores.port import put_once
root, nth, number, name, told = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
store = LocalStore(pathlib.Path(root))
real, count = os.fsync, 0
def failing(descriptor):
    global count
    count += 1
    with open(told, "a") as file:
        file.write("fsync\\n")
    if count == nth:
        raise OSError(number, os.strerror(number))
    real(descriptor)
os.fsync = failing
print("begun")
put_once(store, name, b"one")
print("believed")
"""


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESTALE])
@pytest.mark.parametrize("nth", [1, 2], ids=["file", "folder"])
def test_a_sync_that_fails_ends_the_process_and_is_not_asked_again(
    store: LocalStore, tmp_path: Path, nth: int, number: int
) -> None:
    told = tmp_path / "told"
    victim = subprocess.run(
        [sys.executable, "-c", SYNCING, str(store.root), str(nth), str(number), NAME, str(told)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert victim.returncode == disk.EXIT == 74
    assert victim.stdout == "begun\n", "what was said before is not lost, and nothing comes after"
    assert told.read_text().splitlines() == ["fsync"] * nth
    sentence = victim.stderr.splitlines()[0]
    assert str(store.root / "links") in sentence
    assert errno.errorcode[number] in sentence
    assert "Next: see to this disk" in sentence
    # The next process writes it anew, whatever it finds.
    assert put_once(store, NAME, b"one") == b"one"


def test_a_full_disk_at_the_sync_of_a_folder_ends_the_process_too(store: LocalStore, tmp_path: Path) -> None:
    victim = subprocess.run(
        [
            sys.executable,
            "-c",
            SYNCING,
            str(store.root),
            "2",
            str(errno.ENOSPC),
            NAME,
            str(tmp_path / "told"),
        ],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert victim.returncode == disk.EXIT


@pytest.mark.parametrize("replaces", [False, True])
def test_a_start_that_clears_away_beside_a_file_that_is_written_anew_fails_nothing(
    store: LocalStore,
    monkeypatch: pytest.MonkeyPatch,
    replaces: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    put_once(store, NAME, b"put")
    write_new = disk.write_new

    def cleared_once(path: Path, data: bytes) -> None:
        write_new(path, data)
        monkeypatch.setattr(disk, "write_new", write_new)
        store.drop_leftovers(lambda _name: False)

    monkeypatch.setattr(disk, "write_new", cleared_once)
    if replaces:
        store.replace(NAME, b"put")
    else:
        store.sync(NAME)
    assert disk.write_new is write_new
    assert store.get(NAME) == b"put"
    assert temporaries(store.root) == []


def test_what_another_process_put_is_written_anew_and_not_only_synced(store: LocalStore) -> None:
    assert store.put_if_absent(NAME, b"one")
    path = store.root / NAME
    before = path.stat().st_ino
    with path.open("rb"):  # so that its number is not given to the next one
        store.sync(NAME)
        assert path.stat().st_ino != before, (
            "the data of a failed fsync are clean in memory, and not on the disk"
        )
    assert store.get(NAME) == b"one"
    assert not temporaries(store.root)


def test_a_paused_driver_whose_temporary_file_was_cleared_away_finds_the_name_taken(
    store: LocalStore,
) -> None:
    newer = LocalStore(store.root)

    def meanwhile() -> None:
        assert newer.put_if_absent(NAME, b"newer")
        newer.drop_leftovers(lambda _name: False)
        assert not temporaries(store.root)

    assert put_once(store, NAME, b"older", before_publish=meanwhile) == b"newer"


def test_a_paused_driver_whose_folded_name_was_cleared_away_has_put_nothing(store: LocalStore) -> None:
    with pytest.raises(UnavailableError, match="ENOENT"):
        put_once(store, NAME, b"older", before_publish=lambda: store.drop_leftovers(lambda _name: True))


def test_a_living_temporary_file_is_left_alone_while_its_name_is_free(store: LocalStore) -> None:
    assert (
        put_once(store, NAME, b"one", before_publish=lambda: store.drop_leftovers(lambda _name: False))
        == b"one"
    )


def test_files_of_others_are_left_alone(store: LocalStore) -> None:
    others = [
        store.root / "links" / ".nfs0001",
        store.root / "links" / ".x.tmp",
        store.root / "links" / "notes",
    ]
    for path in others:
        path.write_bytes(b"")
    store.drop_leftovers(lambda _name: True)
    assert all(path.exists() for path in others)


def test_a_file_system_without_hard_links_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", Fault("link", errno.EPERM, calls={1}))
    with pytest.raises(ConfigurationError, match="no hard links") as caught:
        open_log(str(tmp_path), query="q", create=True)
    assert str(tmp_path) in caught.value.what


def test_a_file_system_that_links_over_a_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda source, target: target.write_bytes(source.read_bytes()))
    with pytest.raises(ConfigurationError, match="links over an existing name"):
        open_log(str(tmp_path), query="q", create=True)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "onceonly").write_bytes(b"a file where the folder belongs")
    with pytest.raises(UnavailableError, match=str(tmp_path)):
        open_log(str(tmp_path), query="q", create=True)


# Dies with SIGKILL before or after the n-th call of a function of os, counted from the put on.
VICTIM = """
import os, signal, sys
from onceonly.log import open_log
from onceonly.model import Link, LinkKind
checkpoint, function, nth, when = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
log = open_log(checkpoint, query="q", create=True)
real, count = getattr(os, function), 0
def dying(*args, **more):
    global count
    count += 1
    if count == nth and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args, **more)
    if count == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(os, function, dying)
log.put_link(Link(epoch=0, index=0, kind=LinkKind.ABORT, plan="p", run="r"))
print("not reached")
"""
STEPS = [
    ("fsync", 1, "before", False),
    ("fsync", 1, "after", False),
    ("link", 1, "before", False),
    ("link", 1, "after", True),
    ("unlink", 1, "before", True),
    ("unlink", 1, "after", True),
    ("fsync", 2, "before", True),
    ("fsync", 2, "after", True),
]


@pytest.mark.parametrize(("function", "nth", "when", "stands"), STEPS)
def test_a_kill_at_any_step_leaves_all_or_nothing(
    tmp_path: Path, function: str, nth: int, when: str, *, stands: bool
) -> None:
    victim = subprocess.run(
        [sys.executable, "-c", VICTIM, str(tmp_path), function, str(nth), when],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert victim.returncode == -signal.SIGKILL
    link = Link(epoch=0, index=0, kind=LinkKind.ABORT, plan="p", run="r")
    log = open_log(str(tmp_path), query="q", create=True)
    assert log.chain(0) == ((link,) if stands else ())
    assert log.put_link(link) == link
    open_log(str(tmp_path), query="q", create=True)
    assert not temporaries(tmp_path)


def test_the_crash_point_lies_between_the_synced_file_and_its_name(tmp_path: Path) -> None:
    victim = subprocess.run(
        [sys.executable, "-c", VICTIM, str(tmp_path), "fsync", "99", "before"],
        capture_output=True,
        check=False,
        timeout=60,
        env=os.environ | {"ONCEONLY_FAILPOINTS": "link.during_put=kill"},
    )
    assert victim.returncode == -signal.SIGKILL
    assert len(temporaries(tmp_path)) == 1
    assert open_log(str(tmp_path), query="q", create=True).newest() is None
