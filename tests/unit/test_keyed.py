"""What the keyed family promises: versions that only grow, one row a key, and refusals before the decision."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit import test_conformance_keyed, unreadable
from tests.unit.keyed_double import KeyedDouble

from onceonly.errors import (
    ConfigurationError,
    LogError,
    OnceonlyError,
    ProtocolError,
    RecordRefusedError,
    TargetBehindError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.families import behind
from onceonly.families.keyed import KeyedRows, Origin
from onceonly.families.keyed.options import Columns
from onceonly.families.keyed.rows import Choice, key_texts, larger
from onceonly.families.keyed.versions import version_of
from onceonly.families.staged.files import FileRows
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost
from onceonly.ports import QueryContext, Refused, WriteContext
from onceonly.settings.registry import build, settings_of
from onceonly_proof.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.ports import Sink

COLUMNS = pa.schema([("key", pa.string()), ("value", pa.string()), ("at", pa.int64()), ("op", pa.string())])


class Bench:
    """One target, and sinks of one query that write to it."""

    def __init__(self, folder: Path) -> None:
        self._suite = test_conformance_keyed.TestDecided()
        self.options: dict[str, str] = {**self._suite.options(folder)}
        self.query = "q"

    def seen(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self._suite.visible(self.options)}

    def sink(self, **more: str) -> Sink:
        settings = settings_of({**self.options, **more}, "keyed", KeyedDouble).sink
        return build(settings, KeyedDouble)

    def context(self, epoch: int = 0, slot: int = 0, **more: Any) -> WriteContext:  # noqa: ANN401  fields of it
        facts = self.sink().check(
            QueryContext(query=self.query, sink="keyed", guarantee=Guarantee.EXACTLY_ONCE)
        )
        context = WriteContext(
            query=self.query, sink="keyed", run="r", epoch=epoch, plan="p", slot=slot, attempt="0",
            guarantee=Guarantee.EXACTLY_ONCE, facts=facts,
        )  # fmt: skip
        return replace(context, **more)

    def staged(self, *rows: tuple[str | None, str], sink: Sink | None = None, **more: Any) -> Handle:  # noqa: ANN401  as above
        """Write rows and prepare them."""
        sink = sink or self.sink()
        attempt = sink.begin_transaction(self.context(**more))
        sink.write(attempt, batch(*rows))
        handle = sink.pre_commit(attempt)
        assert handle is not None
        return handle

    def committed(self, *rows: tuple[str | None, str], **more: Any) -> Handle:  # noqa: ANN401  as above
        handle = self.staged(*rows, **more)
        assert self.sink().commit(handle) == Committed()
        return handle


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def batch(
    *rows: tuple[str | None, str]
    | tuple[str | None, str, int | None]
    | tuple[str | None, str, int | None, str | None],
) -> pa.RecordBatch:
    full = [(*row, None, None)[:4] for row in rows]
    columns = list(zip(*full, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)], schema=COLUMNS
    )


def keys_put(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the keys that are put into the target from now on."""
    found: list[str] = []
    put = KeyedDouble.put

    def noted(self: KeyedDouble, rows: KeyedRows, version: int) -> Any:  # noqa: ANN401  as ``put`` gives
        found.extend(rows.keys)
        return put(self, rows, version)

    monkeypatch.setattr(KeyedDouble, "put", noted)
    return found


def voted(sink: Sink, attempt: object, rows: pa.RecordBatch) -> None:
    """Write rows, prepare and rehearse them, as before a decision."""
    sink.write(attempt, rows)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    sink.rehearse([handle], {})


def query_context() -> QueryContext:
    return QueryContext(query="q", sink="keyed", guarantee=Guarantee.EXACTLY_ONCE)


# --- versions ---------------------------------------------------------------------------------------------------

PARTS = st.tuples(st.integers(0, (1 << 20) - 1), st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 12) - 1))


@given(PARTS, PARTS)
def test_versions_grow_with_the_query_then_the_epoch_then_the_try(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    first, second = (
        version_of(generation=generation, epoch=epoch, index=index)
        for generation, epoch, index in (one, other)
    )
    assert (first < second) == (one < other)
    assert 0 <= first < 1 << 63


@pytest.mark.parametrize("part", ["generation", "epoch", "index"])
def test_a_version_whose_parts_are_used_up_is_refused_and_never_wraps(part: str) -> None:
    full = {"generation": 1 << 20, "epoch": 1 << 31, "index": 1 << 12}
    with pytest.raises(ConfigurationError, match=str(full[part])):
        version_of(**{"generation": 0, "epoch": 0, "index": 0, part: full[part]})


def test_an_origin_travels_with_staged_rows(bench: Bench) -> None:
    origin = Origin.of(bench.context(epoch=7, index=3, early=True), chosen=True)
    assert Origin.read(origin.marked(batch(("k", "v"))).schema) == origin


def test_a_plan_without_a_generation_is_a_defect(bench: Bench) -> None:
    with pytest.raises(ProtocolError, match="generation"):
        bench.sink().begin_transaction(bench.context(facts={}))


# --- zombies and replays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_an_older_epoch_that_wakes_up_late_changes_nothing(bench: Bench, early: bool) -> None:  # noqa: FBT001
    late = bench.sink()
    attempt = late.begin_transaction(bench.context(5, early=early))
    waiting = bench.staged(("a", "of 5"), epoch=5) if not early else None
    bench.committed(("a", "of 6"), ("b", "of 6"), epoch=6, early=early)
    if waiting is None:
        with pytest.raises(WriteFailedError, match="a later epoch"):
            late.write(attempt, batch(("a", "of 5")))
    else:
        assert bench.sink().commit(waiting) == Committed()
    assert bench.seen() == {"a": "of 6", "b": "of 6"}


def test_a_later_try_at_an_epoch_wins_whichever_comes_last(bench: Bench) -> None:
    sink = bench.sink()
    old = sink.begin_transaction(bench.context(5, early=True, index=0))
    bench.committed(("a", "later"), epoch=5, early=True, index=1)
    with pytest.raises(WriteFailedError, match="a later try"):
        sink.write(old, batch(("a", "earlier")))
    assert bench.seen() == {"a": "later"}


def test_a_replay_changes_nothing(bench: Bench) -> None:
    rows = [(f"k{number}", f"v{number}") for number in range(100)]
    handle = bench.committed(*rows)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    bench.committed(*reversed(rows))  # another attempt of the same try, in another order
    assert bench.seen() == dict(rows)


def test_a_deleted_key_stays_deleted_for_who_wakes_up_late(bench: Bench) -> None:
    bench.options["op"] = "op"
    late = bench.sink()
    attempt = late.begin_transaction(bench.context(5, early=True))
    sink = bench.sink()
    deleting = sink.begin_transaction(bench.context(6, early=True))
    sink.write(deleting, batch(("a", "", None, "d")))
    with pytest.raises(WriteFailedError):
        late.write(attempt, batch(("a", "of 5", None, "u")))
    assert bench.seen() == {}
    again = sink.begin_transaction(bench.context(7, early=True))
    sink.write(again, batch(("a", "of 7", None, "c")))
    assert bench.seen() == {"a": "of 7"}


def test_a_query_on_a_new_checkpoint_writes_over_the_one_before(bench: Bench) -> None:
    bench.committed(("a", "first query"), epoch=900)
    bench.query = "another"
    bench.committed(("a", "second query"), epoch=0)
    assert bench.seen() == {"a": "second query"}


@pytest.mark.parametrize("early", [False, True])
def test_a_query_whose_keys_a_later_one_writes_is_stopped_before_it_decides(
    bench: Bench,
    early: bool,  # noqa: FBT001
) -> None:
    context = bench.context(7)
    bench.query = "another"
    bench.committed(("a", "another"))
    bench.query = "q"
    sink = bench.sink()
    attempt = sink.begin_transaction(replace(context, early=early))
    with pytest.raises(ConfigurationError, match=r"the key a .* by another query"):
        voted(sink, attempt, batch(("b", "q"), ("a", "q")))
    assert bench.seen() == ({"a": "another", "b": "q"} if early else {"a": "another"})


@pytest.mark.parametrize("early", [False, True])
def test_where_the_books_were_lost_versions_go_on_above_those_of_the_rows(bench: Bench, early: bool) -> None:  # noqa: FBT001
    for query in ("one", "two", "three"):
        bench.query = query
        bench.committed(("a", query), epoch=9)
    with closing(sqlite3.connect(bench.options["database"])) as db, db:
        db.execute("DELETE FROM generations")
    bench.query = "q"
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(0, early=early))
    with pytest.raises(UnavailableError, match=r"the books .* were lost"):
        voted(sink, attempt, batch(("a", "four")))
    bench.committed(("a", "four"), early=early)  # as the next start does
    assert bench.seen() == {"a": "four"}


def test_an_older_checkpoint_that_is_restored_stops_before_its_rows_are_refused(tmp_path: Path) -> None:
    with World(test_conformance_keyed.TestDecided(), tmp_path) as world:
        checkpoint, backup = world.folder / "checkpoint", tmp_path / "backup"
        with world.run(epochs=1) as query:
            query.run_all()
        shutil.copytree(checkpoint, backup)
        with world.run(epochs=3) as query:
            query.run_all()
        shutil.rmtree(checkpoint)
        shutil.copytree(backup, checkpoint)
        with world.run(epochs=3) as query, pytest.raises(LogError, match="older checkpoint"):
            query.run_all()


# --- keys -------------------------------------------------------------------------------------------------------


def test_texts_of_keys() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "text": ["a:b", "50%", None],
            "number": pa.array([1, -2, 3], pa.int64()),
            "day": [dt.date(2026, 1, 2)] * 3,
            "price": [Decimal("1.50")] * 3,
        }
    )
    assert key_texts(rows, ["text"]) == ["a:b", "50%", None]
    assert key_texts(rows, ["number"]) == ["1", "-2", "3"]
    assert key_texts(rows, ["text", "number"]) == ["a%3Ab:1", "50%25:-2", None]
    assert key_texts(rows, ["day", "price"])[0] == "2026-01-02:1.50"


@given(
    st.lists(
        st.tuples(st.text(":%ab3A25", min_size=1), st.text(":%ab3A25", min_size=1)), unique=True, min_size=1
    )
)
@example([("a:", "b"), ("a", ":b")])
@example([("a:", "b"), ("a%3A", "b")])
def test_different_keys_have_different_texts(keys: list[tuple[str, str]]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(each) for each in zip(*keys, strict=True)], names=["a", "b"])
    assert len(set(key_texts(rows, ["a", "b"]))) == len(keys)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((None, "v"), "its key, key, is null"),
        (("", "v"), "an empty text"),
        (("a", "v", 1, None), "which neither puts nor deletes"),
        (("a", "v", 1, "truncate"), "'truncate'"),
        (("a", "v", None, "u"), "its at is null"),
        (("a", "unfit", 1, "u"), "it is unfit"),
    ],
)
def test_a_row_that_has_no_place_is_refused_or_given_back(
    bench: Bench, row: tuple[Any, ...], said: str
) -> None:
    bench.options |= {"op": "op", "sequence": "at"}
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context())
    with pytest.raises(RecordRefusedError, match=said):
        sink.write(attempt, batch(("fine", "v", 1, "u"), row))
    attempt = sink.begin_transaction(bench.context(gives_back=True))
    [refused] = sink.write(attempt, batch(("fine", "v", 1, "u"), row)) or ()
    assert refused.row == 1
    assert said in refused.why
    handle = sink.pre_commit(attempt)
    assert handle is not None
    sink.commit(handle)
    assert bench.seen() == {"fine": "v"}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("place", ["key", "value"])
@pytest.mark.parametrize("what", unreadable.COLUMNS)
def test_a_value_that_nobody_could_read_is_given_back_before_the_vote(
    bench: Bench, what: str, place: str, early: bool  # noqa: FBT001
) -> None:  # fmt: skip
    _, column, code = unreadable.COLUMNS[what]
    rows = pa.RecordBatch.from_arrays([pa.array(["fine", "odd"]), column], names=["key", "value"])
    bench.options["key"] = "key"
    if place == "key" and not pa.types.is_nested(column.type):
        bench.options["key"] = "value"
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(early=early, gives_back=True))
    [refused] = sink.write(attempt, rows) or ()
    assert (refused.row, refused.code) == (1, code)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert sink.commit(handle) == Committed()
    assert len(bench.seen()) == 1


def test_a_row_that_is_unfit_for_two_reasons_is_given_back_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = [Refused(row=1, code=code, why=f"it is {code}") for code in ("A", "B")]
    monkeypatch.setattr(KeyedDouble, "unfit", lambda *_: twice)
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(gives_back=True))
    assert sink.write(attempt, batch(("a", "1"), ("b", "2"), ("c", "3"))) == twice[:1]


@pytest.mark.parametrize("early", [False, True])
def test_a_key_twice_in_an_epoch_stops_it_before_the_decision(bench: Bench, early: bool) -> None:  # noqa: FBT001
    one = bench.staged(("a", "1"), ("b", "1"), ("a", "2"), early=early)
    with pytest.raises(RecordRefusedError, match=r"the key a .* in slot 0") as raised:
        bench.sink().rehearse([one], {})
    assert "option sequence" in raised.value.next_step


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("order", [False, True])
def test_a_key_in_two_slots_stops_it_before_the_decision(bench: Bench, early: bool, order: bool) -> None:  # noqa: FBT001
    if order:
        bench.options["sequence"] = "at"
    sink = bench.sink()
    handles = []
    for slot in (2, 5):
        attempt = sink.begin_transaction(bench.context(slot=slot, early=early))
        sink.write(attempt, batch((f"of {slot}", "x", slot), ("both", "x", slot)))
        handles.append(sink.pre_commit(attempt))
    with pytest.raises(RecordRefusedError, match=r"the key both .* in slots 2 and 5") as raised:
        bench.sink().rehearse([each for each in handles if each], {})
    assert "repartition" in raised.value.next_step


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("batches", [[[3, 1, 2]], [[1], [3], [2]], [[2, 3], [1]], [[1, 2], [3]]])
def test_the_greatest_sequence_of_a_key_stays_however_its_rows_come(
    bench: Bench,
    early: bool,  # noqa: FBT001
    batches: list[list[int]],
) -> None:
    bench.options["sequence"] = "at"
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(early=early))
    for some in batches:
        sink.write(
            attempt, batch(("other", f"o{some[0]}", 10 + some[0]), *(("a", f"v{at}", at) for at in some))
        )
    handle = sink.pre_commit(attempt)
    assert handle is not None
    sink.rehearse([handle], {})
    sink.commit(handle)
    assert bench.seen()["a"] == "v3"


def test_of_a_keys_rows_in_a_slot_only_the_newest_is_applied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.options["sequence"] = "at"
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context())
    for at in (1, 2, 3):
        sink.write(attempt, batch(("a", f"v{at}", at), (f"b{at}", "x", at)))
    handle = sink.pre_commit(attempt)
    assert handle is not None
    applied = keys_put(monkeypatch)
    assert sink.commit(handle) == Committed()
    # Some stores keep the greater of two values with one version, and not the later one.
    assert applied == ["b1", "b2", "a", "b3"]
    assert bench.seen()["a"] == "v3"


def test_what_no_sequence_chose_is_read_once_to_be_applied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.staged(("a", "1"), ("b", "2"))
    reads: list[str] = []
    batches = FileRows.batches

    def noted(self: FileRows) -> Any:  # noqa: ANN401  as ``batches`` gives
        reads.append(self.name)
        return batches(self)

    monkeypatch.setattr(FileRows, "batches", noted)
    assert bench.sink().commit(handle) == Committed()
    # From a store, each time is a whole object.
    assert reads == [handle.transaction]


def test_what_a_sequence_chose_is_applied_by_a_start_that_has_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.sink(sequence="at")
    attempt = first.begin_transaction(bench.context())
    for at in (1, 2, 3):
        first.write(attempt, batch(("a", f"v{at}", at)))
    handle = first.pre_commit(attempt)
    assert handle is not None
    applied = keys_put(monkeypatch)
    assert bench.sink().commit(handle) == Committed()
    assert (applied, bench.seen()) == (["a"], {"a": "v3"})


@pytest.mark.parametrize("early", [False, True])
def test_rows_that_tell_how_a_row_was_before_are_passed_over(bench: Bench, early: bool) -> None:  # noqa: FBT001
    bench.options |= {"op": "op"}
    sink = bench.sink()
    ready: list[Handle] = []
    changed = batch(("a", "old", 1, "update_preimage"), ("a", "new", 1, "+U"))
    for slot, some in enumerate((changed, batch((None, "x", 1, "-u")))):
        attempt = sink.begin_transaction(bench.context(slot=slot, early=early))
        sink.write(attempt, some)
        handle = sink.pre_commit(attempt)
        assert handle is not None
        ready.append(handle)
    sink.rehearse(ready, {})
    assert list(sink.commit_many(ready)) == [Committed(), Committed()]
    assert bench.seen() == {"a": "new"}


@pytest.mark.parametrize("later_s", [2400, 3600])
@pytest.mark.parametrize("batches", [1, 2])
def test_the_newest_time_of_a_key_stays_also_where_clocks_go_back(later_s: int, batches: int) -> None:
    """In Berlin, the later row shows 02:10, or once more 02:30: executors get times in the session's zone."""
    first = dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC)
    times = pa.array([first, first + dt.timedelta(seconds=later_s)], pa.timestamp("us", "Europe/Berlin"))
    several = pa.record_batch({"key": pa.array(["k", "k"]), "place": pa.array([0, 1]), "at": times})
    choice = Choice(Columns(key=("key",), sequence="at"))
    chosen: list[int] = []
    for begin in range(0, 2, 2 // batches):
        rows, _, refused = choice.choose(several.slice(begin, 2 // batches), lambda _: ())
        assert refused == []
        chosen += rows.rows.column("place").to_pylist()
    assert chosen[-1] == 1
    assert len(chosen) == batches


def test_a_sequence_that_does_not_decide_is_refused(bench: Bench) -> None:
    bench.options["sequence"] = "at"
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context())
    with pytest.raises(RecordRefusedError, match=r"the key a is there twice"):
        sink.write(attempt, batch(("a", "v1", 1), ("a", "v2", 1)))


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({"key": "id"}, {"key": "string"}, "the query has no such column: it has key"),
        ({"key": "key"}, {"key": "double"}, "double, which cannot be a key"),
        ({"key": "key"}, {"key": "binary"}, "binary, which cannot be a key"),
        ({"key": "key"}, {"key": "struct<a:int>"}, "cannot be a key"),
        ({"key": "key", "sequence": "at"}, {"key": "int", "at": "float"}, "cannot be a sequence"),
        ({"key": "key", "op": "op"}, {"key": "int", "op": "int"}, "cannot be an op"),
        ({"key": "key", "op": "key"}, {"key": "string"}, "its key or sequence, too"),
        ({"key": "key"}, {"key": "int", "onceonly.key": "int"}, "begins with onceonly."),
    ],
)
def test_columns_that_cannot_mean_it_are_refused_by_name(
    options: Mapping[str, str], columns: Mapping[str, str], said: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Columns.of(
            {"key": (options["key"],), "sequence": None, "op": None, **_rest(options)}, "the sink x"
        ).check(columns, "the sink x")
    assert said in raised.value.what


def _rest(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name != "key"}


# --- books ------------------------------------------------------------------------------------------------------


def test_what_was_given_up_is_written_by_the_next_try_even_where_a_late_driver_goes_on(bench: Bench) -> None:
    handle = bench.staged(("a", "1"))
    sink = bench.sink()
    real = sink.put  # type: ignore[attr-defined]

    def interrupted(*given: Any) -> Any:  # noqa: ANN401  whatever put takes
        sink.put = real  # type: ignore[attr-defined]
        other = bench.sink()
        other.abort(handle)
        assert isinstance(other.commit(handle), Lost)
        return real(*given)

    sink.put = interrupted  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError):
        sink.commit(handle)
    assert isinstance(bench.sink().commit(handle), Lost)
    bench.committed(("a", "1"), index=2)
    assert bench.seen() == {"a": "1"}


def test_a_target_that_forgets_while_the_query_runs_takes_no_further_epoch(bench: Bench) -> None:
    sink = bench.sink()
    sink.commit(bench.staged(("a", "1"), epoch=4))
    with sink._database() as db, db:  # type: ignore[attr-defined]
        db.execute("DELETE FROM books")
        db.execute("UPDATE generations SET newest = 2")
    handle = bench.staged(("b", "1"), epoch=5)
    for _ in range(2):
        with pytest.raises(TargetBehindError, match="chk-4"):
            sink.commit(handle)


@pytest.mark.parametrize("early", [False, True])
def test_a_target_that_forgets_before_the_first_decision_of_a_run_takes_no_epoch(
    bench: Bench,
    early: bool,  # noqa: FBT001
) -> None:
    bench.committed(("a", "1"), epoch=4)
    facts = bench.sink().check(query_context())
    handle = bench.staged(("b", "1"), epoch=5, facts=facts, early=early)
    bench.sink().rehearse([handle], facts)
    with bench.sink()._database() as db, db:  # type: ignore[attr-defined]
        db.execute("UPDATE generations SET newest = 2")
    with pytest.raises(TargetBehindError, match="has forgotten chk-4"):
        bench.sink().rehearse([handle], facts)


def test_a_target_that_went_back_stops_the_next_start(bench: Bench) -> None:
    handles = [bench.committed(("a", str(epoch)), epoch=epoch) for epoch in range(3)]
    sink = bench.sink()
    sink.look_back(query_context(), 2, handles[-1:])
    assert sink.newest_epoch(query_context()) == 2
    with sink._database() as db, db:  # type: ignore[attr-defined]
        db.execute("DELETE FROM books WHERE name >= '2'")
        db.execute("UPDATE generations SET newest = 1")
    with pytest.raises(TargetBehindError, match="ends at chk-1"):
        sink.look_back(query_context(), 2, handles[-1:])
    bench.sink(**{behind.OPTION: behind.GO_ON}).look_back(query_context(), 2, handles[-1:])
    with sink._database() as db, db:  # type: ignore[attr-defined]
        db.execute("DELETE FROM generations")
    assert sink.newest_epoch(query_context()) is None
    with pytest.raises(TargetBehindError, match="holds none"):
        sink.look_back(query_context(), 2, handles[-1:])


@pytest.mark.parametrize(
    ("newest", "error", "said"),
    [
        (2, TargetBehindError, "an older dump was restored"),
        (
            3,
            TargetBehindError,
            "come to chk-3 without .* an older checkpoint was restored, .* a part of the books is gone",
        ),
        (13, TargetBehindError, "come to chk-13 without"),
        (
            14,
            LogError,
            "holds epochs up to chk-14: an older checkpoint was restored, or a copy of it is in use",
        ),
    ],
)
def test_an_older_checkpoint_is_not_taken_for_an_older_target(
    bench: Bench, newest: int, error: type[OnceonlyError], said: str
) -> None:
    handle, sink = bench.committed(("a", "1"), epoch=3), bench.sink()
    with sink._database() as db, db:  # type: ignore[attr-defined]
        db.execute("DELETE FROM books")
        db.execute("UPDATE generations SET newest = ?", (newest,))
    with pytest.raises(error, match=said):
        sink.look_back(query_context(), 3, [handle])


def test_a_row_that_the_target_refuses_after_the_decision_leaves_it_pending_and_named(bench: Bench) -> None:
    handle = bench.staged(("a", "1"), ("b", "poison"))
    with pytest.raises(RecordRefusedError, match=r"the key b: it is poison"):
        bench.sink().commit(handle)
    assert [each.is_open for each in bench.sink().recover(query_context())] == [True]


# --- promises ---------------------------------------------------------------------------------------------------


def test_at_least_once_rows_go_out_at_once_and_nothing_is_staged(bench: Bench) -> None:
    sink = bench.sink(**{"onceonly.guarantee": "at-least-once"})
    attempt = sink.begin_transaction(bench.context(guarantee=Guarantee.AT_LEAST_ONCE))
    sink.write(attempt, batch(("a", "1"), ("a", "2")))
    assert bench.seen() == {"a": "2"}
    assert sink.pre_commit(attempt) is None
    assert list(Path(bench.options["staging"]).rglob("*")) == []


def test_large_rows_are_found_without_a_look_at_each_row() -> None:
    looks: list[int] = []

    class Rows:
        def __init__(self, sizes: list[int]) -> None:
            self.num_rows, self._sizes = len(sizes), sizes

        @property
        def nbytes(self) -> int:
            looks.append(self.num_rows)
            return sum(self._sizes)

        def slice(self, first: int, count: int | None = None) -> Rows:
            return Rows(self._sizes[first:] if count is None else self._sizes[first : first + count])

    small: Any = Rows([10] * 10_000)
    assert list(larger(small, 60_000)) == []
    assert len(looks) < 10
    batch = pa.RecordBatch.from_pydict({"text": ["x" * size for size in (1, 5000, 1, 1, 1, 7000, 1)]})
    assert [row for row, size in larger(batch, 4000) if size > 4000] == [1, 5]
    assert list(larger(batch.slice(0, 0), -1)) == []
