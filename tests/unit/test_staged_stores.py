"""Rows that are staged on a distant store: the conformance suite, and what such a store can do to them."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit import hdfs_double, s3_double
from tests.unit.hdfs_double import HdfsDouble
from tests.unit.hostile_store import Answer, HostileStore
from tests.unit.s3_double import BUCKET, S3Double
from tests.unit.staged_double import StagedDouble, StagedSuite, StoredDouble

from onceonly.errors import ConfigurationError, LogError, OnceonlyError, UnavailableError, WriteFailedError
from onceonly.families.staged import sink as family
from onceonly.families.staged import stored
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost
from onceonly.ports import QueryContext, WriteContext
from onceonly.settings.registry import build, place_of, settings_of
from onceonly.stores import opened
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onceonly.ports import Sink

CONTEXT = QueryContext(query="q", sink="staged", guarantee=Guarantee.EXACTLY_ONCE)


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_told", Hadoop())
    monkeypatch.setattr(opened, "_clients", {})


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Double]:
    yield from s3_double.serve(S3Double())


@pytest.fixture(scope="module")
def hdfs() -> Iterator[HdfsDouble]:
    yield from hdfs_double.serve(HdfsDouble())


class TestOnS3(StagedSuite):
    sink = StoredDouble
    every_pass = False
    double: S3Double

    @pytest.fixture(autouse=True)
    def served(self, s3: S3Double) -> None:
        s3.page = 1000
        self.double = s3

    def options(self, folder: Path) -> dict[str, str]:
        hadoop = {
            "fs.s3a.endpoint": self.double.url,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "ak",
            "fs.s3a.secret.key": "secret-of-a-test",
        }
        staging = f"s3a://{BUCKET}/{uuid.uuid4().hex}"
        return {**super().options(folder), "staging": staging, "hadoop": json.dumps(hadoop)}

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        prefix = options["staging"].removeprefix(f"s3a://{BUCKET}/")
        return [key for key in list(self.double.objects) if key.startswith(prefix)]


@pytest.mark.long
class TestOnHdfs(StagedSuite):
    sink = StoredDouble
    every_pass = False
    double: HdfsDouble

    @pytest.fixture(autouse=True)
    def served(self, hdfs: HdfsDouble) -> None:
        self.double = hdfs

    def options(self, folder: Path) -> dict[str, str]:
        hadoop = {"dfs.namenode.http-address": self.double.host}
        staging = f"hdfs://127.0.0.1/{uuid.uuid4().hex}"
        return {**super().options(folder), "staging": staging, "hadoop": json.dumps(hadoop)}

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        prefix = options["staging"].removeprefix("hdfs://127.0.0.1")
        return [path for path in list(self.double.files) if path.startswith(prefix)]


class Bench:
    """A sink of the family whose rows are staged in a store of ours."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, store: HostileStore) -> None:
        self.suite, self.store = StagedSuite(), store
        self.options = {**self.suite.options(folder), "staging": "s3a://bucket/staging"}
        patch.setattr(family, "open_store", lambda address, **_: self.opened(address.path))

    def opened(self, path: str) -> HostileStore:
        assert path == "staging/q/staged"
        return self.store

    def sink(self) -> StagedDouble:
        made = build(settings_of(self.options, "staged", StagedDouble).sink, StagedDouble)
        assert isinstance(made, StagedDouble)
        return made

    def context(self, slot: int = 0) -> WriteContext:
        return WriteContext(
            query="q", sink="staged", run="r", epoch=7, plan="p", slot=slot, attempt="0",
            guarantee=Guarantee.EXACTLY_ONCE,
        )  # fmt: skip

    def begun(self, sink: Sink, slot: int = 0) -> stored.StoredAttempt:
        attempt: stored.StoredAttempt = sink.begin_transaction(self.context(slot))
        return attempt

    def prepared(self, *numbers: int, slot: int = 0) -> Handle:
        sink = self.sink()
        attempt = self.begun(sink, slot)
        for number in numbers:
            sink.write(attempt, self.suite.batch([number]))
        handle = sink.pre_commit(attempt)
        assert handle is not None
        return handle

    def visible(self) -> list[str]:
        return [value for _, value in self.suite.visible(self.options)]

    def sweep(self) -> None:
        for leftover in self.sink().recover(CONTEXT):
            self.sink().abort(leftover.handle)


@pytest.fixture
def store() -> HostileStore:
    return HostileStore()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: HostileStore) -> Bench:
    return Bench(tmp_path, monkeypatch, store)


def test_a_checkpoint_on_a_store_is_the_place_of_staged_rows() -> None:
    assert place_of("s3a://bucket/chk/") == "s3a://bucket/chk/onceonly/staged"
    assert place_of("/chk") == "/chk/onceonly/staged"
    opened.tell(Hadoop({"fs.defaultFS": "hdfs://cluster"}))
    assert place_of("/chk") == "hdfs://cluster/chk/onceonly/staged"
    # A path is one of this machine, whatever Hadoop's default is: it was read already.
    assert place_of("file:/chk") == "/chk/onceonly/staged"


def test_a_slot_is_put_in_parts_so_that_its_memory_is_bounded(
    bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 1)
    handle = bench.prepared(1, 2, 3)
    assert handle.data["parts"] == 3
    assert len(store.files) == 4
    assert bench.visible() == []
    assert bench.sink().commit(handle) == Committed()
    assert bench.visible() == ["row 1", "row 2", "row 3"]
    assert store.files == {}


def test_neither_slot_nor_driver_holds_more_than_a_few_parts(
    bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 1 << 20)
    sink, before, held = bench.sink(), pa.total_allocated_bytes(), []
    attempt = bench.begun(sink)
    for _ in range(40):
        raw = pa.array([os.urandom(1 << 10) for _ in range(500)])
        sink.write(attempt, pa.RecordBatch.from_arrays([raw], names=["raw"]))
        held.append(pa.total_allocated_bytes() - before)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    rows = 0
    for batch in sink.staged([handle])[handle.transaction].batches():
        rows += batch.num_rows
        held.append(pa.total_allocated_bytes() - before)
    assert rows == 40 * 500
    assert sum(map(len, store.files.values())) > 19 << 20
    assert max(held) < 6 << 20


def test_parts_of_ordinary_size_hold_many_batches_compressed(bench: Bench, store: HostileStore) -> None:
    sink = bench.sink()
    attempt = bench.begun(sink)
    batch = bench.suite.batch([1] * 100_000)
    for _ in range(3):
        sink.write(attempt, batch)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert handle.data["parts"] == 1
    assert sum(map(len, store.files.values())) < 3 * batch.nbytes / 2


def test_puts_without_an_answer_give_one_copy(
    bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    store.answers.extend([Answer.LOST, Answer.NEVER, Answer.LATE, Answer.REFUSED] * 2)
    handle = bench.prepared(1)
    assert not store.answers
    assert bench.sink().commit(handle) == Committed()
    assert bench.visible() == ["row 1"]


def test_a_list_that_lags_behind_loses_nothing(bench: Bench, store: HostileStore) -> None:
    handles = [bench.prepared(slot, slot=slot) for slot in range(3)]
    store.unlisted = 4
    assert set(bench.sink().commit_many(handles)) == {Committed()}
    assert sorted(bench.visible()) == ["row 0", "row 1", "row 2"]


@pytest.mark.parametrize("gone", ["", ".0", ".1"])
def test_of_a_slot_that_lacks_any_part_nothing_is_applied(
    bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 1)
    handle = bench.prepared(1, 2)
    kept = store.files.pop(handle.transaction + gone)
    assert isinstance(bench.sink().commit(handle), Lost)
    store.files[handle.transaction + gone] = kept
    with pytest.raises(UnavailableError):  # the books have it as void
        bench.sink().commit(handle)
    assert bench.visible() == []


def test_an_attempt_that_was_swept_gives_no_vote_and_leaves_nothing(
    bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 1)
    sink = bench.sink()
    attempt = bench.begun(sink)
    sink.write(attempt, bench.suite.batch([1]))
    bench.sweep()
    assert store.files == {}
    sink.write(attempt, bench.suite.batch([2]))
    with pytest.raises(WriteFailedError, match="swept"):
        sink.pre_commit(attempt)
    sink.discard(attempt)
    assert store.files == {}


def test_a_sweep_that_is_broken_off_has_fenced_already(
    bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 1)
    sink = bench.sink()
    attempt = bench.begun(sink)
    sink.write(attempt, bench.suite.batch([1]))

    def breaks(operation: str, name: str) -> None:
        if operation == "delete" and name == f"{attempt.name}.0":
            raise UnavailableError("gone", next_step="wait")

    store.hook = breaks
    with pytest.raises(UnavailableError):
        bench.sweep()
    store.hook = None
    with pytest.raises(WriteFailedError, match="swept"):
        sink.pre_commit(attempt)
    [leftover] = bench.sink().recover(CONTEXT)
    assert leftover.epoch == 7
    bench.sweep()
    assert store.files == {}


@pytest.mark.parametrize("landing", ["", ".0"])
def test_a_put_that_lands_after_its_commit_is_tidied_up_and_doubles_nothing(
    bench: Bench, store: HostileStore, landing: str
) -> None:
    handle = bench.prepared(1)
    late = dict(store.files)
    assert bench.sink().commit(handle) == Committed()
    name = handle.transaction + landing
    store.files[name] = late[name]
    [leftover] = bench.sink().recover(CONTEXT)
    assert not leftover.is_open
    assert bench.sink().commit(handle) == AlreadyCommitted()
    bench.sweep()
    assert bench.visible() == ["row 1"]
    assert store.files == {}


def test_a_part_that_goes_while_it_is_applied_is_told_and_asked_again(
    bench: Bench, store: HostileStore
) -> None:
    handle = bench.prepared(1)

    def goes(operation: str, name: str) -> None:
        if operation == "get":
            store.files.pop(name)

    store.hook = goes
    with pytest.raises(UnavailableError, match="not there any more"):
        bench.sink().commit(handle)
    store.hook = None
    assert isinstance(bench.sink().commit(handle), Lost)


@pytest.mark.parametrize("kept", [0.5, 1], ids=["a part is cut", "a part has fewer rows"])
def test_a_part_that_somebody_changed_is_named_and_is_written_again_once_it_is_removed(
    bench: Bench, store: HostileStore, kept: float
) -> None:
    whole, fewer = bench.prepared(1, 2), bench.prepared(1, slot=1)
    name, other = f"{whole.transaction}.0", f"{fewer.transaction}.0"
    data = store.files[other if kept == 1 else name]
    store.files[name] = data[: int(len(data) * kept)]
    with pytest.raises(LogError, match="is damaged") as raised:
        bench.sink().commit(whole)
    assert "remove it" in raised.value.next_step
    assert bench.visible() == []
    store.files.pop(name)
    assert isinstance(bench.sink().commit(whole), Lost)


def in_a_folder(bench: Bench, folder: Path) -> StagedDouble:
    sink = build(
        settings_of({**bench.options, "staging": str(folder)}, "staged", StagedDouble).sink, StagedDouble
    )
    assert isinstance(sink, StagedDouble)
    return sink


@pytest.fixture
def moved(tmp_path: Path, bench: Bench, store: HostileStore, monkeypatch: pytest.MonkeyPatch) -> Handle:
    """Return a handle that was prepared on a store, whose objects were copied into a folder."""
    monkeypatch.setattr(stored, "PART_BYTES", 1)
    handle = bench.prepared(1, 2)
    folder = tmp_path / "moved" / "q" / "staged"
    folder.mkdir(parents=True)
    for name, data in store.files.items():
        (folder / name).write_bytes(data)
    return handle


def test_what_was_staged_on_a_store_is_applied_from_a_folder(
    bench: Bench, moved: Handle, tmp_path: Path
) -> None:
    assert in_a_folder(bench, tmp_path / "moved").commit(moved) == Committed()
    assert bench.visible() == ["row 1", "row 2"]
    assert [path for path in (tmp_path / "moved").rglob("*") if path.is_file()] == []


def test_of_what_was_moved_without_a_part_nothing_is_applied(
    bench: Bench, moved: Handle, tmp_path: Path
) -> None:
    (tmp_path / "moved" / "q" / "staged" / f"{moved.transaction}.1").unlink()
    assert isinstance(in_a_folder(bench, tmp_path / "moved").commit(moved), Lost)
    assert bench.visible() == []


def test_a_sweep_of_what_was_moved_removes_all_of_it(bench: Bench, moved: Handle, tmp_path: Path) -> None:
    sink = in_a_folder(bench, tmp_path / "moved")
    [leftover] = sink.recover(CONTEXT)
    assert (leftover.transaction, leftover.epoch) == (moved.transaction, 7)
    sink.abort(leftover.handle)
    assert [path for path in (tmp_path / "moved").rglob("*") if path.is_file()] == []


def test_what_was_staged_in_a_folder_is_applied_from_a_store(
    bench: Bench, store: HostileStore, tmp_path: Path
) -> None:
    sink = in_a_folder(bench, tmp_path / "before")
    attempt = sink.begin_transaction(bench.context(3))
    sink.write(attempt, bench.suite.batch([1, 2]))
    handle = sink.pre_commit(attempt)
    [file] = [path for path in (tmp_path / "before").rglob("*") if path.is_file()]
    store.files[file.name] = file.read_bytes()
    assert bench.sink().commit(handle) == Committed()
    assert bench.visible() == ["row 1", "row 2"]
    assert store.files == {}


def test_what_an_attempt_cannot_discard_the_next_sweep_takes(bench: Bench, store: HostileStore) -> None:
    sink = bench.sink()
    attempt = bench.begun(sink)

    def down(operation: str, name: str) -> None:
        raise UnavailableError(f"{operation} {name}", next_step="wait")

    store.hook = down
    sink.discard(attempt)
    with pytest.raises(OnceonlyError):
        list(sink.recover(CONTEXT))
    store.hook = None
    bench.sweep()
    assert store.files == {}


def test_others_names_in_the_folder_are_left_alone(bench: Bench, store: HostileStore) -> None:
    store.files["README"] = store.files["7.0.x.arrow"] = b""
    assert list(bench.sink().recover(CONTEXT)) == []


def test_a_store_that_is_not_fit_for_staging_is_refused_before_the_first_record(
    s3: S3Double, tmp_path: Path
) -> None:
    suite = TestOnS3()
    suite.double = s3
    sink = StoredDouble(suite.options(tmp_path))
    assert sink.check(CONTEXT) == {}
    s3.lies = True
    try:
        with pytest.raises(ConfigurationError, match="puts a file over another"):
            sink.check(CONTEXT)
    finally:
        s3.reset()


def test_on_hdfs_only_the_jobs_user_reads_what_waits(hdfs: HdfsDouble) -> None:
    opened.tell(Hadoop({"dfs.namenode.http-address": hdfs.host}))
    address = opened.address_of("hdfs://127.0.0.1/private")
    opened.open_store(address, private=True).put_if_absent("a", b"rows")
    opened.open_store(address).put_if_absent("b", b"log")
    assert hdfs.permissions["/private/a"] == "600"
    assert hdfs.permissions["/private/b"] == ""
