"""Data files of a table in an object store, over a double of S3: the fence, what is cut off, what misleads."""

from __future__ import annotations

import sys
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.files_bench import PowerLostError
from tests.unit.loaded_bench import Bench
from tests.unit.loaded_double import LoadedDouble, make_table
from tests.unit.s3_double import BUCKET, Fault, S3Double, serve
from tests.unit.test_files_s3 import Dying

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError, WriteFailedError
from onceonly.families.loaded import Load, objects
from onceonly.families.loaded.objects import ObjectHome
from onceonly.families.loaded.places import home_at
from onceonly.model import AlreadyCommitted, Committed, Lost
from onceonly.ports.standing import Held
from onceonly.rows.checksum import RowChecksum
from onceonly.stores import opened
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onceonly.ports import QueryContext

TABLE = f"s3a://{BUCKET}/lake/t"
APP = "onceonly/q/loaded"


class Stored(LoadedDouble):
    """The double of the family with its data files on a store; its log is where it was."""

    @property
    def home(self) -> ObjectHome:  # type: ignore[override]
        home = home_at(TABLE)
        assert isinstance(home, ObjectHome)
        return home

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        self.home.prepare()
        return super().check(context)


@pytest.fixture(scope="module")
def served() -> Iterator[S3Double]:
    yield from serve(S3Double())


@pytest.fixture
def double(served: S3Double) -> Iterator[S3Double]:
    served.reset()
    opened.tell(
        Hadoop(
            {
                "fs.s3a.endpoint": served.url,
                "fs.s3a.path.style.access": "true",
                "fs.s3a.access.key": "key",
                "fs.s3a.secret.key": "SECRET",
                "fs.s3a.endpoint.region": "eu",
            }
        )
    )
    yield served
    opened.tell(Hadoop())


@pytest.fixture
def bench(double: S3Double, tmp_path: Path) -> Bench:
    return Bench(Stored, "loaded", make_table(tmp_path / "table"), {"key": "string", "value": "string"})


def rows(*numbers: int) -> list[dict[str, str]]:
    return [{"key": "k", "value": f"row {number}"} for number in numbers]


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows(*numbers))


def kept(double: S3Double) -> list[str]:
    """What is there, but for its place."""
    return sorted(key.removeprefix("lake/t/onceonly/q/loaded/") for key in double.objects)


def test_an_attempt_notes_itself_before_its_first_file_and_is_noted_until_it_is_committed(
    bench: Bench, double: S3Double
) -> None:
    handle = bench.prepared(rows(1), epoch=7, slot=3)
    name, load = handle.transaction, Load.of(handle)
    assert kept(double) == [f"0000000007/{name}/00000.parquet", f"_open/{name}"]
    assert double.objects[f"lake/t/{APP}/_open/{name}"] == b"open"
    puts = [key for method, key in double.requests if method == "PUT" and name in key]
    assert puts == [f"lake/t/{APP}/_open/{name}", f"lake/t/{load.folder}/00000.parquet"]
    sink = bench.sink()
    assert sink.commit(handle) == Committed()
    sink.complete(bench.query, 7, [handle])
    assert kept(double) == [f"0000000007/{name}/00000.parquet"]
    assert sink.commit(handle) == AlreadyCommitted()


def test_of_a_store_each_right_is_asked_for_by_what_changes_nothing(bench: Bench, double: S3Double) -> None:
    bench.prepared(rows(1))
    before = dict(double.objects)
    assert bench.sink().require_rights(bench.query) == ""
    for call in ("LIST", "HEAD", "PART", "DELETE"):
        double.denied = {call}
        with pytest.raises(ConfigurationError, match="does not permit it"):
            bench.sink().require_rights(bench.query)
    assert double.objects == before


def test_without_boto3_it_is_said_that_a_store_was_not_asked(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.prepared(rows(1))
    monkeypatch.setattr(opened, "_uploads", {})
    monkeypatch.setitem(sys.modules, "boto3", None)
    double.requests.clear()  # a start tries a name of its own
    assert "without the package boto3, S3 is not asked" in bench.sink().require_rights(bench.query)
    assert not [method for method, _ in double.requests if method in {"PART", "DELETE"}]


def test_what_this_machines_credentials_may_not_do_is_no_alarm_of_the_job(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.prepared(rows(1))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-a-person")
    known = {"endpoint": double.url, "path.style.access": "true", "endpoint.region": "eu"}
    opened.tell(Hadoop({f"fs.s3a.{name}": text for name, text in known.items()}))
    assert bench.sink().require_rights(bench.query) == ""
    double.denied = {"PART"}
    assert "nothing tells whether the job has the same" in bench.sink().require_rights(bench.query)


def test_an_attempt_that_was_swept_gives_no_vote_and_leaves_nothing(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "LOOK_S", 0.0)
    for when in ("before a row", "before the vote"):
        sink, attempt = bench.begin()
        sink.write(attempt, batch(1))
        [leftover] = sink.recover(bench.query)
        sink.abort(leftover.handle)
        assert kept(double) == []
        with pytest.raises(WriteFailedError, match="swept"):
            sink.write(attempt, batch(2)) if when == "before a row" else sink.pre_commit(attempt)
        sink.discard(attempt)
        assert kept(double) == []


def test_a_sweep_that_is_cut_off_at_any_request_is_ended_by_the_next(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    for nth in count(1):
        handle = bench.prepared(rows(1))
        dying = Dying(nth, answered=nth % 2 == 0)
        with monkeypatch.context() as patch:
            patch.setattr(Stored, "home", _around(dying))
            try:
                bench.sink().abort(handle)
                is_through = True
            except PowerLostError:
                is_through = False
        fenced = double.objects.get(f"lake/t/{APP}/_open/{handle.transaction}") != b"open"
        if fenced:
            assert isinstance(bench.sink().commit(handle), Lost)
        for leftover in bench.sink().recover(bench.query):
            bench.sink().abort(leftover.handle)
        assert kept(double) == []
        if is_through:
            break
    assert nth > 4


def _around(dying: Dying) -> ObjectHome:
    home = home_at(TABLE)
    assert isinstance(home, ObjectHome)
    return ObjectHome(home.address, dying.around(home.store))


def test_a_put_that_lands_after_a_sweep_makes_nothing_whole(bench: Bench, double: S3Double) -> None:
    handle = bench.prepared(rows(1))
    landing = {key: data for key, data in double.objects.items() if key.endswith(".parquet")}
    bench.sink().abort(handle)
    double.objects.update(landing)
    assert isinstance(bench.sink().commit(handle), Lost)


def test_files_that_are_gone_or_of_another_length_are_lost(bench: Bench, double: S3Double) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(3)]
    first, second = (
        next(key for key in double.objects if handle.transaction in key and key.endswith(".parquet"))
        for handle in handles[:2]
    )
    del double.objects[first]
    double.objects[second] = double.objects[second][:-1]
    found = bench.sink().commit_many(handles)
    assert [type(outcome) for outcome in found] == [Lost, Lost, Committed]
    assert [key for key in kept(double) if handles[2].transaction not in key] == []


def test_a_list_that_lags_behind_is_not_believed(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onceonly.stores.objects import ObjectStore

    monkeypatch.setattr(ObjectStore, "sizes", lambda *_: {})
    handle = bench.prepared(rows(1))
    bench.sink().rehearse([handle], {})
    assert bench.sink().commit(handle) == Committed()
    assert len(kept(double)) == 1


def test_a_store_that_puts_over_a_name_is_refused_before_the_first_record(
    bench: Bench, double: S3Double
) -> None:
    double.lies = True
    with pytest.raises(ConfigurationError, match="puts a file over another that has the name already"):
        bench.check()
    assert kept(double) == []


@pytest.mark.parametrize(
    ("method", "verb", "right"),
    [
        ("PUT", "put", "s3:PutObject"), ("GET", "read", "s3:GetObject"), ("LIST", "listed", "s3:ListBucket"),
        ("DELETE", "removed", "s3:DeleteObject"),
    ],
)  # fmt: skip
def test_a_right_that_is_missing_is_named(
    bench: Bench, double: S3Double, method: str, verb: str, right: str
) -> None:
    double.denied = {method}
    with pytest.raises(ConfigurationError, match=f"could not be {verb}: S3 does not permit it") as raised:
        bench.check()
    assert right in raised.value.next_step
    assert "SECRET" not in f"{raised.value}{raised.value.next_step}"


def test_a_bucket_that_is_not_there_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_loaded_objects.TABLE", "s3a://elsewhere/t")
    with pytest.raises(
        ConfigurationError, match=r"s3://elsewhere/.* could not be put: there is no such bucket"
    ):
        bench.check()


EXPIRED = Fault(400, "ExpiredToken")


def test_credentials_that_expire_while_rows_are_written_are_named_and_nothing_is_left_to_be_committed(
    bench: Bench, double: S3Double
) -> None:
    sink, attempt = bench.begin()
    sink.write(attempt, batch(1))
    double.fault("PUT", EXPIRED)
    with pytest.raises(OnceonlyError, match="the credentials have expired") as raised:
        sink.pre_commit(attempt)
    assert "SECRET" not in str(raised.value)
    sink.discard(attempt)
    assert kept(double) == []


@pytest.mark.parametrize("fault", [Fault(cut=True, done=True), Fault(cut=True), Fault(503), Fault(500)])
def test_a_put_whose_answer_was_lost_is_repeated(bench: Bench, double: S3Double, fault: Fault) -> None:
    sink, attempt = bench.begin()
    double.fault("PUT", fault)
    sink.write(attempt, batch(1))
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert bench.sink().commit(handle) == Committed()


def test_a_large_file_is_sent_in_parts_and_one_that_is_dropped_leaves_no_upload(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onceonly.families.loaded import attempt as attempts

    monkeypatch.setattr(attempts, "GROUP_BYTES", 1 << 20)
    large = pa.RecordBatch.from_pylist([{"key": "k", "value": f"{n:01000d}"} for n in range(12_000)])
    sink, attempt = bench.begin(compression="none")
    for _ in range(2):
        sink.write(attempt, large)
    assert double.open_uploads
    sink.discard(attempt)
    assert (kept(double), double.open_uploads) == ([], [])
    sink, attempt = bench.begin(compression="none")
    sink.write(attempt, large)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    [file] = Load.of(handle).files
    assert file.bytes == len(double.objects[f"lake/t/{Load.of(handle).folder}/{file.path}"])
    assert bench.sink().commit(handle) == Committed()


def test_what_stands_of_an_epoch_is_counted_by_the_names_that_the_log_has(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    keys = sorted(key for key in double.objects if key.endswith(".parquet"))
    others = ["s3://other/x.parquet", "/local/x.parquet", "nonsense"]
    names = [f"s3a://{BUCKET}/{keys[0]}", f"s3://{BUCKET}/{keys[1]}", *others]
    monkeypatch.setattr(Stored, "files_now", lambda _: names)
    assert bench.sink().held(handles) == Held(rows=2)
    del double.objects[keys[0]]
    names.pop(1)
    held = bench.sink().held(handles)
    assert held is not None
    assert held.rows == 0
    assert sorted("is gone" in each or "no longer has it" in each for each in held.wrong) == [True, True]


def test_a_store_that_is_away_is_waited_for(bench: Bench, double: S3Double) -> None:
    handle = bench.prepared(rows(1))
    opened.tell(Hadoop({"fs.s3a.endpoint": "http://127.0.0.1:9", "fs.s3a.path.style.access": "true",
                        "fs.s3a.access.key": "key", "fs.s3a.secret.key": "SECRET"}))  # fmt: skip
    with pytest.raises(UnavailableError, match="gave no usable answer"):
        bench.sink().commit(handle)
    assert kept(double) != []


def test_rows_are_read_back_from_a_store_and_an_object_changed_at_its_length_is_told(
    bench: Bench, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = pa.RecordBatch.from_pylist([{"key": "a", "value": "row 1"}, {"key": "b", "value": "row 2"}])
    handle = bench.committed(written)
    [key] = [key for key in double.objects if key.endswith(".parquet")]
    monkeypatch.setattr(Stored, "files_now", lambda _: [f"s3a://{BUCKET}/{key}"])
    total = RowChecksum()
    total.add(written)

    def read_back() -> Held:
        held = bench.sink().read_back(bench.query, [handle])
        assert held is not None
        return held

    assert read_back() == Held(rows=2, checksum=total.value)
    data = double.objects[key]
    double.objects[key] = data.replace(b"row 1", b"row 9", 1)
    assert (read_back().rows, read_back().checksum == total.value) == (2, False)
    double.objects[key] = data[::-1]
    assert "other content than was written" in read_back().wrong[0]
