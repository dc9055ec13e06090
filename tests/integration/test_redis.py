"""The Redis sink on a real server: late writers, deleted keys, crashes of the server, and what each refusal says."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import resource
import shutil
import uuid
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest
import redis as client
from keyed_bench import KeyedBench
from test_conformance_redis import hashes

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    TargetBehindError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.families.keyed import KeyedRows
from onceonly.families.staged.sink import named
from onceonly.model import AlreadyCommitted, Committed, Guarantee
from onceonly.ports import QueryContext
from onceonly.sinks.redis import RedisSink, scripts, target
from onceonly_proof.conformance.world import wait_for
from onceonly_proof.embedded import redis as embedded
from onceonly_proof.embedded.redis import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onceonly.model import Handle


pytestmark = pytest.mark.integration
CONTEXT = QueryContext(
    query="q",
    sink="redis",
    guarantee=Guarantee.EXACTLY_ONCE,
    columns=(("key", "string"), ("value", "string")),
)


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


class Bench(KeyedBench[RedisSink]):
    """A query's sinks on one server, under a prefix of its own."""

    def __init__(self, server: EmbeddedRedis, folder: Path, **options: str) -> None:
        self.server = server
        own = {"url": server.url, "key": "key", "prefix": f"{uuid.uuid4().hex}:", "staging": str(folder)}
        super().__init__(RedisSink, {**own, **options})

    def seen(self) -> dict[str, str]:
        return {key: row["value"] for key, row in hashes(self.options).items()}

    def raw(self) -> closing[Any]:
        return closing(client.Redis.from_url(self.server.url, decode_responses=True))


@pytest.fixture
def bench(shared: EmbeddedRedis, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(shared, tmp_path)
    yield made
    made.close()


def rows(**values: str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": list(values), "value": list(values.values())},
        schema=pa.schema([("key", pa.string()), ("value", pa.string())]),
    )


def ops(**values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": list(values), "value": ["v"] * len(values), "op": list(values.values())}
    )


def sparse(**values: tuple[int, str | None, str | None, str]) -> pa.RecordBatch:
    n, value, more, op = zip(*values.values(), strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "key": list(values),
            "n": n,
            "value": pa.array(value, pa.string()),
            "more": pa.array(more, pa.string()),
            "op": op,
        }
    )


# --- keys and versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
def test_a_writer_of_an_older_epoch_that_wakes_up_late_changes_nothing(bench: Bench, early: bool) -> None:  # noqa: FBT001
    late = bench.sink()
    attempt = late.begin_transaction(bench.context(5, early=early))
    if not early:
        late.write(attempt, rows(a="of 5", c="of 5"))
        waiting = late.pre_commit(attempt)
    bench.committed(rows(a="of 6", b="of 6"), epoch=6, early=early)
    if early:
        with pytest.raises(WriteFailedError, match="later epoch"):
            late.write(attempt, rows(a="of 5", c="of 5"))
    else:
        assert waiting is not None
        late.commit(waiting)
    assert bench.seen() == {"a": "of 6", "b": "of 6", "c": "of 5"}


def test_a_replay_changes_nothing_and_a_row_replaces_all_fields(bench: Bench) -> None:
    bench.committed(rows(a="1", b="1"), epoch=1)
    handle = bench.committed(rows(a=None, b="2"), epoch=2)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert {key: row.get("value") for key, row in hashes(bench.options).items()} == {"a": None, "b": "2"}


def test_a_deleted_key_refuses_who_is_late_and_is_forgotten_in_the_end(bench: Bench) -> None:
    bench.options |= {"op": "op", "tombstones": "1 hour"}
    bench.committed(ops(a="c", b="c"), epoch=1)
    bench.committed(ops(a="d", b="u"), epoch=3)
    late = bench.sink()
    with pytest.raises(WriteFailedError, match="later epoch"):
        late.write(late.begin_transaction(bench.context(2, early=True)), ops(a="u"))
    assert set(bench.seen()) == {"b"}
    with bench.raw() as raw:
        assert 3_500_000 < raw.pttl(bench.options["prefix"] + "a") <= 3_600_000
        assert raw.pttl(bench.options["prefix"] + "b") == -1
    bench.committed(ops(a="c"), epoch=4)
    with bench.raw() as raw:
        assert raw.pttl(bench.options["prefix"] + "a") == -1
    assert set(bench.seen()) == {"a", "b"}


def test_tombstones_expire(bench: Bench) -> None:
    bench.options |= {"op": "op", "tombstones": "50 ms"}
    bench.committed(ops(a="d"), epoch=1)
    with bench.raw() as raw:
        assert wait_for(lambda: not raw.exists(bench.options["prefix"] + "a"))


def test_epochs_larger_than_a_script_are_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "KEYS_MAX", 7)
    monkeypatch.setattr(target, "ROWS_MAX", 7)
    monkeypatch.setattr(target, "_SCRIPTS_MAX", 3)
    many = {f"k{number}": str(number) for number in range(500)}
    handles = [bench.staged(rows(**dict(list(many.items())[slot::4])), slot=slot) for slot in range(4)]
    sink = bench.sink()
    sink.rehearse(handles, {})
    assert set(sink.commit_many(handles)) == {Committed()}
    assert bench.seen() == many


@pytest.mark.parametrize("has_older", [False, True])
def test_rows_of_one_script_keep_what_they_lack_apart(bench: Bench, has_older: bool) -> None:  # noqa: FBT001
    bench.options |= {"op": "op", "sequence": "n"}
    if has_older:
        bench.committed(sparse(b=(0, "old", "old", "c"), d=(1, "old", None, "c")), epoch=1)
    some = sparse(
        y=(2, "x", None, "r"), a=(3, None, "ä", "c"), b=(4, "b", None, "c"), c=(5, "c", "c", "d"),
        d=(6, "", "ddd", "u"), e=(7, None, None, "c"),
    )  # fmt: skip
    bench.committed(some, epoch=2)
    held = {key: (row.get("value"), row.get("more")) for key, row in hashes(bench.options).items()}
    assert held == {
        "y": ("x", None), "a": (None, "ä"), "b": ("b", None), "d": ("", "ddd"), "e": (None, None),
    }  # fmt: skip


def test_of_a_key_that_comes_twice_at_once_the_later_row_stands_alone(bench: Bench) -> None:
    twice = pa.RecordBatch.from_pydict({"key": ["a", "a"], "value": ["v", "w"], "more": ["m", None]})
    sink = bench.sink()
    sink.write(sink.begin_transaction(bench.context(guarantee=Guarantee.AT_LEAST_ONCE)), twice)
    assert {key: (row["value"], row.get("more")) for key, row in hashes(bench.options).items()} == {
        "a": ("w", None)
    }


def test_a_hash_that_has_no_version_is_replaced_whole(bench: Bench) -> None:
    with bench.raw() as raw:
        raw.hset(bench.options["prefix"] + "b", mapping={"theirs": "x"})
        bench.committed(rows(a="1", b="2"))
        assert "theirs" not in raw.hgetall(bench.options["prefix"] + "b")
    assert bench.seen() == {"a": "1", "b": "2"}


def test_scripts_are_cut_by_their_bytes_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "BYTES_MAX", 20)
    made: list[int] = []
    sink = bench.sink()
    real = sink._target._run

    def seen(script: str, calls: Sequence[Any]) -> list[Any]:
        made.extend(len(keys) for keys, _ in calls)
        return real(script, calls)

    sink._target._run = seen  # type: ignore[method-assign]
    many = {"a": "1", "b": "2", "c": "3" * 100, "d": "", "e": "5", "f": "6"}
    sink.write(sink.begin_transaction(bench.context(early=True)), rows(**many))
    assert made == [1, 1, 1, 3]
    assert bench.seen() == many


def test_rows_with_many_columns_fit(bench: Bench) -> None:
    for count in (1998, 1999, 2000, 10_000):
        wide = {"key": ["a"], "value": ["v"], **{f"c{n}": [str(n)] for n in range(count)}}
        bench.committed(pa.RecordBatch.from_pydict(wide), epoch=count)
        [row] = hashes(bench.options).values()
        assert len(row) == count + 3
        assert all(row[f"c{n}"] == str(n) for n in range(count))


def test_a_key_of_a_query_that_came_later_is_found_before_the_decision(bench: Bench) -> None:
    handle = bench.staged(rows(a="older", b="older"), epoch=3)
    facts = bench.sink().check(replace(CONTEXT, query="newer"))
    bench.committed(rows(a="newer"), query="newer", facts=facts)
    with pytest.raises(ConfigurationError, match="was written by another query"):
        bench.sink().rehearse([handle], {})
    assert bench.seen() == {"a": "newer"}


def test_where_the_books_are_gone_versions_go_on_above_those_of_the_rows(bench: Bench) -> None:
    for query in ("one", "two", "three"):
        facts = bench.sink().check(replace(CONTEXT, query=query))
        bench.committed(rows(a=query), epoch=5, query=query, facts=facts)
    with bench.raw() as raw:
        raw.delete(*raw.scan_iter(match=bench.options["prefix"] + "onceonly:books*"))
    handle = bench.staged(rows(a="four"))
    with pytest.raises(UnavailableError, match=r"the books .* were lost"):
        bench.sink().rehearse([handle], {})
    assert bench.sink().check(CONTEXT)["generation"] == 4
    bench.committed(rows(a="four"))
    assert bench.seen() == {"a": "four"}


def test_every_type_has_a_text(bench: Bench) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
    values = {
        "flag": pa.array([True]), "small": pa.array([-1], pa.int8()), "big": pa.array([2**62], pa.int64()),
        "real": pa.array([1.5]), "nan": pa.array([float("nan")]), "price": pa.array([Decimal("10.50")]),
        "day": pa.array([at.date()]), "at": pa.array([at], pa.timestamp("us", "UTC")),
        "local": pa.array([at.replace(tzinfo=None)], pa.timestamp("us")), "raw": pa.array([b"abc"]),
        "tags": pa.array([["a", None]]), "both": pa.array([{"n": 1, "d": at.date(), "raw": b"\xff"}]),
        "pairs": pa.array([[("k", 1.0)]], pa.map_(pa.string(), pa.float64())), "none": pa.array([None], pa.string()),
        "unset": pa.array([None], pa.float64()), "long": pa.array(["l"], pa.large_string()),
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict({"key": pa.array(["a"]), "value": pa.array(["v"]), **values})
    bench.committed(batch)
    row = hashes(bench.options)["a"]
    assert {name: row.get(name) for name in values} == {
        "flag": "true", "small": "-1", "big": str(2**62), "real": "1.5", "nan": "nan", "price": "10.50",
        "day": "2026-01-02", "at": "2026-01-02T03:04:05.000006Z", "local": "2026-01-02T03:04:05.000006",
        "raw": "abc", "tags": '["a", null]', "both": '{"n": 1, "d": "2026-01-02", "raw": "/w=="}',
        "pairs": '{"k": 1.0}', "none": None, "unset": None, "long": "l",
    }  # fmt: skip


def test_times_are_in_utc_whatever_the_zone_of_the_session(bench: Bench) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
    for zone in ("UTC", "Europe/Berlin"):
        times = pa.array([at], pa.timestamp("us", zone))
        nested = pa.array([[at]], pa.list_(pa.timestamp("us", zone)))
        batch = pa.RecordBatch.from_pydict({"key": times, "value": times, "more": nested})
        bench.committed(batch, epoch=len(zone))
        [(key, row)] = hashes(bench.options).items()
        assert key == "2026-01-02 03:04:05.000006Z"
        assert row["value"] == "2026-01-02T03:04:05.000006Z"
        assert row["more"] == '["2026-01-02T03:04:05.000006Z"]'


@pytest.mark.parametrize(
    "kind", ["interval day to second", "variant", "array<void>", "map<string,interval year>"]
)
def test_a_column_without_a_text_is_refused_by_name(bench: Bench, kind: str) -> None:
    with pytest.raises(ConfigurationError, match="The column odd is"):
        bench.sink().check(replace(CONTEXT, columns=(("key", "string"), ("odd", kind))))


# --- the server -------------------------------------------------------------------------------------------------


def test_a_server_that_is_killed_while_an_epoch_is_applied_gets_the_rest(tmp_path: Path) -> None:
    with EmbeddedRedis() as server:
        bench = Bench(server, tmp_path)
        many = {f"k{number}": str(number) for number in range(3000)}
        handle = bench.staged(rows(**many))
        sink = bench.sink(timeout="5 seconds")
        real, calls = sink._target._run, 0

        def killed(script: str, some: Sequence[Any]) -> list[Any]:
            nonlocal calls
            calls += 1
            if calls == 3:
                server.kill()
            return real(script, some)

        sink._target._run = killed  # type: ignore[method-assign, assignment]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, "_SCRIPTS_MAX", 1)
            with pytest.raises(UnavailableError, match="does not answer"):
                sink.commit(handle)
        server.start()
        assert 0 < len(bench.seen()) < 3000
        assert sink.commit(handle) == Committed()
        assert bench.seen() == many
        assert bench.sink().commit(handle) == AlreadyCommitted()


def test_a_server_that_keeps_nothing_is_told_of_and_noticed_when_it_was_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedRedis(settings={"appendonly": "no"}) as server:
        bench = Bench(server, tmp_path)
        with caplog.at_level(logging.WARNING, "onceonly"):
            bench.sink().check(CONTEXT)
        assert "keeps nothing through a restart" in caplog.text
        sink = bench.sink()
        first = bench.staged(rows(a="1"), epoch=1)
        assert sink.commit(first) == Committed()
        server.kill()
        server.start()
        second = bench.staged(rows(b="2"), epoch=2)
        with pytest.raises(TargetBehindError, match="forgotten chk-1"):
            sink.commit(second)
        with pytest.raises(TargetBehindError, match="holds none of its epochs"):
            bench.sink().look_back(CONTEXT, 1, [first])


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Bench]:
    """A server that has forgotten, once it was killed, all that came behind chk-1."""
    with EmbeddedRedis(tmp_path / "server", settings={"appendonly": "no"}) as server:
        made = Bench(server, tmp_path / "staging")
        made.committed(rows(a="1"), epoch=1)
        with made.raw() as raw:
            raw.save()
        yield made
        made.close()


def anew(bench: Bench) -> None:
    bench.server.kill()
    bench.server.start()


def test_rows_that_the_server_loses_while_an_epoch_is_applied_are_put_again(
    forgetful: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, handle = forgetful.sink(), forgetful.staged(rows(a="2", b="2"), epoch=2)
    with monkeypatch.context() as patch:
        real = sink.note

        def late(*args: Any, **more: Any) -> int | None:  # noqa: ANN401  those of note
            anew(forgetful)
            return real(*args, **more)

        patch.setattr(sink, "note", late)
        with pytest.raises(UnavailableError, match="while rows of chk-2 were written"):
            sink.commit(handle)
        assert forgetful.seen() == {"a": "1"}
    assert sink.commit(handle) == Committed()
    assert forgetful.seen() == {"a": "2", "b": "2"}


def test_rows_seen_early_that_the_server_loses_are_written_again_or_told_of(
    forgetful: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    sink, handle = forgetful.sink(), forgetful.staged(rows(b="2"), epoch=2, early=True)
    sink.rehearse([handle], {})
    anew(forgetful)
    with pytest.raises(UnavailableError, match="lost rows of chk-2 before it was decided"):
        sink.rehearse([handle], {})
    with pytest.raises(TargetBehindError, match=r"lost rows of chk-2 .* key b"):
        sink.commit(handle)
    assert not sink.known(named([handle]))
    with caplog.at_level(logging.WARNING, "onceonly"):
        assert forgetful.sink(**{"onceonly.target.behind": "go-on"}).commit(handle) == Committed()
    assert "lost rows of chk-2" in caplog.text


def test_a_server_that_is_started_anew_and_has_all_rows_seen_early_goes_on(tmp_path: Path) -> None:
    with EmbeddedRedis(settings={"appendfsync": "always"}) as server:
        bench = Bench(server, tmp_path)
        bench.options |= {"op": "op"}
        handle = bench.staged(ops(a="c", b="d"), early=True)
        anew(bench)
        bench.sink().rehearse([handle], {})
        assert bench.sink().commit(handle) == Committed()


def test_an_older_dump_that_is_restored_stops_the_next_start(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "server", settings={"appendonly": "no"}) as server:
        bench = Bench(server, tmp_path / "staging")
        handles = [bench.committed(rows(a=str(epoch)), epoch=epoch) for epoch in range(2)]
        with bench.raw() as raw:
            raw.save()
        shutil.copy(tmp_path / "server" / "dump.rdb", tmp_path / "yesterday.rdb")
        handles.append(bench.committed(rows(a="2"), epoch=2))
        bench.sink().look_back(CONTEXT, 2, handles[-1:])
        server.kill()
        shutil.copy(tmp_path / "yesterday.rdb", tmp_path / "server" / "dump.rdb")
        server.start()
        with pytest.raises(TargetBehindError, match="ends at chk-1"):
            bench.sink().look_back(CONTEXT, 2, handles[-1:])


def test_what_is_noted_of_witnesses_is_noted_twice_and_not_over_what_another_has_noted(bench: Bench) -> None:
    # As on a cluster, where the same is sent again when its answer was lost.
    target = bench.sink()._target

    def note(had: str, gets: str) -> bytes:
        mark = hashlib.sha1(had.encode(), usedforsecurity=False).hexdigest()
        word: bytes = target.book("q", scripts.NOTE, "q/redis", 1, -1, 9, "", mark, gets, "a")[0]
        return word

    assert [note("", "first"), note("", "first")] == [b"noted", b"noted"]
    assert note("", "other") == b"again"
    assert note("first", "second") == b"noted"
    assert note("", "first") == b"again"
    assert target.witnessed("q", "redis") == ("second", "")


def test_the_names_of_old_epochs_are_forgotten_and_those_of_others_are_not(bench: Bench) -> None:
    other = bench.sink()
    theirs = bench.staged(rows(z="1"), epoch=0, query="other")
    other.commit(theirs)
    handles = [bench.committed(rows(a=str(epoch)), epoch=epoch) for epoch in range(13)]
    assert bench.sink().known(named(handles)) == {handle.transaction for handle in handles[2:]}
    assert bench.sink().known(named([theirs])) == {theirs.transaction}


def test_each_query_has_a_hash_of_the_books_of_its_own(bench: Bench) -> None:
    jobs = [f"batch-job-{number:012x}" for number in range(2)]
    handles = {}
    for job in jobs:
        facts = bench.sink().check(replace(CONTEXT, query=job))
        handles[job] = bench.committed(rows(a=job), query=job, facts=facts)
    books = bench.options["prefix"] + "onceonly:books"
    with bench.raw() as raw:
        assert raw.hkeys(books) == ["generation"]
        assert set(raw.scan_iter(match=f"{books}*")) == {books, *(f"{books}:{job}" for job in jobs)}
    for job, handle in handles.items():
        bench.sink().look_back(replace(CONTEXT, query=job), 0, [handle])
        assert bench.sink().commit(handle) == AlreadyCommitted()
    assert bench.sink().known(named(handles.values())) == {each.transaction for each in handles.values()}


def test_what_an_older_version_noted_is_known(bench: Bench) -> None:
    bench.sink().check(CONTEXT)
    done, void, waiting = (bench.staged(rows(a=str(epoch)), epoch=epoch) for epoch in (3, 3, 4))
    with bench.raw() as raw:  # all in one hash; the sink's own was begun by a start that has died
        own = {
            "newest:q/redis": 3,
            "generation:q/redis": 7,
            done.transaction: "q/redis",
            void.transaction: "void",
        }
        raw.hset(bench.options["prefix"] + "onceonly:books", mapping={"generation": 7, **own})
    sink = bench.sink()
    sink.look_back(CONTEXT, 3, [done])
    assert sink.known(named([done, void, waiting])) == {done.transaction}
    assert (sink.newest("q", "redis"), sink.generation("q", "redis"), sink.generations()) == (3, 7, 7)
    assert sink.void(named([done, void])) == {void.transaction}
    assert [sink.commit(done), sink.commit(waiting)] == [AlreadyCommitted(), Committed()]
    assert sink.generation("other", "redis") == 8


def test_what_was_given_up_is_forgotten_in_the_end(bench: Bench) -> None:
    handle = bench.staged(rows(a="1"))
    assert bench.sink().void(named([handle])) == {handle.transaction}
    with pytest.raises(UnavailableError, match="given up while it was applied"):
        bench.sink().commit(handle)
    bench.committed(rows(a="2"), epoch=12)
    with bench.raw() as raw:
        assert not raw.hexists(bench.options["prefix"] + "onceonly:books:q", handle.transaction)


def said(bench: Bench, **options: str) -> OnceonlyError:
    with pytest.raises(OnceonlyError) as raised:
        bench.sink(**options).check(CONTEXT)
    return raised.value


def test_a_server_that_begins_to_throw_keys_away_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    with EmbeddedRedis() as server:
        bench = Bench(server, tmp_path)
        sink = bench.sink()
        facts = sink.check(CONTEXT)
        assert ["(appendfsync everysec): a power cut takes the last second" in each for each in told()] == [
            True
        ]
        with bench.raw() as raw:
            raw.execute_command("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
        assert sink.refresh(facts) == facts
        assert told() == []  # it was asked just now
        monkeypatch.setattr(target, "LOOK_AGAIN_S", -1.0)
        sink.refresh(facts)
        assert ["throws keys away" in each for each in told()] == [True]
        sink.refresh(facts)
        assert told() == []
        with bench.raw() as raw:
            raw.execute_command("CONFIG", "SET", "appendonly", "no", "save", "60 1")
        sink.refresh(facts)
        assert ["in memory alone (appendonly is not set)" in each for each in told()] == [True]


def test_a_password_that_is_changed_while_the_query_runs_is_read_at_the_next_connect(
    bench: Bench, tmp_path: Path
) -> None:
    user, secret = f"u{uuid.uuid4().hex}", tmp_path / "password"
    with bench.raw() as raw:
        raw.execute_command("ACL", "SETUSER", user, "on", ">old", "~*", "+@all")
        secret.write_text("old\n", encoding="utf-8")
        bench.options |= {"user": user, "password.file": str(secret)}
        driver = bench.sink()
        first, second, third = (bench.staged(rows(a=str(epoch)), epoch=epoch) for epoch in range(3))
        assert driver.commit(first) == Committed()
        raw.execute_command("ACL", "SETUSER", user, "resetpass", ">new")
        raw.execute_command("CLIENT", "KILL", "USER", user)
        secret.write_text("new\n", encoding="utf-8")
        assert driver.commit(second) == Committed()
        raw.execute_command("CLIENT", "KILL", "USER", user)
        secret.unlink()
        for _ in range(2):  # and nobody goes on without it
            with pytest.raises(ConfigurationError, match="cannot be read"):
                driver.commit(third)
        secret.write_text("new\n", encoding="utf-8")
        assert driver.commit(third) == Committed()
        raw.execute_command("ACL", "DELUSER", user)


def test_each_refusal_of_the_server_has_its_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedRedis(
        settings={"requirepass": "right", "maxmemory-policy": "allkeys-lru", "maxmemory": "40mb"}
    ) as server:
        bench = Bench(server, tmp_path, password="right")  # noqa: S106  of this server
        with caplog.at_level(logging.WARNING, "onceonly"):
            bench.sink().check(CONTEXT)
        assert "throws keys away" in caplog.text
        for wrong in ({"password": "wrong"}, {"password": ""}, {"user": "nobody"}):
            error = said(bench, **wrong)
            assert isinstance(error, ConfigurationError), wrong
            assert "does not let the user" in error.what
            assert "right" not in str(error)
        raw: Any
        with closing(client.Redis.from_url(server.url, password="right")) as raw:  # noqa: S106
            raw.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "+@read", "+info", "+ping")
            error = said(bench, user="reader", password="pw")  # noqa: S106
            assert isinstance(error, ConfigurationError)
            assert "does not permit the user reader" in error.what
            assert "ACL SETUSER reader" in error.next_step
            granted = error.next_step.removeprefix("grant it: ").split()
            raw.execute_command(*granted)
            facts = bench.sink(user="reader", password="pw").check(CONTEXT)  # noqa: S106
            sink = bench.sink(user="reader", password="pw")  # noqa: S106
            attempt = sink.begin_transaction(replace(bench.context(), facts=facts))
            sink.write(attempt, rows(a="1"))
            handle = sink.pre_commit(attempt)
            assert handle is not None
            sink.rehearse([handle], {})
            assert sink.commit(handle) == Committed()
            for lacking in (
                "del",
                "exists",
                "hdel",
                "hset",
            ):  # of which the decision would be the first to hear
                raw.execute_command("ACL", "SETUSER", "reader", f"-{lacking}")
                error = said(bench, user="reader", password="pw")  # noqa: S106
                assert isinstance(error, ConfigurationError)
                assert "does not permit the user reader" in error.what
                raw.execute_command(*granted)
            assert not raw.keys("*tried*")
            raw.execute_command("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "100kb")
            error = _error(lambda: bench.sink().put(*_one()))
            assert isinstance(error, UnavailableError)
            assert "used up its maxmemory" in error.what
            error = _error(lambda: bench.sink().put(*_one(key="a")))  # which is there
            assert "used up its maxmemory" in error.what
            assert raw.hget(bench.options["prefix"] + "a", "value") == b"1"
            raw.execute_command("CONFIG", "SET", "maxmemory", "0")
            raw.execute_command("REPLICAOF", "127.0.0.1", "1")
            assert "is a replica" in said(bench).what
            error = _error(lambda: bench.sink().put(*_one()))
            assert isinstance(error, UnavailableError)
            assert "has become a replica" in error.what


def test_a_value_longer_than_the_server_takes_is_refused_before_the_vote(tmp_path: Path) -> None:
    with EmbeddedRedis(settings={"proto-max-bulk-len": "1mb"}) as server:
        bench = Bench(server, tmp_path)
        sink = bench.sink()
        attempt = sink.begin_transaction(bench.context(gives_back=True))
        [refused] = sink.write(attempt, rows(a="x" * (1 << 20), b="x" * ((1 << 20) + 1)))
        assert (refused.row, refused.code) == (1, "TOO_LARGE")
        assert "proto-max-bulk-len" in refused.why
        handle = sink.pre_commit(attempt)
        assert handle is not None
        assert sink.commit(handle) == Committed()
        assert list(bench.seen()) == ["a"]


def test_a_server_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    server = EmbeddedRedis()
    server._port = 1
    error = said(Bench(server, tmp_path))
    assert error.restartable
    assert "does not answer" in error.what


def test_a_key_of_somebody_else_is_found_before_the_decision(bench: Bench) -> None:
    with bench.raw() as raw:
        raw.set(bench.options["prefix"] + "b", "theirs")
    handle = bench.staged(rows(a="1", b="1"))
    with pytest.raises(RecordRefusedError, match=r"b on .* is a string of somebody else"):
        bench.sink().rehearse([handle], {})
    with pytest.raises(ConfigurationError, match="something else under the key"):
        bench.sink().commit(handle)


def test_the_key_of_the_books_is_no_row(bench: Bench) -> None:
    sink = bench.sink()
    for own in ("onceonly:books", "onceonly:books:q"):
        with pytest.raises(RecordRefusedError, match="where the sink notes"):
            sink.write(sink.begin_transaction(bench.context()), rows(**{own: "x"}))


def test_a_key_named_as_a_witness_of_a_cluster_is_a_row_on_one_server(bench: Bench) -> None:
    bench.committed(rows(**{"onceonly:witness:1": "x"}))
    with bench.raw() as raw:
        assert raw.hget(bench.options["prefix"] + "onceonly:witness:1", "value") == "x"


def _one(key: str = "z") -> tuple[KeyedRows, int]:
    return KeyedRows(keys=[key], deleted=[False], rows=rows(**{key: "x" * 1000})), 2**62


def _error(action: Callable[[], object]) -> OnceonlyError:
    with pytest.raises(OnceonlyError) as raised:
        action()
    return raised.value


# --- a server without room --------------------------------------------------------------------------------------


End: TypeAlias = "Callable[[Any, EmbeddedRedis], Callable[[], None]]"
"""Takes a server's room away; gives what makes some again."""


def is_full(raw: Any, server: EmbeddedRedis) -> Callable[[], None]:  # noqa: ANN401  the client
    raw.execute_command("CONFIG", "SET", "maxmemory", str(raw.info("memory")["used_memory"] + 200_000))
    return lambda: raw.execute_command("CONFIG", "SET", "maxmemory", "0")


def cannot_save(raw: Any, server: EmbeddedRedis) -> Callable[[], None]:  # noqa: ANN401  as above
    """Let it save itself where it cannot, as on a full disk: something is in the place of its dump."""
    dump = server.directory / "dump.rdb"
    dump.mkdir()
    (dump / "in the way").touch()
    raw.execute_command("CONFIG", "SET", "save", "3600 1000000")
    raw.bgsave()
    wait_for(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "err")

    def save() -> None:
        shutil.rmtree(dump)
        raw.bgsave()
        wait_for(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "ok")

    return save


def cannot_append(raw: Any, server: EmbeddedRedis) -> Callable[[], None]:  # noqa: ANN401  as above
    """Let its log of writes take a little more and then nothing, as a full disk does."""
    log = sum(path.stat().st_size for path in server.directory.glob("appendonlydir/*.incr.aof"))
    none = resource.RLIM_INFINITY
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (log + 300_000, none))

    def append() -> None:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (none, none))
        wait_for(lambda: raw.info("persistence")["aof_last_write_status"] == "ok")

    return append


@pytest.fixture
def outlives_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose file may not grow hears of it as of a full disk, and is not ended by a signal."""
    program = tmp_path / "server-with-limits"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec '{embedded._binary()}' \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr(embedded, "_binary", lambda: str(program))


@pytest.mark.usefixtures("outlives_its_limit")
@pytest.mark.parametrize(
    ("end", "what", "remedy"),
    [
        (is_full, "has used up its maxmemory and throws nothing away", "give it more memory"),
        (cannot_save, "could not write its own disk, and takes no rows", "make room there"),
        (cannot_append, "could not write its own disk, and takes no rows", "make room there"),
    ],
)
def test_a_server_without_room_gets_the_rest_of_an_epoch_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: End, what: str, remedy: str
) -> None:
    monkeypatch.setattr(target, "ROWS_MAX", 10)
    monkeypatch.setattr(target, "_SCRIPTS_MAX", 1)
    some = rows(**{f"k{number}": "x" * 10_000 for number in range(100)})
    with EmbeddedRedis() as server, closing(client.Redis.from_url(server.url)) as raw:
        bench = Bench(server, tmp_path)
        bench.committed(rows(k1="before"))
        handle = bench.staged(some, epoch=1)
        driver = bench.sink()
        driver.rehearse([handle], {})
        mend = end(raw, server)
        for _ in range(2):
            error = _error(lambda: driver.commit(handle))
            assert isinstance(error, UnavailableError)
            assert what in error.what
            assert remedy in error.next_step
            assert "goes on by itself" in error.next_step
        assert len(bench.seen()) < 100
        mend()
        assert driver.commit(handle) == Committed()
        assert driver.commit(handle) == AlreadyCommitted()
        assert bench.seen() == dict.fromkeys(some["key"].to_pylist(), "x" * 10_000)
        bench.close()


@pytest.mark.parametrize(
    ("end", "what"), [(is_full, "used up its maxmemory"), (cannot_save, "could not write its own disk")]
)
def test_a_server_without_room_is_told_of_before_the_first_record_and_to_executors(
    tmp_path: Path, end: End, what: str
) -> None:
    with EmbeddedRedis() as server, closing(client.Redis.from_url(server.url)) as raw:
        bench = Bench(server, tmp_path)
        context = bench.context(early=True)
        mend = end(raw, server)
        if end is is_full:
            raw.config_set("maxmemory", "1")
        error = said(bench)
        assert isinstance(error, UnavailableError)
        assert what in error.what
        sink = bench.sink()

        def write() -> Handle | None:
            attempt = sink.begin_transaction(context)
            sink.write(attempt, rows(a="1"))
            return sink.pre_commit(attempt)

        error = _error(write)
        assert isinstance(error, UnavailableError | WriteFailedError)
        assert what in error.what
        mend()
        handle = write()
        assert handle is not None
        assert sink.commit(handle) == Committed()
        assert bench.seen() == {"a": "1"}
        bench.close()
