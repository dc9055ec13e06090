"""The file sink on HDFS, over a double of its name node: killed at each request, raced by consumers, misled."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow.parquet as pq
import pytest
from tests.unit import hdfs_double
from tests.unit.files_bench import Files, PowerLostError, rows
from tests.unit.hdfs_double import Fault, HdfsDouble, serve
from tests.unit.test_files_crashes import dies

from onceonly import files
from onceonly.errors import ConfigurationError, WriteFailedError
from onceonly.sinks.files.hdfs import HdfsFiles
from onceonly.sinks.files.paths import RemotePath, target_path
from onceonly.stores import opened, webhdfs
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from onceonly.stores.name_nodes import Server

T = TypeVar("T")
TARGET = "hdfs://nn/data/out"


class DyingWeb(webhdfs.WebHdfs):
    """A process that ends at its n-th call of HDFS: before it, or when it is carried out and not answered."""

    calls = 0
    dies_at = 0
    answered = False

    def _tried(self, call: Callable[[Server], T], what: str, *, once: bool = False) -> T:
        self.calls += 1
        if self.calls == self.dies_at and not self.answered:
            raise PowerLostError
        nth = self.calls
        try:
            return super()._tried(call, what, once=once)
        finally:
            if nth == self.dies_at:
                raise PowerLostError


@dataclass
class OnHdfs(Files):
    """A target on the double."""

    double: HdfsDouble = field(default_factory=HdfsDouble)

    def visible(self) -> list[Path]:
        top = "/" + "/".join(self.target.parts[2:]) + "/"
        found = (name.removeprefix(top) for name in sorted(self.double.files) if name.startswith(top))
        return [self.target / name for name in found if not any(part[0] in "._" for part in name.split("/"))]

    def content(self, path: Path) -> bytes:
        return self.double.files["/" + "/".join(path.parts[2:])]

    def ids(self) -> list[int]:
        tables = [pq.ParquetFile(io.BytesIO(self.content(path))).read() for path in self.visible()]
        return sorted(value for table in tables for value in table["id"].to_pylist())

    def staged(self) -> list[Path]:
        return [RemotePath(f"hdfs://nn{name}") for name in self.double.files if name.endswith(".staged")]

    def dying(self, nth: int, *, answered: bool) -> DyingWeb:
        web = DyingWeb.of(self.target.address, opened.told())  # type: ignore[attr-defined]
        assert isinstance(web, DyingWeb)
        web.dies_at, web.answered = nth, answered
        self.store = HdfsFiles(web)
        return web


@pytest.fixture(scope="module")
def server() -> Iterator[HdfsDouble]:
    yield from serve(HdfsDouble())


@pytest.fixture
def double(server: HdfsDouble, monkeypatch: pytest.MonkeyPatch) -> HdfsDouble:
    server.reset()
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 0.5)
    monkeypatch.setattr(webhdfs, "_DELAY_S", 0.01)
    monkeypatch.setattr(opened, "_told", Hadoop({"dfs.namenode.http-address": server.host}))
    return server


@pytest.fixture
def bench(double: HdfsDouble) -> OnHdfs:
    return on(double, TARGET)


def on(double: HdfsDouble, address: str) -> OnHdfs:
    target = target_path(address)
    return OnHdfs(target, store=stored(target), double=double)


def stored(target: Path) -> HdfsFiles:
    assert isinstance(target, RemotePath)
    return HdfsFiles.of(target)


class Taker:
    """A consumer that reads and takes away what it sees."""

    def __init__(self, bench: OnHdfs) -> None:
        self.seen: Counter[int] = Counter()
        self._bench = bench

    def look(self) -> None:
        self.seen.update(self._bench.ids())
        for path in self._bench.visible():
            del self._bench.double.files["/" + "/".join(path.parts[2:])]


whens = pytest.mark.parametrize("answered", [False, True], ids=["before", "carried out"])


@pytest.mark.parametrize(
    ("answered", "takes", "step"),
    [
        pytest.param(False, False, 1, id="before, left", marks=pytest.mark.long),
        pytest.param(False, True, 1, id="before, taken", marks=pytest.mark.long),
        pytest.param(True, False, 1, id="carried out, left", marks=pytest.mark.long),
        pytest.param(True, True, 1, id="carried out, taken", marks=pytest.mark.long),
        pytest.param(False, True, 5, id="some, before, taken"),
        pytest.param(True, False, 5, id="some, carried out, left"),
    ],
)
def test_commit_and_manifest_are_finished_after_a_crash_at_any_request(
    double: HdfsDouble, *, answered: bool, takes: bool, step: int
) -> None:
    for nth in count(1, step):
        double.reset()
        bench = on(double, TARGET)
        taker = Taker(bench)
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
        assert bench.ids() == []
        bench.dying(nth, answered=answered)
        died = dies(partial(bench.finish, 0, *handles))
        bench.store = stored(bench.target)
        if takes:
            taker.look()
        outcomes = bench.finish(0, *handles)
        assert set(outcomes) <= {"Committed", "AlreadyCommitted"}
        if takes:
            taker.look()
            assert taker.seen == Counter([1, 2, 3, 4]), f"after request {nth}"
        else:
            assert bench.ids() == [1, 2, 3, 4]
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]
        assert bench.sink().recover(bench.context) == []
        assert bench.staged() == []
        if not died:
            assert outcomes == ["AlreadyCommitted"] * 2
            assert nth > 25, "the requests are counted"
            return


@whens
def test_abort_is_finished_after_a_crash_at_any_request(double: HdfsDouble, *, answered: bool) -> None:
    for nth in count(1):
        double.reset()
        bench = on(double, TARGET)
        handle, decided = bench.prepared(rows(1, 2)), bench.prepared(rows(3), slot=1)
        bench.dying(nth, answered=answered)
        died = dies(partial(bench.sink().abort, handle))
        bench.store = stored(bench.target)
        bench.sink().abort(handle)
        assert bench.finish(0, decided) == ["Committed"]
        assert (bench.ids(), bench.staged()) == ([3], [])
        if not died:
            return


def test_a_swept_attempt_finds_no_place_for_another_file(bench: OnHdfs) -> None:
    sink, attempt = bench.begin()
    assert bench.sweep() == [attempt.transaction]
    with pytest.raises(OSError, match="FileNotFoundException"):
        bench.store.create(attempt.folder / ".00000.staged").close()
    with pytest.raises(WriteFailedError, match="given up by the driver"):
        attempt.write(batch_of(1))
    sink.discard(attempt)
    assert bench.staged() == []


@pytest.mark.parametrize("done", [True, False])
def test_a_rename_without_an_answer_is_asked_about_later_and_never_doubled(
    bench: OnHdfs, double: HdfsDouble, *, done: bool
) -> None:
    handle = bench.prepared(rows(1))
    for _ in range(3):  # of the folder, then of the file
        double.fault("RENAME", Fault(cut=True, done=done))
        assert bench.finish(0, handle)[0] in {"RetryLater", "Committed", "AlreadyCommitted"}
    double.faults.clear()
    assert set(bench.finish(0, handle)) <= {"Committed", "AlreadyCommitted"}
    assert bench.ids() == [1]


@pytest.mark.parametrize("old", [False, True], ids=["WebHDFS", "HttpFS"])
def test_a_file_of_somebody_else_keeps_its_name(bench: OnHdfs, double: HdfsDouble, *, old: bool) -> None:
    double.old_rename = old
    handle = bench.prepared(rows(1))
    (final,) = bench.finals(handle)
    name = "/" + "/".join(final.parts[2:])
    double.files[name] = b"theirs"
    assert bench.finish(0, handle) == ["Unknown"]
    assert double.files[name] == b"theirs"


def test_a_right_that_is_missing_is_one_sentence_before_the_first_record(
    bench: OnHdfs, double: HdfsDouble
) -> None:
    double.fault("MKDIRS", Fault("AccessControlException"))
    with pytest.raises(ConfigurationError, match="HDFS does not permit it") as caught:
        bench.sink().check(bench.context)
    assert "right to write" in caught.value.next_step


def test_a_data_node_that_breaks_off_ends_the_attempt_and_shows_nothing(
    bench: OnHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, attempt = bench.begin()

    def broken(_sending: webhdfs.Sending, _data: bytes) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    attempt.write(batch_of(1))
    monkeypatch.setattr(webhdfs.Sending, "send", broken)
    with pytest.raises(WriteFailedError, match="nothing of this try is visible"):
        sink.pre_commit(attempt)
    sink.discard(attempt)
    assert bench.visible() == []


def test_a_target_is_the_same_by_each_way_to_write_it_and_overlaps_what_lies_in_it(
    double: HdfsDouble,
) -> None:
    one, other = on(double, "hdfs://nn/data/out"), on(double, "hdfs://NN:8020/data//out/")
    one.sink().check(one.context)
    identity = one.sink().identity()
    assert identity == other.sink().identity()
    assert identity["path"] == "hdfs://nn/data/out"
    assert on(double, "hdfs://nn/data").sink().overlaps(identity)
    assert not on(double, "hdfs://nn/dat").sink().overlaps(identity)
    assert not on(double, "hdfs://other/data/out").sink().overlaps(identity)


def test_memory_does_not_hold_a_file_that_is_sent(bench: OnHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    send = webhdfs.Sending.send

    def counted(sending: webhdfs.Sending, data: bytes) -> None:
        pieces.append(len(data))
        send(sending, data)

    monkeypatch.setattr(webhdfs.Sending, "send", counted)
    bench.store.make_folder(bench.target)
    with bench.store.create(bench.target / "file") as file:
        for _ in range(5):
            file.write(b"x" * 700_000)
    assert sum(pieces) == 3_500_000
    assert max(pieces) <= 1 << 20
    assert bench.store.size(bench.target / "file") == 3_500_000


def batch_of(*ids: int) -> Any:  # noqa: ANN401
    import pyarrow as pa

    return pa.record_batch(rows(*ids))


def test_how_old_a_file_is_the_name_node_tells_by_its_own_clock(
    bench: OnHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HdfsFiles.of(RemotePath(TARGET))
    assert store.idle(RemotePath(TARGET) / "x") is None
    bench.double.files["/data/out/x"] = b"x"  # of 22:13:20, as the double says of all
    monkeypatch.setattr(hdfs_double._Handler, "date_time_string", lambda _: "Tue, 14 Nov 2023 22:13:27 GMT")
    assert store.idle(RemotePath(TARGET) / "x") == 7.0
    for name in ("x", "gone"):
        store.renew(RemotePath(TARGET) / name)


def test_a_folder_that_this_user_may_not_list_hides_nothing_on_hdfs(
    bench: OnHdfs, double: HdfsDouble
) -> None:
    handle = bench.prepared(rows(1), epoch=3)
    bench.query = "another"
    bench.prepared(rows(2))
    double.unlisted.add("/data/out/_onceonly/staging/another")
    unseen, found = bench.sink().hanging()
    assert (unseen.query, unseen.is_open, found.transaction) == ("another", None, handle.transaction)


def test_the_name_node_is_asked_for_the_jobs_rights_by_the_jobs_user_alone(
    bench: OnHdfs, double: HdfsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "job")
    bench.store = stored(bench.target)
    bench.prepared(rows(1))
    double.owner = "job"
    ask = partial(bench.sink().require_rights, bench.context)
    assert ask() == ""
    double.closed.add(f"/data/out/_onceonly/epochs/{bench.query}/files")
    with pytest.raises(ConfigurationError, match="HDFS does not permit it"):
        ask()
    assert "CREATE" not in double.operations[double.operations.index("CHECKACCESS") :]
    double.owner = "another"
    assert ask() == "to HDFS this command's user is job, and the job's another: ask as that one"


def test_a_name_node_that_does_not_tell_of_rights_is_no_alarm(
    bench: OnHdfs, double: HdfsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "job")
    bench.store = stored(bench.target)
    bench.prepared(rows(1))
    double.owner = "job"
    double.fault("CHECKACCESS", Fault("UnsupportedOperationException", status=400))
    assert "does not tell what may be done" in bench.sink().require_rights(bench.context)
