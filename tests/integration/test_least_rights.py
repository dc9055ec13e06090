"""The least rights that the docs name, on a server that has policies: with them all goes, without one it is named."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stored_query import StoredQuery
from tests.unit.operator_bench import run
from tests.unit.store_bench import told

from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ConfigurationError
from onceonly.log.opening import look
from onceonly.log.place import log_store
from onceonly.log.progress import Progress
from onceonly.log.stored_progress import StoredProgress
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import remember
from onceonly.sinks.files import FilesSink
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.moto import EmbeddedMoto
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onceonly.stores.port import RewritableStore

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
BUCKET = "lake"
_numbers = itertools.count()
EPOCHS = 45
"""Two times the history that is folded, and taken away."""


def named(page: str, after: str, before: str) -> list[str]:
    """Return the rights that a page names between two of its texts."""
    text = (PAGES / page).read_text(encoding="utf-8").partition(after)[2].partition(before)[0]
    return re.findall(r"`(s3:\w+)`", text)


CHECKPOINT = named("checkpoints-on-stores.md", "## The least rights", "with SSE-KMS")
FILES = named("files-on-stores.md", "## The least rights", "On HDFS")


READING = named("checkpoints-on-stores.md", "Commands that only look", "on S3")
DOCTOR = named("checkpoints-on-stores.md", "Commands that only look", "## ")[len(READING) :]


def policy(rights: list[str], folder: str) -> list[object]:
    """Return the statements that give rights, each on the bucket or on the objects of a folder, as the page says."""
    bucket = [right for right in rights if "Bucket" in right]
    objects = [right for right in rights if right not in bucket]
    given = ((objects, f"arn:aws:s3:::{BUCKET}/{folder}/*"), (bucket, f"arn:aws:s3:::{BUCKET}"))
    return [{"Effect": "Allow", "Action": each, "Resource": where} for each, where in given if each]


USERS = {
    "chk": policy(CHECKPOINT, "chk"),
    "chk-taken": policy(CHECKPOINT, "chk"),
    "files": policy(FILES, "files"),
    "operator": [*policy(CHECKPOINT, "chk"), *policy(FILES, "files")],
    "doctor": [*policy(CHECKPOINT, "chk"), *policy([*FILES, *DOCTOR], "files")],
    "reader": [*policy(READING, "chk"), *policy(READING, "files")],
    **{f"chk-{right}": policy([each for each in CHECKPOINT if each != right], "chk") for right in CHECKPOINT},
    **{f"files-{right}": policy([each for each in FILES if each != right], "files") for right in FILES},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMoto]:
    users = {name.replace(":", "."): statements for name, statements in USERS.items()}
    with EmbeddedMoto(tmp_path_factory.mktemp("moto"), rights=users) as found:
        found.make_bucket(BUCKET)
        yield found


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(opened, "_clients", {})
    yield
    opened.tell(Hadoop())


def as_user(server: EmbeddedMoto, name: str) -> None:
    opened.tell(Hadoop(server.hadoop(name.replace(":", "."))))


def begun(checkpoint: str) -> RewritableStore:
    """Make Spark's side of a checkpoint, with an epoch in flight."""
    spark = opened.open_store(parse(checkpoint))
    spark.replace("metadata", json.dumps({"id": "q"}).encode())
    at(spark, 0)
    MemorySink.stores.clear()
    remember(MemorySink)
    return spark


def at(spark: RewritableStore, epoch: int) -> None:
    spark.replace(f"offsets/{epoch}", f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}'.encode())


def started(checkpoint: str, application: str = "app") -> QueryCoordinator:
    settings = QuerySettings(checkpoint=checkpoint, history=10)
    made = QueryCoordinator(settings, actor="driver", application=application)
    made.enlist(SinkSettings(name="memory"), MemorySink, ())
    return made


def with_files(checkpoint: Path, path: str) -> QueryCoordinator:
    """Begin a query whose checkpoint is in a folder, and its files in a bucket."""
    (checkpoint / "offsets").mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"t":{"0":0}}')
    made = QueryCoordinator(QuerySettings(checkpoint=str(checkpoint)), actor="driver", application="a")
    made.enlist(SinkSettings(name="files", options={"path": path}), FilesSink, (("id", "bigint"),))
    return made


def test_the_pages_name_what_is_tried() -> None:
    assert CHECKPOINT == ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"]
    assert set(FILES) > set(CHECKPOINT)


def test_with_these_a_query_runs_restarts_folds_its_log_and_is_looked_at(server: EmbeddedMoto) -> None:
    checkpoint = f"s3a://{BUCKET}/chk/query"
    as_user(server, "chk")
    spark = begun(checkpoint)
    for first, application in ((0, "a"), (EPOCHS // 2, "b")):
        coordinator = started(checkpoint, application)
        for epoch in range(first, first + EPOCHS // 2):
            coordinator.decide(coordinator.plan(epoch, run=application), [])
            spark.replace(f"commits/{epoch}", b"v1\n{}")
            at(spark, epoch + 1)
        coordinator.close()
    log = look(checkpoint)[0]
    assert log.receipt(EPOCHS // 2 * 2 - 1) is not None
    assert log_store(checkpoint).list_names("history/"), "old links are folded, which removes them"
    reports = StoredProgress(log_store(checkpoint))
    reports.put(Progress(epoch=1, duration_ms={"addBatch": 7}))
    reports.close()


@pytest.mark.parametrize("right", CHECKPOINT)
def test_without_one_of_them_it_is_named_before_the_first_record(server: EmbeddedMoto, right: str) -> None:
    checkpoint = f"s3a://{BUCKET}/chk/without-{right[3:]}"
    as_user(server, "all")
    begun(checkpoint)
    as_user(server, f"chk-{right}")
    with pytest.raises(ConfigurationError, match="S3 does not permit it") as caught:
        started(checkpoint).plan(0, run="r")
    assert right in caught.value.next_step


@pytest.mark.parametrize("right", FILES)
def test_without_one_of_those_of_files_it_is_named_before_the_first_record(
    server: EmbeddedMoto, tmp_path: Path, right: str
) -> None:
    as_user(server, f"files-{right}")
    coordinator = with_files(tmp_path, f"s3a://{BUCKET}/files/without-{right[3:]}")
    with pytest.raises(ConfigurationError, match="S3 does not permit it") as caught:
        coordinator.plan(0, run="r")
    assert right in caught.value.next_step


@pytest.mark.parametrize("right", ["s3:PutObject", "s3:GetObject"])
def test_a_right_that_is_taken_in_the_middle_of_an_epoch_is_named_and_the_next_start_goes_on(
    server: EmbeddedMoto, right: str
) -> None:
    checkpoint = f"s3a://{BUCKET}/chk/taken-{right[3:]}"
    as_user(server, "chk-taken")
    server.give("chk-taken", policy(CHECKPOINT, "chk"))
    spark = begun(checkpoint)
    coordinator = started(checkpoint)
    plan = coordinator.plan(0, run="r")
    server.give("chk-taken", policy([each for each in CHECKPOINT if each != right], "chk"))
    with pytest.raises(ConfigurationError, match="S3 does not permit it") as caught:
        coordinator.decide(plan, [])
    assert right in caught.value.next_step
    server.give("chk-taken", policy(CHECKPOINT, "chk"))
    again = started(checkpoint, "other")
    again.decide(again.plan(0, run="r2"), [])
    assert look(checkpoint)[0].receipt(0) is not None
    spark.replace("commits/0", b"v1\n{}")
    at(spark, 1)
    again.decide(again.plan(1, run="r2"), [])


def test_a_bucket_that_is_not_there_is_named_before_the_first_record(
    server: EmbeddedMoto, tmp_path: Path
) -> None:
    as_user(server, "all")
    with pytest.raises(ConfigurationError, match=r"s3://nowhere/chk.* no such bucket"):
        begun("s3a://nowhere/chk")
    with pytest.raises(ConfigurationError, match="no such bucket"):
        started("s3a://nowhere/chk")
    with pytest.raises(ConfigurationError, match="no such bucket"):
        with_files(tmp_path, "s3a://nowhere/rows").plan(0, run="r")


def commands(server: EmbeddedMoto, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line, and this process, be a user of the server, as its own file of settings says."""
    text = "".join(f"{option} {value}\n" for option, value in server.hadoop(name).items())
    told(monkeypatch, folder / f"{name}.conf", text)


def asked(*command: str, status: int = 0) -> Any:  # noqa: ANN401  JSON
    done = run(*command, "--json")
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return json.loads(done.stdout)


def written(folder: str) -> StoredQuery:
    """Write some epochs as the job's user, with files and a checkpoint in the bucket."""
    query = StoredQuery(f"s3a://{BUCKET}/chk/{folder}", f"s3a://{BUCKET}/files/{folder}")
    query.begin()
    query.write(*range(3))
    query.close()
    return query


def test_with_these_the_operators_commands_do_their_work(
    server: EmbeddedMoto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(server, "operator", tmp_path, monkeypatch)
    query = written("operated")
    checkpoint, place = query.checkpoint, f"s3a://{BUCKET}/chk/savepoints"
    (audited,) = asked("audit", checkpoint)["checkpoints"]
    assert {each["word"] for each in audited["findings"]} == {"same"}
    # This server tells of putting by doing it alone, and S3 itself without.
    assert "what may be put and removed in" in examined(checkpoint)
    commands(server, "doctor", tmp_path, monkeypatch)
    assert "removed" not in examined(checkpoint)
    commands(server, "operator", tmp_path, monkeypatch)
    made = asked("savepoint", "create", checkpoint, place)
    asked("savepoint", "verify", place)
    for where in (checkpoint, query.path):
        expire = ("files", "expire", where, "--older-than", "0 s", "--grace", "0 s", "--yes")
        sinks = [sink for _ in range(2) for sink in asked(*expire)["sinks"]]
        assert "removed" in {each["step"] for sink in sinks for each in sink["epochs"]}
        query.start()
        query.write(query.next)
        query.close()
    asked("checkpoints", "list", f"s3a://{BUCKET}/chk")
    asked("transactions", "list", checkpoint)
    asked("savepoint", "restore", place, "--to", f"s3a://{BUCKET}/chk/restored", "--output", "again")
    assert run("savepoint", "drop", f"{place}/{made['name']}", "--yes").returncode == 0


def examined(checkpoint: str) -> str:
    """Return what ``doctor`` says of a checkpoint that is well."""
    found = asked("doctor", checkpoint, "--timeout", "60")["findings"]
    assert {each["health"] for each in found} <= {"well", "not asked"}, found
    return "; ".join(each["told"] for each in found)


def test_who_may_only_read_can_look_at_it_all(
    server: EmbeddedMoto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(server, "operator", tmp_path, monkeypatch)
    query = written("looked-at")
    place = f"s3a://{BUCKET}/chk/looked-at-savepoints"
    asked("savepoint", "create", query.checkpoint, place)
    commands(server, "reader", tmp_path, monkeypatch)
    (audited,) = asked("audit", query.checkpoint)["checkpoints"]
    assert {each["word"] for each in audited["findings"]} == {"same"}
    asked("checkpoints", "list", query.checkpoint)
    asked("checkpoints", "show", "chk-1", query.checkpoint)
    asked("transactions", "list", query.checkpoint)
    asked("savepoint", "verify", place)
    asked("savepoint", "list", place)
    asked("files", "expire", query.path, "--older-than", "0 s", "--dry-run")
    done = run("files", "expire", query.path, "--older-than", "0 s", "--yes")
    assert done.returncode != 0
    assert "S3 does not permit it" in done.stderr
    assert "s3:PutObject" in done.stderr


class TestFiles(SinkConformance):
    """Whatever the sink does in its life, by a user who has these rights and no others."""

    sink = FilesSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def s3(self, server: EmbeddedMoto) -> None:
        as_user(server, "files")
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        return {"path": f"s3a://{BUCKET}/files/rows-{next(_numbers)}", "format": "json"}

    def visible(self, options: Mapping[str, str]) -> Iterator[tuple[object, ...]]:
        for name in _visible(self.server, options["path"]):
            content = self.server.read(BUCKET, name) or b""
            yield from (tuple(json.loads(line).values()) for line in content.splitlines())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return self.server.uploads(BUCKET, _folder(options) + "/")


def _visible(server: EmbeddedMoto, path: str) -> list[str]:
    """List what Hive's and Spark's rule does not hide."""
    folder = _folder({"path": path})
    names = server.names(BUCKET, folder)
    return [
        name
        for name in names
        if not any(part[0] in "._" for part in name.removeprefix(folder + "/").split("/"))
    ]


def _folder(options: Mapping[str, str]) -> str:
    return options["path"].removeprefix(f"s3a://{BUCKET}/")
