"""``onceonly audit``: one row removed, one doubled, one changed is found in each kind of target that lets it look."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from tests.unit import (
    test_conformance_delta,
    test_conformance_iceberg,
    test_conformance_keyed,
    test_conformance_sinks,
    test_conformance_sql,
)
from tests.unit.operator_bench import PATH, BoxSink, QueryCoordinator, here, run

from onceonly.errors import UnavailableError
from onceonly.operations import audit as operation
from onceonly.operations import look, render, sinks
from onceonly.operations.audit import Finding, Word
from onceonly.operations.find import open_checkpoint
from onceonly.operations.given import Given
from onceonly.ports.standing import Held, Untold
from onceonly.sinks.files import FilesSink
from onceonly.sinks.files.store import LocalStore
from onceonly.sinks.sql.sink import SqlSink
from onceonly_proof.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.model import Handle
    from onceonly.operations.audit import Audit
    from onceonly.operations.checkpoint_model import CheckpointModel
    from onceonly.operations.find import Checkpoint
    from onceonly.ports.standing import Standing
    from onceonly_proof.conformance import SinkConformance

SUITES = {
    "files": test_conformance_sinks.TestFiles,
    "sqlite": test_conformance_sql.TestSqlite,
    "delta": test_conformance_delta.TestDelta,
    "iceberg": test_conformance_iceberg.TestIceberg,
    "keyed": test_conformance_keyed.TestDecided,
}
SINK = ("--sink", "files=onceonly.sinks.files:FilesSink")


class Job:
    """A query that has committed two epochs, and is down."""

    def __init__(self, kind: str | SinkConformance, folder: Path) -> None:
        self.suite = SUITES[kind]() if isinstance(kind, str) else kind
        self.world = World(self.suite, folder)
        checkpoint = Path(self.world.work().checkpoint)
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": self.world.query}), encoding="utf-8")
        for epoch in range(2):
            (checkpoint / f"offsets/{epoch}").write_text(f'v1\n{{}}\n"{epoch}"', encoding="utf-8")
        self.checkpoint = str(checkpoint)
        with self.world.run(epochs=2, slots=2) as life:
            life.run_all()

    def audit(self) -> Audit:
        sink = self.suite.sink
        secrets = {name: text for name, text in self.world.options.items() if name == "password"}
        given = Given(classes={sink.name: f"{sink.__module__}:{sink.__qualname__}"}, options=secrets)
        return operation.audit(open_checkpoint(self.checkpoint), given, within_s=30)

    def found(self) -> dict[int | None, Word]:
        return {each.epoch: each.word for each in self.audit().findings}


@pytest.fixture(params=sorted(SUITES))
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    made = Job(request.param, tmp_path)
    with made.world:
        yield made


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Job]:
    made = Job("files", tmp_path)
    with made.world:
        yield made


def test_a_target_that_nobody_touched_differs_in_nothing(job: Job) -> None:
    audited = job.audit()
    assert not audited.differs, audited.findings
    found = [(0, 8), (1, 4), (None, 12)]
    # Of what is written by key, an earlier epoch may be replaced by a later one: all together tells nothing.
    expected = found[:2] if job.suite.sink.name == "keyed" else found
    assert [(each.epoch, each.rows) for each in audited.findings] == expected
    by_epoch = Word.NOT_TOLD if job.suite.sink.name == "sql" else Word.SAME
    assert [each.word for each in audited.findings] == [by_epoch, by_epoch, Word.SAME][: len(expected)]


@pytest.mark.parametrize(
    ("statement", "first", "newest", "told"),
    [
        (
            "DELETE FROM rows WHERE key = 'k{newest}'",
            Word.SAME,
            Word.DIFFERS,
            "4 rows were decided, and 3 stand",
        ),
        (
            "INSERT INTO rows SELECT 'copy', version, deleted, row FROM rows WHERE key = 'k{newest}'",
            Word.SAME,
            Word.DIFFERS,
            "4 rows were decided, and 5 stand",
        ),
        (
            "UPDATE rows SET version = version + 1 WHERE key = 'k{newest}'",
            Word.SAME,
            Word.DIFFERS,
            "3 stand",
        ),
        (
            "UPDATE rows SET version = version + 1 WHERE key = 'k0'",
            Word.DIFFERS,
            Word.SAME,
            "1 row of it somebody has written over since",
        ),
        ("DELETE FROM rows WHERE key = 'k0'", Word.NOT_TOLD, Word.SAME, "8 rows were decided, and 7 stand"),
        (
            "INSERT INTO rows SELECT 'copy', version, deleted, row FROM rows WHERE key = 'k0'",
            Word.DIFFERS,
            Word.SAME,
            "8 rows were decided, and 9 stand",
        ),
    ],
    ids=["removed", "doubled", "changed", "changed earlier", "removed earlier", "doubled earlier"],
)
def test_rows_by_key_tell_of_the_epoch_that_they_carry(
    tmp_path: Path, statement: str, first: Word, newest: Word, told: str
) -> None:
    job = Job("keyed", tmp_path)
    with job.world, closing(sqlite3.connect(job.world.options["database"])) as db:
        [(key,)] = db.execute("SELECT key FROM rows ORDER BY version DESC LIMIT 1").fetchall()
        with db:
            db.execute(statement.replace("k{newest}", key))
        assert job.found() == {0: first, 1: newest}
        assert told in " ".join(each for finding in job.audit().findings for each in finding.told)


def test_what_a_later_epoch_may_have_replaced_is_no_difference(tmp_path: Path) -> None:
    job = Job("keyed", tmp_path)
    with job.world, closing(sqlite3.connect(job.world.options["database"])) as db:
        with db:  # as an epoch under way does
            db.execute(
                "UPDATE rows SET version = (SELECT max(version) FROM rows) + 4096 WHERE key IN "
                "(SELECT key FROM rows ORDER BY version DESC LIMIT 1)"
            )
        assert job.found() == {0: Word.SAME, 1: Word.NOT_TOLD}


def data_files(job: Job) -> list[Path]:
    target = Path(job.world.options["path"])
    found = [path for path in target.rglob("*.parquet") if not path.name.startswith(("_", "."))]
    assert len(found) == 3
    # Of the first epoch, which has two slots with rows.
    return sorted(found)


def _without_a_row(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(1), path)


def _with_one_twice(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), path)


def _with_one_changed(path: Path) -> None:
    """As long as before: the last byte of the first value is another one."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b"row 0", b"row 9", 1))
    assert path.read_bytes() != data


@pytest.mark.parametrize("change", [_without_a_row, _with_one_twice, _with_one_changed, Path.unlink])
def test_files_tell_of_the_epoch_whose_file_was_changed(files: Job, change: Callable[[Path], None]) -> None:
    path = next(each for each in data_files(files) if b"row 0" in each.read_bytes())
    change(path)
    assert files.found() == {0: Word.DIFFERS, 1: Word.SAME, None: Word.SAME}
    told = next(each for each in files.audit().findings if each.epoch == 0).told
    assert str(path) in told[0]
    assert told[-1] == "8 rows were decided, and 4 of them stand as they were written"


def test_files_of_which_no_more_is_told_than_their_length_are_said_to_be_compared_by_that(
    files: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(LocalStore, "checksum")  # as a bucket has none
    _with_one_changed(next(each for each in data_files(files) if b"row 0" in each.read_bytes()))
    found = files.audit().findings
    assert {each.word for each in found} == {Word.SAME}
    assert all("no more than how long it is" in each.told[0] for each in found if each.epoch is not None)


def test_a_file_that_somebody_has_copied_is_seen_by_readers_without_manifests(files: Job) -> None:
    path = data_files(files)[0]
    shutil.copy(path, path.with_name("copy.parquet"))
    assert files.found() == {0: Word.SAME, 1: Word.SAME, None: Word.DIFFERS}
    assert "copy.parquet: no manifest lists it" in files.audit().findings[-1].told[0]


@pytest.mark.parametrize(
    ("statement", "word", "told"),
    [
        (
            "DELETE FROM results WHERE value = 'row 3'",
            Word.DIFFERS,
            "12 rows were decided in all, and the target has 11",
        ),
        (
            "INSERT INTO results SELECT * FROM results WHERE value = 'row 3'",
            Word.DIFFERS,
            "and the target has 13",
        ),
        ("UPDATE results SET value = 'x' WHERE value = 'row 3'", Word.DIFFERS, "at least one was changed"),
    ],
    ids=["removed", "doubled", "changed"],
)
def test_a_table_tells_how_many_rows_it_has_and_what_they_add_up_to(
    tmp_path: Path, statement: str, word: Word, told: str
) -> None:
    job = Job("sqlite", tmp_path)
    with job.world, closing(sqlite3.connect(test_conformance_sql.database_of(job.world.options))) as db, db:
        db.execute(statement)
        db.commit()
        last = job.audit().findings[-1]
        assert (last.epoch, last.word) == (None, word)
        assert told in " ".join(last.told)


class ByKey(test_conformance_sql.TestSqlite):
    """A table whose rows are replaced by their keys, or deleted as well."""

    __test__ = False

    def __init__(self, **more: str) -> None:
        self.more = more

    def options(self, folder: Path) -> dict[str, str]:
        given = super().options(folder) | {"key": "value"} | self.more
        with closing(sqlite3.connect(test_conformance_sql.database_of(given))) as db, db:
            db.execute("CREATE UNIQUE INDEX once ON results (value)")
        return given


@pytest.mark.parametrize(
    ("statement", "word", "told"),
    [
        ("SELECT 1", Word.SAME, ""),
        (
            "DELETE FROM results WHERE value = 'row 3'",
            Word.NOT_TOLD,
            "12 rows were decided in all, and the target has 11: later rows have replaced others of their keys",
        ),
        (
            "INSERT INTO results SELECT key, 'copy' FROM results WHERE value = 'row 3'",
            Word.DIFFERS,
            "and the target has 13",
        ),
        (
            "UPDATE results SET key = 'x' WHERE value = 'row 3'",
            Word.DIFFERS,
            "at least one was changed or others have written there, too",
        ),
    ],
    ids=["untouched", "removed", "doubled", "changed"],
)
def test_a_table_by_key_tells_what_its_rows_add_up_to_while_none_was_replaced(
    tmp_path: Path, statement: str, word: Word, told: str
) -> None:
    job = Job(ByKey(), tmp_path)
    with job.world, closing(sqlite3.connect(test_conformance_sql.database_of(job.world.options))) as db, db:
        db.execute(statement)
        db.commit()
        found = job.audit().findings
    assert [each.word for each in found] == [Word.NOT_TOLD, Word.NOT_TOLD, word]
    assert "a table does not say which epoch has written a row" in found[0].told[0]
    assert told in " ".join(found[-1].told)


def test_a_table_by_key_that_somebody_has_emptied_differs(tmp_path: Path) -> None:
    """Rows that were written may have been replaced, but not all of them: those of the newest epoch stand."""
    job = Job(ByKey(), tmp_path)
    with job.world, closing(sqlite3.connect(test_conformance_sql.database_of(job.world.options))) as db, db:
        db.execute("DELETE FROM results WHERE rowid > 1")
        db.commit()
        assert job.audit().findings[-1].word is Word.NOT_TOLD
        db.execute("DELETE FROM results")
        db.commit()
        last = job.audit().findings[-1]
    assert (last.epoch, last.word) == (None, Word.DIFFERS)
    assert "nothing has replaced the rows that came last" in last.told[0]


def test_of_a_table_whose_rows_are_deleted_it_is_said_why_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(ByKey(), tmp_path)
    monkeypatch.setattr(SqlSink, "held_in_all", lambda _sink, _context: Untold("rows were deleted"))
    with job.world:
        last = job.audit().findings[-1]
    assert (last.epoch, last.word, last.answered) == (None, Word.NOT_TOLD, True)
    assert last.told == ("the target does not tell whether all rows stand: rows were deleted",)


def test_books_that_have_lost_the_newest_epoch_differ(tmp_path: Path) -> None:
    job = Job("sqlite", tmp_path)
    with job.world, closing(sqlite3.connect(test_conformance_sql.database_of(job.world.options))) as db, db:
        [(books,)] = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'results'"
        ).fetchall()
        db.execute(f"DELETE FROM {books} WHERE epoch = 1")  # noqa: S608  a name of ours
        db.commit()
        assert job.found()[1] is Word.DIFFERS


@pytest.mark.parametrize("change", ["removed", "doubled", "changed"])
def test_a_delta_table_tells_of_epoch_and_total(tmp_path: Path, change: str) -> None:
    import deltalake

    job = Job("delta", tmp_path)
    with job.world:
        table = deltalake.DeltaTable(job.world.options["path"])
        if change == "removed":
            table.delete("value = 'row 0'")
        elif change == "changed":
            table.update(predicate="value = 'row 0'", updates={"value": "'x'"})
        else:
            rows = table.to_pyarrow_table()
            deltalake.write_deltalake(table, rows.slice(0, 1), mode="append")
        found = job.found()
    if change == "doubled":
        assert found == {0: Word.SAME, 1: Word.SAME, None: Word.DIFFERS}
    else:
        assert (found[0], found[1]) == (Word.DIFFERS, Word.SAME)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_whose_file_was_changed_in_its_place_tells_it(tmp_path: Path, kind: str) -> None:
    job = Job(kind, tmp_path)
    with job.world:
        sink: Any = job.world.driver
        home = Path(sink.home.text)
        path = next(each for each in home.rglob("*.parquet") if b"row 0" in each.read_bytes())
        assert not [text for each in job.audit().findings for text in each.told], "values were compared"
        _with_one_changed(path)
        assert job.found() == {0: Word.DIFFERS, 1: Word.SAME, None: Word.SAME}
        assert "at least one was changed" in job.audit().findings[0].told[0]
        path.write_bytes(path.read_bytes()[::-1])  # nobody can read it
        assert job.found()[0] is Word.DIFFERS
        assert "other content than was written" in job.audit().findings[0].told[0]


@pytest.mark.parametrize("change", ["removed", "doubled", "changed"])
def test_an_iceberg_table_tells_of_epoch_and_total(tmp_path: Path, change: str) -> None:
    job = Job("iceberg", tmp_path)
    with job.world:
        sink: Any = job.world.driver
        table = sink._open()
        if change == "doubled":
            table.append(table.scan().to_arrow().slice(0, 1))
        else:
            row = table.scan(row_filter="value == 'row 0'").to_arrow()
            table.delete("value == 'row 0'")
            if change == "changed":
                table.append(
                    row.set_column(1, row.schema.field(1), pa.array(["x"], row.schema.field(1).type))
                )
        found = job.found()
    if change == "doubled":
        assert found == {0: Word.SAME, 1: Word.SAME, None: Word.DIFFERS}
    else:
        assert (found[0], found[1]) == (Word.DIFFERS, Word.SAME)


def test_the_command_line_says_it_and_exports_the_history(files: Job, tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    told = run("audit", files.checkpoint, *SINK, "--json", "--export", history)
    assert told.returncode == 0, told.stderr
    [checkpoint] = json.loads(told.stdout)["checkpoints"]
    assert [each["word"] for each in checkpoint["findings"]] == ["same", "same", "same"]
    first, *lines = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    assert (first["query"], first["first"], first["last"], first["details_from"]) == (
        files.world.query,
        0,
        1,
        0,
    )
    assert "onceonly.history" in first["retention"]
    assert [(line["epoch"], line["sinks"]["files"]["rows"], line["barrier"]) for line in lines] == [
        (0, 8, ['"0"']), (1, 4, ['"1"']),
    ]  # fmt: skip
    assert all(line["sinks"]["files"]["checksum"] for line in lines)
    data_files(files)[0].unlink()
    told = run("audit", files.checkpoint, *SINK)
    assert (told.returncode, "differs" in told.stdout) == (1, True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            UnavailableError("the target is not reached", next_step="mend it, and start the query again"),
            "the target is not reached (mend it, and run this command again)",
        ),
        (ConnectionError("refused"), "ConnectionError: refused (see to its target and ask again)"),
    ],
)
def test_a_target_that_does_not_answer_is_no_clean_audit(
    files: Job, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def silent(_sink: FilesSink, _asked: object) -> Held:
        raise error

    monkeypatch.setattr(FilesSink, "held", silent)
    monkeypatch.setattr(FilesSink, "held_in_all", silent)
    told = run("audit", files.checkpoint, *SINK)
    assert (told.returncode, told.stdout.count("not told")) == (2, 2), told.stdout + told.stderr
    assert told.stdout.count(said) == 2


def test_a_database_by_key_that_does_not_answer_is_no_clean_audit_and_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = Job("sqlite", tmp_path), []

    def silent(_sink: SqlSink, handle: Handle) -> Standing:
        asked.append(handle)
        raise UnavailableError("connection refused", next_step="start it")

    monkeypatch.setattr(SqlSink, "look_up", silent)
    monkeypatch.setattr(SqlSink, "held_in_all", lambda _sink, _context: None)
    with job.world:
        audited = job.audit()
    assert [(each.word, each.answered) for each in audited.findings] == [(Word.NOT_TOLD, False)] * 2
    assert {each.told for each in audited.findings} == {("connection refused (start it)",)}
    assert len(asked) == 1


def test_one_that_has_moved_is_no_clean_audit(files: Job) -> None:
    elsewhere = Path(files.checkpoint).with_name("elsewhere")
    Path(files.checkpoint).rename(elsewhere)
    told = run("audit", elsewhere, *SINK)
    assert (told.returncode, "differs" in told.stdout) == (1, False), told.stdout + told.stderr


def _commits_meanwhile(monkeypatch: pytest.MonkeyPatch, rows: int | None = None) -> None:
    """Have each look at the log see one epoch more, until it has both; ``rows`` is what the target has then."""
    newest, seen = look.newest, iter(range(2))

    def growing(checkpoint: Checkpoint, *, limit: int | None, history: bool) -> CheckpointModel:
        model, shown = newest(checkpoint, limit=limit, history=history), next(seen, 2)
        return replace(model, epochs=model.epochs[len(model.epochs) - shown :] if shown else ())

    monkeypatch.setattr(look, "newest", growing)
    if rows is not None:
        monkeypatch.setattr(FilesSink, "held_in_all", lambda _sink, _query: Held(rows=rows))


def test_what_is_committed_while_the_target_is_counted_is_no_difference(
    files: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commits_meanwhile(monkeypatch)
    assert files.found()[None] is Word.SAME


@pytest.mark.parametrize(
    ("looks", "rows", "word", "told"),
    [
        (3, 11, Word.DIFFERS, "12 rows were decided in all, and the target has 11"),
        (2, 11, Word.NOT_TOLD, "8 to 12 rows were decided while it was counted, and the target has 11"),
        (2, 13, Word.DIFFERS, "8 to 12 rows were decided while it was counted, and the target has 13"),
    ],
)
def test_a_difference_is_only_told_where_no_commit_explains_it(
    files: Job, monkeypatch: pytest.MonkeyPatch, looks: int, rows: int, word: Word, told: str
) -> None:
    _commits_meanwhile(monkeypatch, rows)
    monkeypatch.setattr(operation, "_LOOKS", looks)
    found = files.audit().findings[-1]
    assert (found.word, found.told) == (word, (told,))


def test_it_tells_before_each_question_how_many_are_answered(files: Job) -> None:
    told: list[tuple[int, int, str]] = []
    given = Given(classes={"files": "onceonly.sinks.files:FilesSink"})
    operation.audit(
        open_checkpoint(files.checkpoint), given, within_s=30, told=lambda *each: told.append(each)
    )
    assert told == [(0, 4, "files"), (1, 4, "files, chk-1"), (2, 4, "files, chk-0"), (3, 4, "files")]


def test_only_a_terminal_is_shown_how_far_it_has_come_and_never_in_the_data(files: Job) -> None:
    command = [sys.executable, "-m", "onceonly", "audit", files.checkpoint, *SINK, "--json"]
    environment = {**os.environ, "PYTHONPATH": PATH, "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other side has hung up
            while data := os.read(ours, 65536):
                shown += data
        out, _ = process.communicate(timeout=30)
    os.close(ours)
    assert "0/4" in shown.decode()
    piped = run(*command[3:])
    assert (piped.stdout, piped.stderr) == (out.decode(), "")


def test_a_history_that_cannot_be_written_is_a_sentence(files: Job, tmp_path: Path) -> None:
    told = run("audit", files.checkpoint, *SINK, "--export", tmp_path / f"{'x' * 300}.jsonl")
    assert told.returncode == 2
    assert "cannot be written" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_folder_that_is_gone_is_another_target_and_nothing_is_said_of_its_rows(files: Job) -> None:
    manifests = Path(files.world.options["path"])
    aside = manifests.rename(manifests.with_name("aside"))
    told = run("audit", files.checkpoint, *SINK)
    aside.rename(manifests)
    assert "Traceback" not in told.stderr
    assert told.returncode == 64
    assert "has another target" in told.stderr


def test_equal_sentences_are_one_line_with_the_epochs_that_they_are_told_of() -> None:
    def finding(epoch: int | None, word: Word = Word.SAME, *told: str) -> Finding:
        return Finding(epoch=epoch, sink="files", word=word, rows=2, told=told)

    lost = "a file is gone"
    found = [finding(0), finding(1), finding(2, Word.DIFFERS, lost), finding(3), finding(None)]
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(render.findings(found))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines[2:] == [
        "chk-0 to chk-1, chk-3 files 6 same",
        f"chk-2 files 2 differs {lost}",
        "all files 2 same",
    ]


class MuteSink(BoxSink):
    """A box that never answers one question."""


def never(*_arguments: object, **_more: object) -> None:
    threading.Event().wait()


@pytest.mark.parametrize("question", ["identity", "held", "held_by_epoch", "held_in_all", "look_up", "close"])
def test_a_target_that_never_answers_is_told_and_the_others_are_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.set_barrier(0)
    link = query.link(0, votes=[query.vote(0), replace(query.vote(0, 1), sink="mute")])
    both = replace(
        link, settings={"box": {}, "mute": {}}, uses=dict.fromkeys(("box", "mute"), link.uses["box"])
    )
    query.log.put_link(both)
    query.open("t0-0")
    query.open("t0-1")
    query.settle(both)
    monkeypatch.setattr(MuteSink, question, never, raising=False)
    monkeypatch.setattr(sinks, "_CLOSE_S", 0.2)
    mute = f"{MuteSink.__module__}:MuteSink"
    given = Given(classes={"box": "tests.unit.operator_bench:BoxSink", "mute": mute})
    audited = operation.audit(open_checkpoint(query.path), given, within_s=0.2)
    found = {(each.sink, each.epoch): each for each in audited.findings}
    assert found["box", 0].answered
    assert found["box", 0].told == ("the target does not tell the rows of an epoch",)
    if question == "close":
        assert audited.answered
        return
    assert not audited.answered
    silent = [each for each in audited.findings if each.sink == "mute" and not each.answered]
    for each in silent:
        assert each.word is Word.NOT_TOLD
        assert each.told == (
            "the target did not answer within 0.2 s (see to it and ask again, or give it longer by --timeout)",
        )
    words = ("audit", query.path, "--timeout", "0.2", "--sink", "box=tests.unit.operator_bench:BoxSink")
    assert here(*words, "--sink", f"mute={mute}") == 2


def test_a_target_that_never_answers_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(*range(5))
    asked: list[str] = []

    def silent(name: str) -> Callable[..., None]:
        def ask(*_arguments: object) -> None:
            asked.append(name)
            never()

        return ask

    for question in ("held", "held_by_epoch", "held_in_all", "look_up"):
        monkeypatch.setattr(MuteSink, question, silent(question), raising=False)
    given = Given(classes={"box": f"{MuteSink.__module__}:MuteSink"})
    audited = operation.audit(open_checkpoint(query.path), given, within_s=0.2)
    assert [each.epoch for each in audited.findings if not each.answered] == [0, 1, 2, 3, 4, None]
    assert asked == ["held_by_epoch"]
