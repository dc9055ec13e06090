"""Output that was decided after a savepoint is taken back, and the job goes on as if it had never been."""

from __future__ import annotations

import html
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.unit.files_bench import Files, rows
from tests.unit.operator_bench import BOX, QUERY, GivingBoxSink, QueryCoordinator, here, run
from tests.unit.s3_double import BUCKET, S3Double, serve
from tests.unit.test_conformance_delta import TestDelta as DeltaSuite
from tests.unit.test_conformance_iceberg import TestIceberg as IcebergSuite
from tests.unit.test_conformance_sinks import TestFiles as FilesSuite

from onceonly import files, savepoints
from onceonly.cli import shared
from onceonly.errors import ConfigurationError
from onceonly.events import stamp
from onceonly.log import open_log
from onceonly.log.actions import ActionFiles
from onceonly.log.place import log_store
from onceonly.ports.standing import TakenBack
from onceonly.sinks.files.manifests.ledger import Ledger, Part
from onceonly.sinks.files.manifests.manifest import DataFile, Manifest
from onceonly.sinks.files.paths import manifest_folder
from onceonly.sinks.files.store import LocalStore
from onceonly.stores import opened
from onceonly.stores.configuration import settings
from onceonly_proof.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.unit.operator_bench import BoxSink, Ran

    from onceonly.log.actions import Action
    from onceonly.model import Handle, Link, Vote
    from onceonly.ports import QueryContext
    from onceonly_proof.conformance import SinkConformance

CORE_SITE = """<configuration>
  <property><name>fs.s3a.endpoint</name><value>{url}</value></property>
  <property><name>fs.s3a.path.style.access</name><value>true</value></property>
  <property><name>fs.s3a.access.key</name><value>ak</value></property>
  <property><name>fs.s3a.secret.key</name><value>sksksk</value></property>
  <property><name>fs.s3a.endpoint.region</name><value>us-east-1</value></property>
</configuration>"""


def records(checkpoint: Path) -> list[Action]:
    return [each for each in ActionFiles(log_store(str(checkpoint))).newest() if each.command == "restore"]


class Job:
    """A query that has committed three epochs, two slots each, and is down; and a savepoint of its first."""

    def __init__(self, folder: Path, suite: SinkConformance | None = None, sink: str = "files") -> None:
        self.sink = ("--sink", f"{sink}=onceonly.sinks.{sink}:{sink.title()}Sink")
        self.world = World(suite or FilesSuite(), folder)
        self.checkpoint = Path(self.world.work().checkpoint)
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": self.world.query}), encoding="utf-8")
        for epoch in range(3):
            (self.checkpoint / f"offsets/{epoch}").write_text(f'v1\n{{}}\n"{epoch}"', encoding="utf-8")
        with self.world.run(epochs=3, slots=2) as life:
            life.run_all()
        for epoch in range(3):
            (self.checkpoint / f"commits/{epoch}").write_text("v1\n{}", encoding="utf-8")
        self.place, self.to = folder / "place", folder / "to"
        savepoints.create(str(self.checkpoint), str(self.place), epoch=0)
        log = open_log(str(self.checkpoint), query=self.world.query, create=False)
        first = log.chain(0)[-1]
        self.rows = sum(vote.rows for vote in first.output)
        self.target = Path(str(first.settings[sink].get("path", "")))

    def restore(self, *more: str, **env: str) -> tuple[int, str]:
        done = run(
            "savepoint", "restore", self.place, "--to", self.to, "--yes", "--json", *self.sink, *more, **env
        )
        return done.returncode, done.stderr

    def manifests(self) -> list[Manifest]:
        return Ledger(LocalStore(), manifest_folder(self.target, self.world.query, "files")).manifests()

    def epochs(self) -> list[int]:
        return [each.epoch for each in self.manifests()]

    def listed(self) -> int:
        return sum(len(each.files) for each in self.manifests())

    def visible(self) -> int:
        return len(Files(self.target).visible())


def saved_before_its_last(tmp_path: Path) -> QueryCoordinator:
    """Make a query with two epochs, and a savepoint of the first one in ``place``."""
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    query.complete(1)
    return query


def test_files_that_were_decided_since_are_taken_back(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.epochs() == [0, 1, 2]
    assert job.visible() == job.listed()
    status, said = job.restore()
    assert status == 64
    assert "--output withdraw" in said
    assert job.epochs() == [0, 1, 2]
    status, said = job.restore("--output", "withdraw")
    assert status == 0, said
    assert "withdrawn from sink files: 3 files with " in said
    for place in (job.checkpoint, job.to):
        [taken] = records(place)[0].withdrawn
        assert (taken.query, taken.sink, taken.epochs, taken.entry) == (job.world.query, "files", (1, 2), "")
        assert (taken.files, len(taken.names), taken.rows) == (3, 3, 12)
        assert not any((job.target / name).exists() for name in taken.names)
    assert job.epochs() == [0]
    assert 0 < job.visible() == job.listed()
    assert json.loads((job.to / "metadata").read_text(encoding="utf-8"))["id"] == job.world.query
    assert open_log(str(job.to), query=job.world.query, create=True).newest() == 0


def test_nothing_is_taken_back_that_nobody_agreed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path)
    words = ("savepoint", "restore", job.place, "--to", job.to, "--output", "withdraw", *job.sink)
    done = run(*words)
    assert done.returncode == 64
    assert "to be withdrawn from sink files: 3 files with 12 rows of chk-1 to chk-2 (" in done.stderr
    assert "there is no terminal to ask on, and nothing was done" in done.stderr
    monkeypatch.setattr(shared, "agreed", lambda _question, *, yes: yes)
    assert run(*words).returncode == 1
    assert job.epochs() == [0, 1, 2]
    assert job.visible() == job.listed()
    assert records(job.checkpoint) == []
    assert not job.to.exists()


def test_killed_when_all_is_taken_back_it_is_run_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert job.restore("--output", "withdraw", ONCEONLY_FAILPOINTS="savepoint.before_id=kill")[0] == -9
    assert job.restore("--output", "withdraw")[0] == 0
    assert job.epochs() == [0]


def test_what_a_killed_run_had_open_after_what_is_taken_back_is_ended(tmp_path: Path) -> None:
    """It is of a later epoch than the next start is at: that would take its own checkpoint for an older one."""
    job = Job(tmp_path)
    bench = Files(job.target, query=job.world.query, options={"partitionBy": ""})
    bench.prepared(rows(1), epoch=3)
    assert [each.epoch for each in bench.sink().recover(bench.context)] == [3]
    assert job.restore("--output", "withdraw")[0] == 0
    assert list(bench.sink().recover(bench.context)) == []


class InBucket(FilesSuite):
    def options(self, folder: Path) -> dict[str, str]:
        return {"path": f"s3a://{BUCKET}/{folder.parent.name}"}


@pytest.fixture
def core_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What reaches a bucket."""
    for double in serve(S3Double()):
        file = tmp_path / "core-site.xml"
        file.write_text(CORE_SITE.format(url=double.url), encoding="utf-8")
        monkeypatch.setattr(opened, "_told", settings([file]))
        yield file


def seen(job: Job) -> Counter[str]:
    return Counter(map(str, job.world.suite.visible(job.world.options)))


@pytest.mark.parametrize(("suite", "sink"), [(DeltaSuite, "delta"), (IcebergSuite, "iceberg")])
def test_a_table_is_taken_back_to_the_savepoint(
    tmp_path: Path, suite: type[SinkConformance], sink: str
) -> None:
    job = Job(tmp_path, suite(), sink)
    before = seen(job)
    assert job.restore("--output", "withdraw", ONCEONLY_FAILPOINTS="savepoint.before_id=kill")[0] == -9
    status, said = job.restore("--output", "withdraw")
    assert status == 0, said
    after = seen(job)
    [taken] = records(job.to)[0].withdrawn
    assert (taken.sink, taken.epochs, taken.files, len(taken.names)) == (sink, (1, 2), 3, 3)
    # The entry that it was is named although the command that made it was killed.
    assert taken.entry.split()[0] == {"delta": "version", "iceberg": "snapshot"}[sink]
    if sink == "delta":
        assert taken.entry == f"version {DeltaTable(job.world.options['path']).version()}"
    assert f"from sink {sink} in {taken.entry}: 3 files" in said
    assert after < before
    assert after.total() == job.rows


def test_objects_in_a_bucket_are_taken_back_with_their_manifests(tmp_path: Path, core_site: Path) -> None:
    job = Job(tmp_path, InBucket(), "files")
    target = job.world.options["path"]
    assert [each.epoch for each in files.committed(target)] == [0, 1, 2]
    status, said = job.restore("--output", "withdraw", "--hadoop-conf", str(core_site))
    assert status == 0, said
    assert [each.epoch for each in files.committed(target)] == [0]


def test_what_cannot_be_taken_back_is_refused_before_anything_is(tmp_path: Path) -> None:
    query = saved_before_its_last(tmp_path)
    done = run(
        "savepoint", "restore", tmp_path / "place", "--to", tmp_path / "to", "--output", "withdraw", "--yes",
        "--sink", "box=operator_bench:BoxSink",
    )  # fmt: skip
    assert done.returncode == 64
    assert "cannot take anything back" in done.stderr
    assert query.seen() == ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done"]
    assert not (tmp_path / "to").exists()


def test_what_was_written_before_a_sink_was_renamed_is_taken_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = saved_before_its_last(tmp_path)
    link = query.link

    def renamed(*of: Any, **more: Any) -> Link:  # noqa: ANN401  as they come
        made = link(*of, **more)
        votes = tuple(replace(vote, sink="crate") for vote in made.votes)
        return replace(made, votes=votes, settings={"crate": {}}, uses={"crate": made.uses["box"]})

    monkeypatch.setattr(query, "link", renamed)
    query.complete(2, 3)
    words = (
        "savepoint", "restore", tmp_path / "place", "--to", tmp_path / "to", "--output", "withdraw", "--yes",
        "--sink", "crate=operator_bench:GivingBoxSink",
    )  # fmt: skip
    done = run(*words)
    assert (done.returncode, "say so with --sink box=" in " ".join(done.stderr.split())) == (64, True)
    assert len(query.seen()) == 8
    done = run(*words, "--sink", "box=operator_bench:GivingBoxSink")
    assert done.returncode == 0, done.stderr
    assert query.seen() == ["t0-0.done", "t0-1.done"]


def written_again(tmp_path: Path, *epochs: int) -> tuple[QueryCoordinator, QueryCoordinator]:
    """Make a query with three epochs and a savepoint of its first, and what goes on there under an id of its own."""
    first = QueryCoordinator(tmp_path / "query")
    first.complete(0)
    savepoints.create(str(first.path), str(tmp_path / "early"))
    first.complete(1, 2)
    savepoints.create(str(first.path), str(tmp_path / "late"))
    done = run(
        "savepoint", "restore", tmp_path / "early", "--to", tmp_path / "again", "--output", "again", "--json",
        "--sink", f"box={BOX}",
    )  # fmt: skip
    second = QueryCoordinator(tmp_path / "again", query=json.loads(done.stdout)["query"])
    second.complete(*epochs)
    return first, second


def withdraw(place: Path, to: Path) -> Ran:
    return run(
        "savepoint", "restore", place, "--to", to, "--output", "withdraw", "--yes",
        "--sink", "box=operator_bench:GivingBoxSink",
    )  # fmt: skip


class OfJournal(QueryCoordinator):
    """Reads a journal, which deletes what was read and decided."""

    def barrier(self, epoch: int) -> str:
        return json.dumps({"journal": "j", "reader": "r", "segment": epoch})


def test_nothing_is_taken_back_before_the_journal_that_was_read_is_asked(tmp_path: Path) -> None:
    query = OfJournal(tmp_path / "query")
    query.complete(0)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    query.complete(1)
    seen = query.seen()
    done = withdraw(tmp_path / "place", tmp_path / "to")
    assert done.returncode == 64
    assert "taken back for good, and the query reads a journal, which deletes what was read" in done.stderr
    assert "next:  add --source journal=PLACE" in done.stderr
    assert query.seen() == seen
    assert not (tmp_path / "to").exists()


def test_what_was_written_twice_is_taken_back_twice(tmp_path: Path) -> None:
    first, second = written_again(tmp_path, 1, 2)
    second.open("t3-0")
    done = withdraw(tmp_path / "early", tmp_path / "to")
    assert done.returncode == 0, done.stderr
    assert first.seen() == ["t0-0.done", "t0-1.done"]
    # What it had open is aborted as well: nobody goes on under its id.
    assert second.seen() == []


def test_what_was_taken_back_is_told_where_it_was_decided_and_where_the_job_goes_on(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    query.complete(1, 2)
    done = withdraw(tmp_path / "place", tmp_path / "to")
    assert done.returncode == 0, done.stderr
    what = "withdrawn from sink box: 4 files with 12 rows of chk-1 to chk-2 (t1-0, t1-1, t2-0, t2-1)"
    assert what in done.stderr
    told = [
        run("transactions", "explain", "t2-1", query.path, "--sink", f"box={BOX}"),
        run("checkpoints", "show", "chk-2", query.path),
        run("checkpoints", "show", "chk-0", tmp_path / "to"),
    ]
    for each in told:
        assert what in " ".join(each.stdout.split()), each.stderr
    page = tmp_path / "page.html"
    run("report", query.path, "--out", page)
    assert what in html.unescape(page.read_text(encoding="utf-8"))
    assert what not in run("checkpoints", "show", "chk-1", tmp_path / "to").stdout
    listed = json.loads(run("checkpoints", "list", tmp_path / "to", "--json").stdout)
    [action] = listed["checkpoints"][0]["actions"]
    assert action["withdrawn"] == [
        {
            "query": QUERY, "sink": "box", "epochs": [1, 2], "rows": 12, "files": 4,
            "names": ["t1-0", "t1-1", "t2-0", "t2-1"], "entry": None,
        }
    ]  # fmt: skip


def test_what_is_to_be_taken_back_is_written_down_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = saved_before_its_last(tmp_path)
    monkeypatch.setattr(GivingBoxSink, "withdraw", fails_unless_it_looks)
    words = ("savepoint", "restore", tmp_path / "place", "--to", tmp_path / "to", "--output", "withdraw")
    assert here(*words, "--yes", "--sink", "box=tests.unit.operator_bench:GivingBoxSink") == 2
    [action] = records(query.path)
    assert action.after == ""
    assert action.sentence.endswith("; to be withdrawn from sink box: 1 file with 6 rows of chk-1 (t1-0)")
    done = run("doctor", query.path, "--only", "log")
    assert "onceonly savepoint restore as it was typed" in " ".join(done.stdout.split())


def fails_unless_it_looks(
    _sink: BoxSink,
    _context: QueryContext,
    _epoch: int,
    _handles: Sequence[Handle],
    *,
    only_look: bool = False,
) -> TakenBack:
    if not only_look:
        raise ConnectionError("the box is closed")
    return TakenBack(files=("t1-0",))


def test_epochs_that_another_id_counts_for_itself_all_came_later(tmp_path: Path) -> None:
    first, second = written_again(tmp_path, 1)
    done = run("savepoint", "restore", tmp_path / "late", "--to", tmp_path / "to", "--sink", f"box={BOX}")
    assert done.returncode == 64
    assert "6 rows of chk-1" in done.stderr
    assert not (tmp_path / "to").exists()
    done = withdraw(tmp_path / "late", tmp_path / "to")
    assert done.returncode == 0, done.stderr
    assert len(first.seen()) == 6
    assert second.seen() == []


class Again(QueryCoordinator):
    """Another life of the query, which plans anew."""

    def link(self, epoch: int, index: int = 0, *, votes: Iterable[Vote] = (), abort: str = "") -> Link:
        return replace(super().link(epoch, index, votes=votes, abort=abort), plan="another", stamp=stamp())


@pytest.mark.parametrize("epochs", [0, 1, 2, 22])
@pytest.mark.parametrize("more", [(), ("--output", "again")], ids=["", "again"])
def test_what_was_taken_back_is_not_gone_on_after(tmp_path: Path, epochs: int, more: tuple[str, ...]) -> None:
    """However far the query has come since: the rows of epochs that were taken back are in no target."""
    first = QueryCoordinator(tmp_path / "query")
    first.complete(0)
    for name, epoch in (("early", 0), ("middle", 1), ("late", 3)):
        first.complete(*range(len(list((first.path / "commits").iterdir())), epoch + 1))
        savepoints.create(str(first.path), str(tmp_path / name))
    assert withdraw(tmp_path / "middle", tmp_path / "two").returncode == 0
    second = Again(tmp_path / "two", keep=2)
    second.complete(*range(2, 2 + epochs))
    second.log.fold()
    there = ("--sink", f"box={BOX}", *more)
    done = run("savepoint", "restore", tmp_path / "late", "--to", tmp_path / "three", *there)
    assert done.returncode == 64
    assert "is no epoch of its query any more" in done.stderr
    assert not (tmp_path / "three").exists()
    for name in ("middle", "early"):
        done = run("savepoint", "restore", tmp_path / name, "--to", tmp_path / f"from-{name}", *there)
        assert "is no epoch" not in done.stderr
        assert (done.returncode == 0) == (bool(more) or (epochs, name) == (0, "middle")), done.stderr
        if done.returncode == 0:
            break  # it has gone there
    assert run("savepoint", "fork", tmp_path / "late", "--to", tmp_path / "four").returncode == 0


def manifests(folder: Path, epochs: Sequence[int]) -> Ledger:
    ledger = Ledger(LocalStore(), folder)
    for epoch in epochs:
        file = DataFile(path=f"{epoch}.parquet", rows=1, bytes=1, checksum="")
        ledger.put(Manifest(epoch=epoch, layout="0" * 16, files=(file,)))
    return ledger


def test_a_manifest_that_was_merged_over_the_savepoint_is_not_divided(tmp_path: Path) -> None:
    ledger = manifests(tmp_path / "epochs", range(200))
    assert Part(1, 0, 99) in ledger.standing()
    with pytest.raises(ConfigurationError, match="was merged"):
        ledger.withdraw(50)
    assert ledger.newest() == 199
    ledger.withdraw(120)
    assert ledger.newest() == 120
    ledger.withdraw(99)
    assert [each.epoch for each in ledger.manifests()] == list(range(100))


# --- a query that writes its epochs to several sinks, in turn ---------------------------------------------


class InTurn(QueryCoordinator):
    """Writes each epoch to the next of three sinks, each with a box of its own, as a function of the user's may."""

    turn = "a"

    @property
    def box(self) -> Path:
        return self.path.parent / f"box-{self.turn}"

    def link(self, epoch: int, index: int = 0, *, votes: Iterable[Vote] = (), abort: str = "") -> Link:
        self.turn = "abc"[epoch % 3]
        self.box.mkdir(exist_ok=True)
        made = super().link(epoch, index, votes=votes, abort=abort)
        votes = tuple(replace(vote, sink=self.turn) for vote in made.votes)
        return replace(made, votes=votes, settings={self.turn: {}}, uses={self.turn: made.uses["box"]})


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_what_sinks_have_written_in_turn_is_taken_back_from_each(tmp_path: Path, epochs: int) -> None:
    """Also from one that none of the newest epochs has written to; and what each has open is ended."""
    query = InTurn(tmp_path / "query")
    query.complete(0)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    query.complete(*range(1, epochs + 1))
    (tmp_path / "box-b/t9-0.open").touch()  # by a run that was killed
    names = sorted({"abc"[epoch % 3] for epoch in range(1, epochs + 1)})
    *others, last = [("--sink", f"{name}=operator_bench:GivingBoxSink") for name in names]
    named = [word for each in others for word in each]
    words = (
        "savepoint",
        "restore",
        tmp_path / "place",
        "--to",
        tmp_path / "to",
        "--output",
        "withdraw",
        "--yes",
    )
    unnamed = run(*words, *named)
    assert unnamed.returncode == 64
    assert f"if that is your class, say so with --sink {names[-1]}=" in " ".join(unnamed.stderr.split())
    assert len(list(tmp_path.glob("box-*/*.done"))) == 2 * (epochs + 1)
    done = run(*words, *named, *last)
    assert done.returncode == 0, done.stderr
    left = sorted(path.name for path in tmp_path.glob("box-*/*.*"))
    assert left == [".t9-0.aborted", "t0-0.done", "t0-1.done"]
    assert sorted(each.sink for each in records(tmp_path / "to")[0].withdrawn) == names
