"""Readers see what anybody sees: visible files and rows, what is left, and when each was there first."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from tests.unit.http_double import served

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly_proof.auditor import (  # fmt: skip
    Anomaly,
    DatabaseReader,
    FilesReader,
    Input,
    KafkaWatcher,
    LettersReader,
    LooksBehind,
    Orphan,
    PollingWatcher,
    Reader,
    SearchReader,
    Seen,
    audit,
    kafka,
    watching,
)
from onceonly_proof.auditor.globbing import GLOBBING
from onceonly_proof.auditor.search import HITS_MAX
from onceonly_proof.auditor.stored import StoredFilesReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ATTEMPT = "0123456789abcdef0123456789abcdef"


def put(folder: Path, name: str, *values: str, key: str = "k") -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"key": key, "value": value}) + "\n" for value in values))


# --- files ------------------------------------------------------------------------------------------------
def test_a_staged_file_that_a_recursive_pattern_takes_is_seen(tmp_path: Path) -> None:
    staged = tmp_path / "_onceonly" / "staging" / "q" / "x.json"
    staged.parent.mkdir(parents=True)
    staged.write_text('{"key":"k","value":"a"}\n')
    assert [row.value for row in FilesReader("files", tmp_path).rows()] == [b"a"]


def test_each_way_to_find_files_is_that_of_its_program(tmp_path: Path) -> None:
    for name in (
        "part-a.json", "day=1/b.json", ".c.json", "_onceonly/staging/q/d.json", "_onceonly/staging/q/.e.staged", "f.txt"
    ):  # fmt: skip
        put(tmp_path, name, name)
    found = {
        name: {row.place for row in FilesReader("files", tmp_path, find=find).rows()}
        for name, find in GLOBBING.items()
    }
    assert found == {
        "glob": {"part-a.json", "day=1/b.json", ".c.json", "_onceonly/staging/q/d.json"},
        "pyarrow": {"part-a.json", "day=1/b.json", "f.txt"},
    }
    assert [list(find(tmp_path / "not made yet")) for find in GLOBBING.values()] == [[], []]


def test_on_a_store_the_same_files_are_seen() -> None:
    files = {
        "out/part-a.json", "out/day=1/b.json", "out/_onceonly/staging/q/c.json", "out/_onceonly/staging/q/x.staged",
        "out/_SUCCESS", "out/.hidden.json", "out/day=1/.hidden/d.json",
    }  # fmt: skip

    def names(folder: str) -> list[str]:
        below = [
            file.removeprefix(f"{folder}/").partition("/") for file in files if file.startswith(f"{folder}/")
        ]
        return sorted({name + slash for name, slash, _ in below})

    reader = StoredFilesReader(
        "files", "out", names=names, read=lambda name: f'{{"value":"{name}"}}'.encode(), left=lambda _: []
    )
    assert {row.place for row in reader.rows()} == {
        "part-a.json",
        "day=1/b.json",
        "_onceonly/staging/q/c.json",
    }


def test_only_visible_files_are_read(tmp_path: Path) -> None:
    put(tmp_path, f"part-00003-00001-{ATTEMPT}-00000.json", "a", "b")
    put(tmp_path, "day=1/other.json", "c")
    for hidden in ("_onceonly/staging/q/files/x.staged", ".part.json", "_SUCCESS", "day=1/.hidden/x.json"):
        put(tmp_path, hidden, "no")
    reader = FilesReader("files", tmp_path)
    name = f"part-00003-00001-{ATTEMPT}-00000.json"
    assert list(reader.rows()) == [
        Seen("files", b"k", b"c", "day=1/other.json", 0),
        Seen("files", b"k", b"a", name, 0, f"3-1-{ATTEMPT}"),
        Seen("files", b"k", b"b", name, 1, f"3-1-{ATTEMPT}"),
    ]
    assert reader.orphans() == [Orphan("files", "staging file q/files/x.staged")]
    assert FilesReader("files", tmp_path, query="another").orphans() == []
    assert not isinstance(reader, LooksBehind)


def test_a_file_that_is_changed_is_read_again(tmp_path: Path) -> None:
    reader = FilesReader("files", tmp_path)
    assert list(reader.rows()) == []
    put(tmp_path, "a.json", "1")
    assert [row.value for row in reader.rows()] == [b"1"]
    put(tmp_path, "a.json", "1", "2")
    assert [row.value for row in reader.rows()] == [b"1", b"2"]
    (tmp_path / "a.json").unlink()
    assert list(reader.rows()) == []


def test_what_a_consumer_took_away_is_still_seen_and_a_file_that_comes_again_twice(tmp_path: Path) -> None:
    target, away = tmp_path / "out", tmp_path / "taken"
    reader = FilesReader("files", target, taken=away)
    put(target, "a.json", "1")
    before = list(reader.rows())
    away.mkdir()
    (target / "a.json").rename(away / "a.json")
    assert list(reader.rows()) == before
    put(target, "a.json", "1")
    assert [row.value for row in reader.rows()] == [b"1", b"1"]


def test_a_line_that_is_no_row_is_a_value_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"value":"x"}\n{"value":"tor\n[1]\n{"key":1}\n')
    rows = [(row.key, row.value) for row in FilesReader("files", tmp_path).rows()]
    assert rows == [(None, b"x"), (None, b'{"value":"tor'), (None, b"[1]"), (None, b'{"key":1}')]


# --- databases --------------------------------------------------------------------------------------------
@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE results (k TEXT, v TEXT)")
        db.execute("CREATE TABLE prepared (id TEXT)")
        db.executemany("INSERT INTO results VALUES (?, ?)", [("1", "a"), (None, "b")])
    return path


def test_a_query_gives_rows_by_the_names_of_its_columns(database: Path) -> None:
    query = 'SELECT v AS "VALUE", k AS "key", rowid AS "order", \'t\' AS place, NULL AS "transaction" FROM results'
    reader = DatabaseReader(
        "db", lambda: sqlite3.connect(database), query, prepared="SELECT id FROM prepared"
    )
    assert list(reader.rows()) == [Seen("db", b"1", b"a", "t", 1), Seen("db", None, b"b", "t", 2)]
    assert reader.orphans() == []
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("INSERT INTO prepared VALUES ('q-7')")
    assert reader.orphans() == [Orphan("db", "prepared transaction q-7")]


def test_a_query_without_a_value_is_refused(database: Path) -> None:
    with pytest.raises(ConfigurationError, match="none of them is named value"):
        list(DatabaseReader("db", lambda: sqlite3.connect(database), "SELECT k FROM results").rows())


# --- watching ---------------------------------------------------------------------------------------------
def test_a_watcher_notes_when_a_row_was_there_first(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "1")
    with PollingWatcher(FilesReader("files", tmp_path), poll_s=0.001) as watcher:
        assert watcher.wait_for(1, 10)
        between = time.time()
        put(tmp_path, "b.json", "2")
        assert watcher.wait_for(2, 10)
        (tmp_path / "a.json").unlink()
    first, second = watcher.seen()
    assert (first.value, second.value) == (b"1", b"2")
    assert (first.seen_s or 0) <= between <= (second.seen_s or 0)
    assert not watcher.wait_for(3, 0)


class Stubborn:
    """A reader whose target is away at first, and that gives half a reading before it fails again."""

    def __init__(self) -> None:
        self.readings = 0
        self.closed = threading.Event()

    def rows(self) -> Iterator[Seen]:
        self.readings += 1
        if self.readings == 1:
            raise sqlite3.OperationalError("away")
        yield Seen("db", None, b"1")
        if self.readings == 2:
            raise sqlite3.OperationalError("away again")
        yield Seen("db", None, b"2")

    def orphans(self) -> list[Orphan]:
        return []

    def close(self) -> None:
        self.closed.set()


def test_a_watcher_survives_what_it_looks_at_and_sees_each_row_once() -> None:
    reader = Stubborn()
    watcher = PollingWatcher(reader, poll_s=0.001)
    assert watcher.wait_for(2, 10)
    watcher.close()
    watcher.close()
    assert reader.closed.is_set()
    assert [row.value for row in watcher.seen()] == [b"1", b"2"]
    assert watcher.trouble == "OperationalError: away again"


def test_a_watcher_that_rests_looks_when_it_is_asked_to() -> None:
    reader = Stubborn()
    with PollingWatcher(reader, poll_s=600) as watcher:
        assert not watcher.look_now(0.0)
        for _ in range(3):
            assert watcher.look_now(10)
        assert 3 <= watcher.looks <= watcher.asked - 2


class Message:
    """A message of a consumer, or its news of an error."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset = offset
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._offset


class Consumer:
    """A consumer of an endless topic that gives two records a call, and then an error."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.is_closed = False

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        self.position += 2
        broken = KafkaError(KafkaError._TRANSPORT)
        return [Message(self.position - 2), Message(self.position - 1), Message(-1, broken)]

    def close(self) -> None:
        self.is_closed = True


def test_a_topics_watcher_goes_on_behind_the_last_record_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Consumer] = []

    def new(servers: str, topic: str, *, appear_s: float, starts: dict[int, int]) -> Consumer:
        if len(made) == 2:
            made.append(Consumer(0))  # one that was put back: what it gives again was seen
            raise UnavailableError("no broker", next_step="wait")
        made.append(Consumer(0 if len(made) == 4 else starts.get(0, 0)))
        return made[-1]

    monkeypatch.setattr(kafka, "plain_consumer", new)
    with KafkaWatcher("kafka", "nowhere:9092", "results") as watcher:
        assert watcher.wait_for(12, 30)
        assert "results" in watcher.trouble
    offsets = [row.order for row in watcher.seen()]
    assert offsets == list(range(len(offsets)))
    assert all(each.is_closed for number, each in enumerate(made) if number != 2)


def test_a_topics_watcher_asks_anew_where_its_client_has_fallen_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute(Consumer):
        def consume(self, count: int, timeout_s: float) -> list[Message]:
            return []

    made: list[Consumer] = []

    def new(servers: str, topic: str, *, appear_s: float, starts: dict[int, int]) -> Consumer:
        made.append(Consumer(starts.get(0, 0)) if made else Mute(0))
        return made[-1]

    monkeypatch.setattr(kafka, "plain_consumer", new)
    monkeypatch.setattr(watching, "SILENT_S", 0.05)
    with KafkaWatcher("kafka", "nowhere:9092", "results") as watcher:
        assert watcher.wait_for(4, 30)
    assert made[0].is_closed


# --- by key -----------------------------------------------------------------------------------------------
@pytest.fixture
def search() -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """Serve one answer to every search; give the address, what was asked for, and the answer."""
    asked: list[str] = []
    answer: dict[str, Any] = {
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1},
        "hits": {"hits": [{"_id": "k", "_source": {"key": "k", "value": "v"}}]},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer if self.path.endswith("_search") else {}).encode())

        def log_message(self, *_: object) -> None: ...

    for address in served(Handler):
        yield f"http://{address}", asked, answer


def test_a_search_gives_what_a_refresh_shows(search: tuple[str, list[str], dict[str, Any]]) -> None:
    url, asked, _ = search
    assert list(SearchReader("search", url, "rows").rows()) == [Seen("search", b"k", b"v")]
    assert asked == ["/rows/_refresh", "/rows/_search"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"timed_out": True}, OSError),
        ({"_shards": {"total": 2, "successful": 1}}, OSError),
        ({"hits": {"hits": [{"_source": {"key": "k", "value": "v"}}] * HITS_MAX}}, ValueError),
    ],
)
def test_a_part_of_an_index_is_not_taken_for_all_of_it(
    search: tuple[str, list[str], dict[str, Any]], answer: dict[str, Any], error: type[Exception]
) -> None:
    url, _, whole = search
    whole |= answer
    with pytest.raises(error):
        list(SearchReader("search", url, "rows").rows())


# --- a whole audit ----------------------------------------------------------------------------------------
def test_a_doctored_table_is_named(database: Path) -> None:
    def found() -> dict[Anomaly, int]:
        query = 'SELECT v AS value, k AS "key" FROM results'
        reader = DatabaseReader("db", lambda: sqlite3.connect(database), query)
        verdict = audit(inputs, sinks={"db": reader}, upserts={"db"})
        return {anomaly: count for anomaly, count in verdict.anomalies.items() if count}

    inputs = [Input(n, "events/0", n, b"%d" % (n % 2), b"row %d" % n) for n in range(4)]
    with closing(sqlite3.connect(database)) as db:
        db.execute("DELETE FROM results")
        db.executemany("INSERT INTO results VALUES (?, ?)", [("0", "row 2"), ("1", "row 3")])
        db.commit()
        assert found() == {}
        db.execute("UPDATE results SET v = 'row 1' WHERE k = '1'")
        db.commit()
        assert found() == {Anomaly.STALE_UPSERT: 1}
        db.execute("UPDATE results SET v = 'row 9' WHERE k = '1'")
        db.commit()
        assert found() == {Anomaly.FOREIGN: 1, Anomaly.LOST: 1}


# --- dead letters -----------------------------------------------------------------------------------------
def letter(folder: Path, name: str, *rows: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"code": "TOO_LARGE", "row": json.dumps(row)}) + "\n" for row in rows)
    (folder / name).write_text("".join(lines))


def audited(tmp_path: Path, inputs: list[Input]) -> dict[Anomaly, int]:
    sinks: dict[str, Reader] = {
        "files": FilesReader("files", tmp_path / "rows"),
        "files.letters": LettersReader(FilesReader("files.letters", tmp_path / "letters")),
    }
    return {anomaly: count for anomaly, count in audit(inputs, sinks=sinks).anomalies.items() if count}


def test_each_input_is_among_the_rows_or_among_the_letters_once(tmp_path: Path) -> None:
    inputs = [Input(number, "in/0", number, b"k", str(number).encode()) for number in range(4)]
    put(tmp_path / "rows", "a.json", "0", "1")
    letter(tmp_path / "letters", "b.json", {"key": "k", "value": "2"})
    assert audited(tmp_path, inputs) == {Anomaly.LOST: 1}
    letter(tmp_path / "letters", "c.json", {"key": "k", "value": "3"})
    assert audited(tmp_path, inputs) == {}
    letter(tmp_path / "letters", "d.json", {"key": "k", "value": "1"})
    assert audited(tmp_path, inputs) == {Anomaly.DUPLICATED: 1}


def test_a_letter_of_bytes_is_read_as_bytes_and_what_is_no_letter_is_foreign(tmp_path: Path) -> None:
    letter(tmp_path, "a.json", {"key": "AP8=", "value": "AQ=="}, {"value": "AQ=="})
    (tmp_path / "b.json").write_text("no letter\n")
    reader = LettersReader(FilesReader("kafka.letters", tmp_path), binary=True)
    assert [(row.sink, row.key, row.value) for row in reader.rows()] == [
        ("kafka", b"\x00\xff", b"\x01"), ("kafka", None, b"\x01"), ("kafka", None, b"no letter"),
    ]  # fmt: skip
