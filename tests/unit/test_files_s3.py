"""The file sink in a bucket, over a double of S3: killed at each request, raced by consumers, misled."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.files_bench import Files, PowerLostError, rows
from tests.unit.s3_double import BUCKET, Fault, S3Double, serve
from tests.unit.test_files_crashes import dies

from onceonly import files
from onceonly.errors import ConfigurationError, UnavailableError, WriteFailedError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost, RetryLater, Unknown
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.objects import ObjectFiles
from onceonly.sinks.files.paths import RemotePath, manifest_folder, target_path
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.targets import buckets
from onceonly.stores import opened, uploads
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOP = "data/out/"
TARGET = f"s3a://{BUCKET}/{TOP}"


class Dying:
    """A process that ends at its n-th request: before it, or when it is carried out and not answered."""

    def __init__(self, nth: int, *, answered: bool) -> None:
        self.calls = 0
        self._nth = nth
        self._answered = answered

    def around(self, client: Any) -> Any:  # noqa: ANN401  a client of a store
        return _Around(client, self)

    def call(self, work: Callable[..., Any], *arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        self.calls += 1
        is_last = self.calls == self._nth
        if is_last and not self._answered:
            raise PowerLostError
        try:
            return work(*arguments, **more)
        finally:
            if is_last:
                raise PowerLostError


class _Around:
    def __init__(self, client: Any, dying: Dying) -> None:  # noqa: ANN401
        self._client = client
        self._dying = dying

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._client, name)
        return partial(self._dying.call, found) if callable(found) and name != "where" else found


@dataclass
class InBucket(Files):
    """A target on the double."""

    double: S3Double = field(default_factory=S3Double)

    def visible(self) -> list[Path]:
        found = [name.removeprefix(TOP) for name in sorted(self.double.objects) if name.startswith(TOP)]
        return [self.target / name for name in found if not any(part[0] in "._" for part in name.split("/"))]

    def ids(self) -> list[int]:
        contents = [self.double.objects[key(path)] for path in self.visible()]
        tables = [pq.ParquetFile(io.BytesIO(content)).read() for content in contents]
        return sorted(value for table in tables for value in table["id"].to_pylist())

    def staged(self) -> list[Path]:
        return [RemotePath(f"s3a://{BUCKET}/{name}") for name in self.double.open_uploads]

    def notes(self) -> list[str]:
        return [name for name in self.double.objects if name.startswith(f"{TOP}_onceonly/staging/")]

    def dying(self, nth: int, *, answered: bool) -> Dying:
        dying, real = Dying(nth, answered=answered), stored(self.target)
        self.store = ObjectFiles(dying.around(real.objects), dying.around(real.uploads))  # type: ignore[assignment]
        return dying

    def take(self) -> Counter[int]:
        """Read what is there, and take it away, as a consumer does."""
        seen = Counter(self.ids())
        for path in self.visible():
            del self.double.objects[key(path)]
        return seen

    def end_upload(self, handle: Handle, number: int = 0) -> None:
        """End an upload, as a rule of the bucket does."""
        del self.double.uploads[Prepared.of(handle).uploads[number].id]


def key(path: Path) -> str:
    return "/".join(path.parts[2:])


def stored(target: Path) -> ObjectFiles:
    assert isinstance(target, RemotePath)
    return ObjectFiles.of(target)


def fail_second(double: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the second completion of an upload be refused once."""
    complete = uploads.S3Uploads.complete
    faulty = iter([False, True])

    def once(self: uploads.S3Uploads, *arguments: Any) -> Any:  # noqa: ANN401
        if next(faulty, False):
            double.fault("COMPLETE", Fault())
        return complete(self, *arguments)

    monkeypatch.setattr(uploads.S3Uploads, "complete", once)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Double]:
    yield from serve(S3Double())


@pytest.fixture
def double(server: S3Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Double:
    server.reset()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(opened, "_told", hadoop(server))
    monkeypatch.setitem(opened._RETRIES, "max_retries", 0)
    monkeypatch.setattr(uploads, "_TRIES", 1)
    return server


def hadoop(server: S3Double) -> Hadoop:
    return Hadoop(
        {
            "fs.s3a.endpoint": server.url,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "ak",
            "fs.s3a.secret.key": "sksksk",
            "fs.s3a.endpoint.region": "us-east-1",
        }
    )


@pytest.fixture
def bench(double: S3Double) -> InBucket:
    return InBucket(target_path(TARGET), store=stored(target_path(TARGET)), double=double)  # type: ignore[arg-type]


EVERY = [
    pytest.param(answered, takes, 1, id=f"every, {answered}, {takes}", marks=pytest.mark.long)
    for answered, takes in product((False, True), repeat=2)
]
SOME = [
    pytest.param(answered, takes, 4, id=f"some, {answered}, {takes}")
    for answered, takes in product((False, True), repeat=2)
]


@pytest.mark.parametrize(("answered", "takes", "step"), [*EVERY, *SOME])
def test_commit_and_manifest_are_finished_after_a_crash_at_any_request(
    bench: InBucket, double: S3Double, *, answered: bool, takes: bool, step: int
) -> None:
    doubts = 0
    for nth in count(1, step):
        double.reset()
        bench.store = stored(bench.target)  # type: ignore[assignment]
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
        assert bench.ids() == []
        bench.dying(nth, answered=answered)
        died = dies(partial(bench.finish, 0, *handles))
        bench.store = stored(bench.target)  # type: ignore[assignment]
        seen = bench.take() if takes else Counter()
        outcomes = bench.finish(0, *handles)
        seen.update(bench.take() if takes else bench.ids())
        if "Unknown" in outcomes:
            # Taken between its completion and the manifest, while the driver died: in doubt, never twice.
            assert takes
            assert seen <= Counter([1, 2, 3, 4])
            doubts += 1
            continue
        assert set(outcomes) <= {"Committed", "AlreadyCommitted"}
        assert seen == Counter([1, 2, 3, 4]), f"after request {nth}"
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]
        assert bench.staged() == []
        bench.sweep(keep=())
        assert bench.notes() == []
        if not died:
            assert nth > 25, "the requests are counted"
            assert bool(doubts) == takes
            return


@pytest.mark.parametrize("answered", [False, True])
def test_abort_is_finished_after_a_crash_at_any_request(
    bench: InBucket, double: S3Double, *, answered: bool
) -> None:
    for nth in count(1):
        double.reset()
        bench.store = stored(bench.target)  # type: ignore[assignment]
        handle, decided = bench.prepared(rows(1, 2)), bench.prepared(rows(3), slot=1)
        (left,) = [
            each for each in bench.sink().recover(bench.context) if each.transaction == handle.transaction
        ]
        bench.dying(nth, answered=answered)
        died = dies(partial(bench.sink().abort, left.handle))
        bench.store = stored(bench.target)  # type: ignore[assignment]
        bench.sweep(keep=[decided])
        assert len(double.open_uploads) == 1
        assert bench.finish(0, decided) == ["Committed"]
        assert bench.ids() == [3]
        assert not any(handle.transaction in name for name in bench.notes())
        if not died:
            assert nth > 3
            return


@pytest.mark.parametrize("answered", [False, True])
def test_taking_back_is_finished_after_a_crash_at_any_request(
    bench: InBucket, double: S3Double, *, answered: bool
) -> None:
    for nth in count(1):
        double.reset()
        bench.store = stored(bench.target)  # type: ignore[assignment]
        handles = []
        for epoch in range(3):
            handles.append(bench.prepared(rows(2 * epoch, 2 * epoch + 1), epoch))
            assert bench.finish(epoch, handles[-1]) == ["Committed"]
        theirs = key(bench.target / "theirs.parquet")
        double.objects[theirs] = double.objects[key(bench.visible()[0])]
        bench.dying(nth, answered=answered)
        died = dies(partial(bench.sink().withdraw, bench.context, 0, handles[1:]))
        # Who reads the manifests sees the past, and no file that is gone.
        assert sum(epoch.rows for epoch in files.committed(str(bench.target))) in {2, 4, 6}
        listed = {file for epoch in files.committed(str(bench.target)) for file in epoch.files}
        assert len(listed) <= len(bench.visible()) - 1
        bench.store = stored(bench.target)  # type: ignore[assignment]
        bench.sink().withdraw(bench.context, 0, handles[1:])
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]
        del double.objects[theirs]
        assert bench.ids() == [0, 1]
        if not died:
            assert nth > 5, "the requests are counted"
            break
    assert isinstance(bench.sink().commit(handles[1]), Unknown)
    assert bench.finish(1, bench.prepared(rows(70), epoch=1)) == ["Committed"]
    assert bench.ids() == [0, 1, 70]


@pytest.mark.parametrize("number", [0, 1])
def test_an_upload_that_was_ended_before_the_commit_is_lost_with_all_of_its_transaction(
    bench: InBucket, double: S3Double, number: int
) -> None:
    handle = bench.prepared(rows(1, 2))
    bench.end_upload(handle, number)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert isinstance(bench.sink().commit(handle), Lost), "for good"
    assert (bench.ids(), double.open_uploads) == ([], [])
    again = bench.prepared(rows(1, 2))
    assert bench.finish(0, again) == ["Committed"]
    assert bench.ids() == [1, 2]
    assert isinstance(bench.sink().commit(handle), Lost | Unknown)
    assert bench.ids() == [1, 2]


def test_who_saw_all_uploads_before_one_was_ended_cannot_complete_the_others(
    bench: InBucket, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1, 2))
    put_once = ObjectFiles.put_once

    def paused(store: ObjectFiles, path: Path, data: bytes) -> bytes:
        monkeypatch.setattr(ObjectFiles, "put_once", put_once)
        bench.end_upload(handle)
        assert isinstance(bench.sink().commit(handle), Lost)
        return put_once(store, path, data)

    monkeypatch.setattr(ObjectFiles, "put_once", paused)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert bench.ids() == []


def test_what_is_being_committed_is_not_aborted(bench: InBucket, double: S3Double) -> None:
    handle = bench.prepared(rows(1, 2))
    double.fault("COMPLETE", *[Fault()] * 2)
    assert isinstance(bench.sink().commit(handle), RetryLater)
    double.faults.clear()  # one failure may have kept the other completion from beginning
    bench.sink().abort(handle)
    assert bench.finish(0, handle) == ["Committed"]
    assert bench.ids() == [1, 2]


def test_an_upload_that_is_gone_after_the_commit_began_is_in_doubt(bench: InBucket, double: S3Double) -> None:
    handle = bench.prepared(rows(1, 2))
    double.fault("COMPLETE", *[Fault()] * 2)
    assert isinstance(bench.sink().commit(handle), RetryLater)
    double.faults.clear()  # one failure may have kept the other completion from beginning
    bench.end_upload(handle)
    assert isinstance(bench.sink().commit(handle), Unknown), "it may have been completed and taken away"


@pytest.mark.parametrize("refuses_own", [False, True])
def test_a_completion_without_an_answer_is_looked_up(
    bench: InBucket, double: S3Double, *, refuses_own: bool
) -> None:
    double.refuses_own = refuses_own
    handle = bench.prepared(rows(1, 2))
    double.fault("COMPLETE", Fault(cut=True, done=True), Fault(status=500, code="InternalError", done=True))
    # Uploads are completed beside one another, and what follows on a failure is left for the next call: each fault
    # strikes once, in the first call or the second.
    answers = [bench.sink().commit(handle) for _ in range(3)]
    assert isinstance(answers[0], RetryLater)
    assert answers[2] == AlreadyCommitted()
    assert bench.ids() == [1, 2]


@pytest.mark.parametrize("refuses_own", [False, True])
def test_a_driver_that_is_paused_before_any_request_doubles_nothing(
    bench: InBucket, double: S3Double, *, refuses_own: bool
) -> None:
    for nth in count(1):
        double.reset()
        double.refuses_own = refuses_own
        bench.store = stored(bench.target)  # type: ignore[assignment]
        handle = bench.prepared(rows(1, 2))
        other = InBucket(bench.target, store=bench.store, double=double)
        paused = bench.dying(0, answered=False)
        seen: Counter[int] = Counter()

        def meanwhile(work, *arguments, nth=nth, paused=paused, **more):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
            paused.calls += 1
            if paused.calls == nth:
                assert other.sink().commit(handle) == Committed()  # noqa: B023  run at once
                other.sink().complete(other.context, 0, [handle])  # noqa: B023
                seen.update(other.take())  # noqa: B023
            return work(*arguments, **more)

        paused.call = meanwhile  # type: ignore[method-assign]
        sink = bench.sink()
        for _ in range(3):
            if isinstance(sink.commit(handle), Committed | AlreadyCommitted):
                break
        else:
            pytest.fail("never told")
        seen.update(bench.take())
        assert seen == Counter([1, 2])
        if paused.calls < nth:
            assert nth > 5
            return


def test_a_driver_that_comes_upon_another_ones_commit_half_way_is_not_in_doubt(
    bench: InBucket, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_THREADS_MAX", 1)
    for nth in count(1):
        double.reset()
        bench.store = stored(bench.target)  # type: ignore[assignment]
        handle = bench.prepared(rows(1, 2))
        other = InBucket(bench.target, store=bench.store, double=double)
        paused = bench.dying(0, answered=False)

        def meanwhile(work, *arguments, nth=nth, paused=paused, **more):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN202
            paused.calls += 1
            if paused.calls == nth:
                with monkeypatch.context() as patched:
                    fail_second(double, patched)
                    other.sink().commit(handle)  # noqa: B023  run at once
            return work(*arguments, **more)

        paused.call = meanwhile  # type: ignore[method-assign]
        assert isinstance(bench.sink().commit(handle), Committed | AlreadyCommitted | RetryLater)
        double.faults.clear()
        assert isinstance(other.sink().commit(handle), Committed | AlreadyCommitted)
        assert bench.ids() == [1, 2]
        if paused.calls < nth:
            assert nth > 5
            return


def test_what_was_completed_by_this_process_is_known_to_it_when_a_reader_took_it(
    bench: InBucket, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_THREADS_MAX", 1)
    sink = bench.sink()
    handle = bench.prepared(rows(1, 2))
    fail_second(double, monkeypatch)
    assert isinstance(sink.commit(handle), RetryLater)
    seen = bench.take()
    assert sum(seen.values()) == 1
    assert sink.commit(handle) == Committed()
    assert seen + bench.take() == Counter([1, 2])


def test_a_strangers_object_and_upload_are_never_touched(bench: InBucket, double: S3Double) -> None:
    handle, left = bench.prepared(rows(1)), bench.prepared(rows(2))
    theirs = stored(bench.target).uploads.begin(f"{TOP}day=d1/part-00000-00000-theirs-00000.parquet", "t")
    (final,) = bench.finals(handle)
    double.objects[key(final)] = b"theirs"
    other = InBucket(bench.target, store=bench.store, double=double, query="q-2").prepared(rows(5))
    assert isinstance(bench.sink().commit(handle), Unknown)
    assert double.objects[key(final)] == b"theirs"
    assert bench.sweep(keep=[handle]) == [left.transaction]
    assert theirs in double.uploads
    assert Prepared.of(other).uploads[0].id in double.uploads


def test_an_object_of_the_same_length_without_our_token_is_not_ours(
    bench: InBucket, double: S3Double
) -> None:
    handle = bench.prepared(rows(1))
    (final,) = bench.finals(handle)
    double.objects[key(final)] = bytes(Prepared.of(handle).files[0].bytes)
    assert isinstance(bench.sink().commit(handle), Unknown)


def test_without_all_notes_nothing_is_called_lost(bench: InBucket, double: S3Double) -> None:
    handle = bench.prepared(rows(1))
    assert bench.sink().commit(handle) == Committed()
    bench.take()
    for name in bench.notes():
        del double.objects[name]
    assert isinstance(bench.sink().commit(handle), Unknown)


def test_a_repeated_commit_of_what_was_tidied_up_is_told_by_the_manifest(bench: InBucket) -> None:
    handle = bench.prepared(rows(1))
    bench.finish(0, handle)
    bench.take()
    bench.sweep()
    assert bench.notes() == []
    assert bench.sink().commit(handle) == AlreadyCommitted()


def test_an_attempt_that_was_swept_gives_no_vote(bench: InBucket, double: S3Double) -> None:
    sink, attempt = bench.begin()
    sink.write(attempt, pa.record_batch(rows(1)))
    assert bench.sweep() == [attempt.transaction]
    with pytest.raises(WriteFailedError, match="given up by the driver"):
        sink.pre_commit(attempt)
    sink.discard(attempt)
    assert (double.open_uploads, bench.notes()) == ([], [])


def test_a_settled_transaction_is_tidied_up_and_an_undecided_one_aborted(bench: InBucket) -> None:
    handle = bench.prepared(rows(1))
    bench.sink().commit(handle)
    bench.sink().complete(bench.context, 0, [handle])
    (settled,) = bench.sink().recover(bench.context)
    assert settled.transaction == f"settled-{handle.transaction}"
    assert not settled.is_open
    left = bench.prepared(rows(2), epoch=1)
    assert [each.transaction for each in bench.sink().recover(bench.context) if each.is_open] == [
        left.transaction
    ]


def test_a_loser_whose_uploads_could_not_be_ended_is_not_forgotten_with_its_epoch(
    bench: InBucket, double: S3Double
) -> None:
    loser, decided = bench.prepared(rows(1)), bench.prepared(rows(1))
    (left,) = [each for each in bench.sink().recover(bench.context) if each.transaction == loser.transaction]
    double.fault("UPLOADS", Fault())
    with pytest.raises(UnavailableError):
        bench.sink().abort(left.handle)
    assert bench.finish(0, decided) == ["Committed"]
    assert (bench.ids(), double.open_uploads, bench.notes()) == ([1], [], [])


def test_what_was_completed_is_remembered_until_it_is_tidied_up(bench: InBucket, double: S3Double) -> None:
    sink = bench.sink()
    for epoch in range(3):
        handle = bench.prepared(rows(epoch), epoch)
        assert isinstance(sink.commit(handle), Committed)
        sink.complete(bench.context, epoch, [handle])
        double.requests.clear()
        bench.sweep(sink)
        reads = [name for method, name in double.requests if method == "GET" and name.endswith(".mark")]
        assert not reads, "nobody reads what this process has put"
    target = sink._target
    assert isinstance(target, buckets.BucketTarget)
    assert not target._shown


def test_what_a_lost_query_has_prepared_in_a_bucket_is_found(bench: InBucket) -> None:
    handle = bench.prepared(rows(1), epoch=3)
    (found,) = bench.sink().hanging()
    assert (found.transaction, found.query, found.sink) == (handle.transaction, bench.query, "files")
    assert "chk-3 of the sink files, written, and perhaps decided" in found.told
    unique = handle.transaction.rpartition("-")[2]
    assert f"ending the uploads whose keys have -{unique}- in them" in found.if_lost
    bench.sink().commit(handle)
    bench.sink().complete(bench.context, 3, [handle])
    assert bench.sink().hanging() == []


def test_a_commit_in_a_bucket_that_was_broken_off_is_found(bench: InBucket, double: S3Double) -> None:
    handle = bench.prepared(rows(1, 2), epoch=3)
    seen: set[tuple[bool, int]] = set()
    for nth in count(1):
        bench.dying(nth, answered=True)
        if not dies(partial(bench.sink().commit, handle)):
            break
        bench.store = stored(bench.target)  # type: ignore[assignment]
        told = [each.told for each in bench.sink().hanging()]
        # Where all uploads are completed, nothing waits.
        assert len(told) == bool(double.open_uploads)
        is_begun = any(name.endswith(".mark") for name in double.objects)
        assert all(("its commit was broken off" in each) is is_begun for each in told)
        assert [each.is_decided for each in bench.sink().recover(bench.context)] == [is_begun]
        seen.update({(is_begun, len(told))})
    assert seen == {(False, 1), (True, 1), (True, 0)}
    bench.store = stored(bench.target)  # type: ignore[assignment]
    bench.sink().complete(bench.context, 3, [handle])
    assert bench.sink().hanging() == []
    void = bench.prepared(rows(5), epoch=4)
    bench.sink().abort(void)
    assert bench.sink().hanging() == []


def test_of_a_bucket_each_right_is_asked_for_by_what_changes_nothing(
    bench: InBucket, double: S3Double
) -> None:
    bench.prepared(rows(1))
    before, opened = dict(double.objects), double.open_uploads
    assert bench.sink().require_rights(bench.context) == ""
    for call in ("LIST", "HEAD", "UPLOADS", "PART", "DELETE"):
        double.denied = {call}
        with pytest.raises(ConfigurationError, match="S3 does not permit it"):
            bench.sink().require_rights(bench.context)
    assert (double.objects, double.open_uploads) == (before, opened)


def test_of_a_bucket_that_keeps_versions_nothing_is_removed(bench: InBucket, double: S3Double) -> None:
    bench.prepared(rows(1))
    double.versions = True
    double.requests.clear()  # a start tries a name of its own
    said = bench.sink().require_rights(bench.context)
    assert said.startswith("what may be removed in ")
    double.denied = {"VERSIONING"}
    double.fault("PART", Fault(status=400, code="InvalidArgument"))
    assert bench.sink().require_rights(bench.context).startswith("what may be put and removed in ")
    assert not [method for method, _ in double.requests if method == "DELETE"]


def test_rows_are_sent_in_parts_one_at_a_time(
    bench: InBucket, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "PART_BYTES", 1000)
    handle = bench.prepared({"id": list(range(2000)), "day": ["d"] * 2000})
    (upload,) = Prepared.of(handle).uploads
    sizes = [len(part) for part in double.uploads[upload.id].parts.values()]
    assert sizes[:-1] == [1000] * (len(sizes) - 1)
    assert len(sizes) == len(upload.parts) > 3
    assert bench.finish(0, handle) == ["Committed"]
    assert bench.ids() == list(range(2000))


def test_at_least_once_the_objects_are_there_when_the_slot_votes(bench: InBucket) -> None:
    bench.guarantee = Guarantee.AT_LEAST_ONCE
    handle = bench.prepared(rows(1, 2))
    assert bench.ids() == [1, 2]
    assert bench.finish(0, handle) == ["AlreadyCommitted"]


def test_at_most_once_the_manifest_has_what_is_there(
    bench: InBucket, double: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One after the other, and the second fails: beside one another, the failing one may keep the other from beginning.
    monkeypatch.setattr(buckets, "_THREADS_MAX", 1)
    bench.guarantee = Guarantee.AT_MOST_ONCE
    sink, handle = bench.sink(), bench.prepared(rows(1, 2))
    fail_second(double, monkeypatch)
    assert isinstance(sink.commit(handle), RetryLater)
    sink.complete(bench.context, 0, [handle])
    ledger = Ledger(bench.store, manifest_folder(bench.target, "q-1", "files"))
    assert [len(each.files) for each in ledger.manifests()] == [1]
    assert double.open_uploads == [], "what failed then is dropped"


@pytest.mark.parametrize(
    ("denied", "right"),
    [
        ("PUT", "s3:PutObject"),
        ("BEGIN", "s3:PutObject"),
        ("LIST", "s3:ListBucket"),
        ("UPLOADS", "s3:ListBucketMultipartUploads"),
        ("DELETE", "s3:DeleteObject"),
        ("PARTS", "s3:ListMultipartUploadParts"),
        ("END", "s3:AbortMultipartUpload"),
        ("HEAD", "s3:GetObject"),
    ],
)
def test_a_right_that_is_missing_is_one_sentence_before_the_first_record(
    bench: InBucket, double: S3Double, denied: str, right: str
) -> None:
    double.denied.add(denied)
    with pytest.raises(ConfigurationError, match="S3 does not permit it") as caught:
        bench.sink().check(bench.context)
    assert right in caught.value.next_step
    assert "sksksk" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_one_sentence(double: S3Double) -> None:
    target = target_path("s3a://missing/out")
    bench = InBucket(target, store=stored(target), double=double)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="there is no such bucket"):
        bench.sink().check(bench.context)


def test_a_store_that_lies_about_conditions_is_refused(bench: InBucket, double: S3Double) -> None:
    double.lies = True
    with pytest.raises(ConfigurationError, match="puts a file over another"):
        bench.sink().check(bench.context)
    assert double.objects == {}


def test_a_bucket_with_object_lock_is_refused(bench: InBucket, double: S3Double) -> None:
    double.fault("BEGIN", Fault(status=400, code="InvalidRequest", message="… with Object Lock parameters"))
    with pytest.raises(ConfigurationError, match="keeps every object for a time"):
        bench.sink().check(bench.context)


def test_a_trial_leaves_nothing_behind(bench: InBucket, double: S3Double) -> None:
    bench.sink().check(bench.context)
    assert not [name for name in double.objects if "probes" in name]
    assert double.open_uploads == []


def test_the_id_of_a_target_is_kept_young_as_it_is(bench: InBucket, double: S3Double) -> None:
    """A rule of the bucket ends what is old."""
    handle = bench.prepared(rows(1))
    name = next(name for name in double.objects if name.endswith("/target-id"))
    before = double.objects[name]
    bench.sink().commit(handle)
    double.requests.clear()
    bench.sink().complete(bench.context, 0, [handle])
    assert ("PUT", name) in [(method, path.removeprefix(f"/{BUCKET}/")) for method, path in double.requests]
    assert double.objects[name] == before


def test_a_target_is_the_same_by_each_way_to_write_it(bench: InBucket, double: S3Double) -> None:
    bench.sink().check(bench.context)
    target = target_path(f"s3://{BUCKET}//data/out/")
    other = InBucket(target, store=stored(target), double=double)  # type: ignore[arg-type]
    assert bench.sink().identity() == other.sink().identity()
    assert bench.sink().identity()["path"] == f"s3://{BUCKET}/data/out"
    handle = bench.prepared(rows(1))
    assert other.sink().commit(handle) == Committed()
