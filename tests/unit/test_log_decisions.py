"""What the decision log promises the protocol, and what it refuses at open."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.errors import (
    CheckpointMovedError,
    ConfigurationError,
    LogError,
    ProtocolError,
    SupersededError,
    UnavailableError,
)
from onceonly.log import FileDecisionLog, identity_token, open_log
from onceonly.log.files import VERSION
from onceonly.model import Handle, Link, LinkKind, Receipt, Stamp, Vote
from onceonly.stores import port as store_module
from onceonly.stores.opened import address_of, folder_of
from onceonly.stores.port import PutUnknownError
from onceonly_proof.memory_log import MemoryLog
from onceonly_proof.stores.memory import MemoryStore


def link(epoch: int, index: int = 0, kind: LinkKind = LinkKind.COMMIT, run: str = "run") -> Link:
    vote = Vote(
        sink="kafka", epoch=epoch, slot=0, plan=run, run=run, attempt="1", rows=10, checksum="0" * 16,
        handle=Handle(transaction=f"{run}.{epoch}", data={"producer_id": 1}),
    )  # fmt: skip
    votes = (vote,) if kind is LinkKind.COMMIT else ()
    return Link(epoch=epoch, index=index, kind=kind, plan=run, run=run, votes=votes, barrier=("{}",))


def receipt(epoch: int, index: int = 0) -> Receipt:
    return Receipt(epoch=epoch, index=index, plan="run", outcomes={"Committed": 1}, seconds=0.01)


def fill(log: FileDecisionLog | MemoryLog, epochs: range, *, fold: bool = False) -> None:
    for epoch in epochs:
        log.put_link(link(epoch))
        log.put_receipt(receipt(epoch))
        if fold:
            log.fold()


def opened(checkpoint: Path, *, create: bool = True, keep: int = 100) -> FileDecisionLog:
    return open_log(str(checkpoint), query="q", create=create, keep=keep)


# --- chains and receipts ----------------------------------------------------------------------------------


def test_links_of_an_epoch_are_a_chain_that_survives(tmp_path: Path) -> None:
    log = opened(tmp_path)
    chain = (link(5, 0, LinkKind.ABORT), link(5, 1), link(5, 2))
    assert (log.chain(5), log.newest(), log.receipt(5)) == ((), None, None)
    for item in chain:
        assert log.put_link(item) == item
    log.put_receipt(receipt(5, 2))
    for again in (log, opened(tmp_path), opened(tmp_path, create=False)):
        assert again.query == "q"
        assert again.chain(5) == chain
        assert again.receipt(5) == receipt(5, 2)
        assert again.newest() == 5
        assert again.epochs() == range(5, 6)
        again.sync(chain[0])


def test_the_standing_link_is_given_and_never_replaced(tmp_path: Path) -> None:
    old, new = opened(tmp_path), opened(tmp_path)
    assert new.put_link(link(0, run="new")) == link(0, run="new")
    assert old.put_link(link(0, run="old")) == link(0, run="new")
    assert new.put_link(link(0, run="new")) == link(0, run="new")
    assert old.chain(0) == (link(0, run="new"),)


def test_a_link_that_is_put_again_at_another_time_is_the_same_one_and_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    synced: list[str] = []
    monkeypatch.setattr(store, "sync", synced.append)
    log = FileDecisionLog(store, query="q", keep=100)
    first = replace(link(0), stamp=Stamp(at="2026-11-26T20:00:00.000Z", host="a", pid=1))
    later = replace(link(0), stamp=Stamp(at="2026-11-26T20:00:05.000Z", host="b", pid=2))
    log.put_link(first)
    standing = log.put_link(later)
    assert (standing, standing.stamp) == (later, first.stamp)
    assert synced == ["links/00000000000000000000.0.json"]


def test_the_first_receipt_stays(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.put_link(link(0))
    log.put_receipt(receipt(0))
    log.put_receipt(Receipt(epoch=0, index=0, plan="other"))
    assert log.receipt(0) == receipt(0)


def test_a_link_out_of_turn_is_a_defect(tmp_path: Path) -> None:
    for log in (opened(tmp_path), MemoryLog()):
        with pytest.raises(ProtocolError, match=r"0\.1"):
            log.put_link(link(0, 1))
    log = opened(tmp_path)
    fill(log, range(7, 9))
    for epoch in (10, 6):
        with pytest.raises(ProtocolError):
            log.put_link(link(epoch))
    assert log.epochs() == range(7, 9)


def test_what_another_process_put_is_seen(tmp_path: Path) -> None:
    planner, committer = opened(tmp_path), opened(tmp_path, create=False)
    for epoch in range(3):
        assert planner.newest() == (epoch - 1 if epoch else None)
        planner.put_link(link(epoch, 0, LinkKind.ABORT))
        assert committer.put_link(link(epoch, 1)) == link(epoch, 1)
        committer.put_receipt(receipt(epoch, 1))
        assert planner.chain(epoch)[-1] == link(epoch, 1)
        assert planner.receipt(epoch) == receipt(epoch, 1)


def test_a_process_that_slept_finds_the_newest_epoch_though_what_it_knew_is_folded() -> None:
    files: dict[str, bytes] = {}
    sleeper, worker = (FileDecisionLog(MemoryStore(files), query="q", keep=5) for _ in range(2))
    fill(worker, range(2))
    assert sleeper.newest() == 1
    fill(worker, range(2, 90), fold=True)
    assert sleeper.newest() == 89
    assert sleeper.chain(3) == ()


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_driver_that_slept_while_its_epoch_was_folded_is_superseded(kind: str) -> None:
    files: dict[str, bytes] = {}
    old: FileDecisionLog | MemoryLog
    new: FileDecisionLog | MemoryLog
    if kind == "file":
        old, new = (FileDecisionLog(MemoryStore(files), query="q", keep=5) for _ in range(2))
    else:
        new = MemoryLog(keep=5)
        old = MemoryLog(new.disk, keep=5)
    fill(old, range(3))
    fill(new, range(3, 60), fold=True)
    before = dict(files)
    for item in (link(3, run="old"), link(2, 1, run="old")):
        with pytest.raises(SupersededError):
            old.put_link(item)
    assert files == before


def test_an_epoch_folded_while_the_put_was_on_its_way_is_superseded() -> None:
    files: dict[str, bytes] = {}
    new = FileDecisionLog(MemoryStore(files), query="q", keep=5)

    def late(operation: str, _name: str) -> None:
        if operation == "put" and new.newest() == 2:
            fill(new, range(3, 60), fold=True)

    fill(new, range(3))
    old = FileDecisionLog(MemoryStore(files, hook=late), query="q", keep=5)
    with pytest.raises(SupersededError):
        old.put_link(link(3, run="old"))
    assert not [name for name in files if name.startswith("links/00000000000000000003")]


def test_what_is_folded_is_not_read_though_its_files_are_still_there() -> None:
    files: dict[str, bytes] = {}

    def stays(operation: str, name: str) -> None:
        if operation == "delete":
            raise UnavailableError(f"{name} is busy", next_step="wait")

    with pytest.raises(UnavailableError, match="is busy"):
        fill(FileDecisionLog(MemoryStore(files, hook=stays), query="q", keep=5), range(90), fold=True)
    log = FileDecisionLog(MemoryStore(files), query="q", keep=5)
    log.check()
    assert {"links/00000000000000000000.0.json", "receipts/00000000000000000000.json"} <= files.keys()
    assert (log.chain(0), log.receipt(0)) == ((), None)


def test_another_runs_receipt_is_made_durable_before_it_is_relied_upon() -> None:
    steps: list[tuple[str, str]] = []
    store = MemoryStore(hook=lambda operation, name: steps.append((operation, name)))
    log = FileDecisionLog(store, query="q", keep=5)
    fill(log, range(1))
    log.put_receipt(Receipt(epoch=0, index=0, plan="other"))
    assert steps[-1] == ("sync", "receipts/00000000000000000000.json")


def test_a_name_that_was_taken_and_cannot_be_read_is_settled_by_a_restart() -> None:
    class Stale(MemoryStore):
        def put_if_absent(self, name: str, data: bytes, *, before_publish: object = None) -> bool:
            return False

    with pytest.raises(UnavailableError, match="not to be found"):
        FileDecisionLog(Stale(), query="q", keep=5).put_link(link(0))


def test_a_put_that_gets_no_answer_and_leaves_nothing_is_settled_by_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "AGAIN_S", 0.1)

    class Silent(MemoryStore):
        def put_if_absent(self, name: str, data: bytes, *, before_publish: object = None) -> bool:
            message = "no answer"
            raise PutUnknownError(message)

    with pytest.raises(UnavailableError, match="no answer"):
        FileDecisionLog(Silent(), query="q", keep=5).put_link(link(0))


# --- what is refused at open ------------------------------------------------------------------------------


def path_of(checkpoint: Path, name: str) -> Path:
    return checkpoint / "onceonly" / name


@pytest.mark.parametrize(
    "missing",
    [
        "links/00000000000000000002.0.json",
        "links/00000000000000000002.1.json",
        "links/00000000000000000004.0.json",
        "receipts/00000000000000000003.json",
        "identity.json",
    ],
)
def test_what_was_removed_is_named(tmp_path: Path, missing: str) -> None:
    log = opened(tmp_path)
    for epoch in range(5):
        fill(log, range(epoch, epoch))
        for index in range(3):
            log.put_link(link(epoch, index, LinkKind.COMMIT if index == 2 else LinkKind.ABORT))
        log.put_receipt(receipt(epoch, 2))
    path_of(tmp_path, missing).unlink()
    for create in (True, False):
        with pytest.raises(LogError) as caught:
            opened(tmp_path, create=create)
        assert str(path_of(tmp_path, missing)) in caught.value.what


def test_a_whole_epoch_that_was_removed_is_named(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(5))
    path_of(tmp_path, "links/00000000000000000002.0.json").unlink()
    path_of(tmp_path, "receipts/00000000000000000002.json").unlink()
    with pytest.raises(LogError, match=r"00000000000000000002\.0\.json is missing"):
        opened(tmp_path)


def test_the_newest_epoch_may_lack_its_receipt_or_end_with_aborts(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, range(2))
    log.put_link(link(2, 0, LinkKind.ABORT))
    assert opened(tmp_path).newest() == 2
    log.put_link(link(2, 1))
    assert opened(tmp_path).newest() == 2


def test_a_receipt_without_its_epoch_is_refused(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(2))
    path_of(tmp_path, "links/00000000000000000001.0.json").unlink()
    with pytest.raises(LogError, match="though its receipt is there"):
        opened(tmp_path)


@pytest.mark.parametrize("name", ["links/00000000000000000001.0.json", "receipts/00000000000000000001.json"])
def test_a_damaged_or_renamed_file_is_named(tmp_path: Path, name: str) -> None:
    fill(opened(tmp_path), range(4))
    path = path_of(tmp_path, name)
    original = path.read_bytes()
    other = path_of(tmp_path, name.replace("01.", "02.")).read_bytes()
    for damaged, words in [
        (original[:-9], "torn"),
        (b"", "torn"),
        (original.replace(b'"version":%d' % VERSION, b'"version":%d' % (VERSION + 1)), "newer"),
        (other, "renamed or copied"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(LogError, match=words) as caught:
            opened(tmp_path)
        assert str(path) in caught.value.what
    path.write_bytes(original)
    opened(tmp_path)


def test_files_that_are_not_ours_do_not_matter(tmp_path: Path) -> None:
    fill(opened(tmp_path), range(2))
    for name in ("links/notes.txt", "links/1.0.json", "history/old", "readme"):
        path_of(tmp_path, name).write_text("x", encoding="utf-8")
    assert opened(tmp_path).newest() == 1


# --- whose log, and where ---------------------------------------------------------------------------------


def test_another_query_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    with pytest.raises(LogError, match="belongs to the query q") as caught:
        open_log(str(tmp_path), query="other", create=True)
    assert "give each query a checkpoint of its own" in caught.value.next_step
    # Or the folders of a backup were put back, and Spark's file that lies beside them was not.
    told = re.search(r"write (\{.*\}) into (\S+),", caught.value.next_step)
    assert told is not None
    Path(told[2]).write_text(told[1], encoding="utf-8")
    assert open_log(str(tmp_path), query=SparkCheckpoint.at(str(tmp_path)).query(), create=True).query == "q"


def test_a_copied_or_moved_checkpoint_is_refused_with_both_addresses(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    opened(here)
    shutil.copytree(here, there)
    with pytest.raises(CheckpointMovedError) as caught:
        opened(there)
    assert f"file://{here}" in caught.value.what
    assert f"file://{there}" in caught.value.what


def test_the_same_checkpoint_by_a_symbolic_link_or_another_spelling_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    fill(opened(tmp_path / "real"), range(1))
    for spelling in (f"file:{tmp_path}/real/", f"file://{tmp_path}/alias", f"{tmp_path}/alias/../real"):
        assert open_log(spelling, query="q", create=True).newest() == 0


def test_the_token_is_the_logs_own(tmp_path: Path) -> None:
    assert identity_token(str(tmp_path / "a")) is None
    opened(tmp_path / "a")
    opened(tmp_path / "b")
    token = identity_token(f"file://{tmp_path}/a")
    assert token == identity_token(str(tmp_path / "a"))
    assert token != identity_token(str(tmp_path / "b"))
    path_of(tmp_path / "b", "identity.json").write_bytes(b"{}")
    with pytest.raises(LogError, match=r"identity\.json"):
        identity_token(str(tmp_path / "b"))


def test_the_commit_process_does_not_make_a_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no decision log"):
        opened(tmp_path, create=False)
    assert not (tmp_path / "onceonly").exists()


def test_a_log_that_keeps_too_little_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        opened(tmp_path, keep=1)


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [
        ("/data/c", "/data/c"),
        ("file:/data/c", "/data/c"),
        ("file:///data/c/", "/data/c"),
        ("file://localhost/data/c", "/data/c"),
        ("FILE:/data/c", "/data/c"),
        ("/data/with space:colon", "/data/with space:colon"),
        # As Hadoop's Path has it, by which Spark makes the folder.
        ("file:/data/a%20b", "/data/a%20b"),
        ("file:/data/a#b?c", "/data/a#b?c"),
    ],
)
def test_a_checkpoint_is_found_where_spark_puts_it(checkpoint: str, path: str) -> None:
    assert folder_of(address_of(checkpoint)) == Path(path)


def test_a_relative_checkpoint_is_under_the_working_folder() -> None:
    assert folder_of(address_of("c/d")) == Path.cwd() / "c/d"


@pytest.mark.parametrize("checkpoint", ["dbfs:/c", "file://elsewhere/c", "file:c", ""])
def test_a_checkpoint_elsewhere_is_refused_with_one_sentence(checkpoint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        address_of(checkpoint)
    assert checkpoint in caught.value.what
