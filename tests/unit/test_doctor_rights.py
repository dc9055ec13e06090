"""``onceonly doctor CHECKPOINT``: a right that the job lacks on a target trips one probe, and nothing is changed."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.unit import (
    hdfs_double,
    test_conformance_delta,
    test_conformance_iceberg,
    test_conformance_sinks,
    test_conformance_sql,
)
from tests.unit.doctor_bench import BOX, sick, well
from tests.unit.hdfs_double import HdfsDouble
from tests.unit.http_double import served
from tests.unit.operator_bench import BoxSink, QueryCoordinator
from tests.unit.store_bench import at_home, serving
from tests.unit.test_operations_audit import Job

from onceonly.durable import access
from onceonly.errors import ConfigurationError
from onceonly.log.opening import accept_move
from onceonly.model import Capabilities, Guarantee
from onceonly.operations import doctor, doctor_targets
from onceonly.operations.given import Given
from onceonly.operations.probes import Health
from onceonly.sinks.iceberg import target as iceberg_target
from onceonly.sinks.opensearch.sink import OpenSearchSink
from onceonly.sinks.opensearch.target import Target
from onceonly.stores import opened
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onceonly.operations.probes import Finding
    from onceonly.ports import QueryContext

NOBODY = pwd.getpwnam("nobody").pw_uid
RIGHTS = ("targets", "give the rights")
PARTS = ("target", "manifests", "staging")


def examined(job: Job) -> dict[tuple[str, str], Finding]:
    sink = job.suite.sink
    given = Given(classes={sink.name: f"{sink.__module__}:{sink.__qualname__}"})
    before = {path: path.stat().st_mtime_ns for path in job.world.folder.rglob("*")}
    found = doctor.examine(job.checkpoint, given, only=("targets",), within_s=30)
    assert {path: path.stat().st_mtime_ns for path in job.world.folder.rglob("*")} == before
    return {(each.category, each.probe): each for each in found}


def ill(found: dict[tuple[str, str], Finding]) -> set[tuple[str, str]]:
    return {name for name, each in found.items() if each.health not in {Health.WELL, Health.UNASKED}}


def files(job: Job, part: str) -> Path:
    target = Path(job.world.options["path"])
    return {
        "target": target,
        "manifests": target / "_onceonly" / "epochs" / job.world.query / "files",
        "staging": target / "_onceonly" / "staging" / job.world.query / "files",
    }[part]


def database(job: Job, part: str) -> Path:
    path = Path(job.world.options["url"].removeprefix("sqlite:///"))
    return path if part == "file" else path.parent


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """What closes a place to this user, also where the tests are root's."""

    def close(place: Path) -> None:
        ask = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: not (Path(path) == place and mode & os.W_OK) and ask(path, mode)
        )

    return close


@pytest.fixture
def deep() -> Iterator[Path]:
    """A folder that every user may enter; those of pytest are closed by each session that starts."""
    top = Path(tempfile.mkdtemp())
    for each in (top, *top.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(0o711)
    (top / "deep").mkdir()
    yield top / "deep"
    shutil.rmtree(top)


def of_nobody(monkeypatch: pytest.MonkeyPatch, places: Iterable[Path]) -> None:
    """Have the job run as another user than the doctor, who may write to these places."""
    monkeypatch.setattr(doctor_targets, "jobs_user", lambda _checkpoint: NOBODY)
    for place in places:
        place.chmod(0o777)


def test_of_a_checkpoint_on_hdfs_the_name_node_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = well(tmp_path / "cp")
    monkeypatch.setenv("HADOOP_USER_NAME", "job")
    for double in hdfs_double.serve(HdfsDouble(owner="job")):
        monkeypatch.setattr(opened, "_told", Hadoop({"dfs.namenode.http-address": double.host}))
        for path in (each for each in coordinator.path.rglob("*") if each.is_file()):
            double.files[f"/cp/{path.relative_to(coordinator.path)}"] = path.read_bytes()
        accept_move("hdfs://nn/cp")

        def told() -> Finding:
            found = doctor.examine("hdfs://nn/cp", Given(), only=("disk",), within_s=30)
            return next(each for each in found if each.probe == "permissions")

        assert told().health is Health.WELL
        double.closed = {"/cp/commits"}
        assert (told().health, "does not permit it" in told().told) == (Health.SICK, True)
        double.owner = "another"
        assert told().health is Health.UNASKED


@pytest.mark.parametrize("part", PARTS)
def test_a_folder_of_files_that_the_jobs_user_may_not_write(
    tmp_path: Path, closed: Callable[[Path], None], part: str
) -> None:
    job = Job(test_conformance_sinks.TestFiles(), tmp_path)
    assert ill(examined(job)) == set()
    place = files(job, part)
    assert place.is_dir()
    closed(place)
    found = examined(job)
    assert ill(found) == {RIGHTS}
    assert f"may not make files in {place}, which belongs to" in found[RIGHTS].told


def test_a_folder_is_asked_for_the_user_of_the_job_and_not_of_the_doctor(
    deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(test_conformance_sinks.TestFiles(), deep)
    of_nobody(monkeypatch, (files(job, part) for part in PARTS))
    assert ill(examined(job)) == set()
    files(job, "target").chmod(0o755)
    found = examined(job)
    assert ill(found) == {RIGHTS}
    assert "nobody may not make files in" in found[RIGHTS].told


def test_a_folder_above_a_target_that_the_jobs_user_may_not_enter(
    deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(test_conformance_sinks.TestFiles(), deep)
    of_nobody(monkeypatch, (files(job, part) for part in PARTS))
    deep.chmod(0o744)  # it may be read, which is not enough
    found = examined(job)
    assert ill(found) == {RIGHTS}
    assert f"nobody may not enter {deep}, which belongs to" in found[RIGHTS].told
    subprocess.run(["/bin/sh", "-c", found[RIGHTS].next_step], check=True)
    assert ill(examined(job)) == set()


def test_a_folder_above_a_checkpoint_that_the_jobs_user_may_not_enter(
    deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = well(deep / "cp")
    of_nobody(monkeypatch, (each for each in coordinator.path.rglob("*") if each.is_dir()))
    assert sick(coordinator) == set()
    deep.chmod(0o744)
    assert sick(coordinator) == {("disk", "permissions")}


def test_a_folder_is_closed_also_where_a_link_leads_below_it(deep: Path) -> None:
    (deep / "out").mkdir()
    link = deep.with_name("link")
    link.symlink_to(deep / "out")
    reach = partial(access.require_reachable, link / "rows", user=NOBODY, who="it")
    assert reach() == ""
    deep.chmod(0o700)
    with pytest.raises(ConfigurationError, match=f"nobody may not enter {deep}"):
        reach()


def test_what_the_doctor_may_not_look_into_is_not_told(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != deep and ask(path, mode))
    said = access.require_writable([deep / "rows"], user=NOBODY, who="it")
    assert said.endswith(f"may not enter {deep}: ask as nobody")


def test_where_nothing_tells_whose_the_job_is_nobodys_rights_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a checkpoint on a store: the doctor's own rights say nothing of the job's."""
    for suite in (test_conformance_sinks.TestFiles(), test_conformance_sql.TestSqlite()):
        folder = tmp_path / suite.sink.name
        folder.mkdir()
        job = Job(suite, folder)
        monkeypatch.setattr(doctor_targets, "jobs_user", lambda _checkpoint: None)
        found = examined(job)[RIGHTS]
        assert found.health is Health.UNASKED
        assert "nothing tells as which user of this machine the job runs" in found.told


def test_of_a_checkpoint_in_a_bucket_each_right_is_asked_for_by_what_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = well(tmp_path / "cp")
    for double in serving(monkeypatch, tmp_path):
        place = at_home(double, coordinator, "cp")
        before = dict(double.objects)

        def told(place: str = place) -> Finding:
            found = doctor.examine(place, Given(), only=("disk",), within_s=30)
            return next(each for each in found if each.probe == "permissions")

        assert told().health is Health.WELL
        for call, right in (("PART", "s3:PutObject"), ("DELETE", "s3:DeleteObject")):
            double.denied = {call}
            assert told().health is Health.SICK
            assert right in told().next_step
        double.denied, double.versions = set(), True
        assert (told().health, "may be removed in" in told().told) == (Health.UNASKED, True)
        assert double.objects == before


@pytest.mark.parametrize("part", ["file", "folder"])
def test_a_database_in_a_file_that_may_not_be_written(
    tmp_path: Path, closed: Callable[[Path], None], part: str
) -> None:
    job = Job(test_conformance_sql.TestSqlite(), tmp_path)
    assert ill(examined(job)) == set()
    closed(database(job, part))
    found = examined(job)
    assert ill(found) == {RIGHTS}
    assert (
        f"may not {'write' if part == 'file' else 'make files in'} {database(job, part)}"
        in found[RIGHTS].told
    )


@pytest.mark.parametrize("part", ["_delta_log", "onceonly/{query}/delta", "onceonly/{query}/delta/_open"])
def test_a_folder_of_a_table_that_may_not_be_written(
    tmp_path: Path, closed: Callable[[Path], None], part: str
) -> None:
    job = Job(test_conformance_delta.TestDelta(), tmp_path)
    assert ill(examined(job)) == set()
    place = Path(job.world.options["path"], part.format(query=job.world.query))
    assert place.is_dir()
    closed(place)
    found = examined(job)
    assert ill(found) == {RIGHTS}
    assert f"may not make files in {place}, which belongs to" in found[RIGHTS].told


def test_a_catalogue_in_a_file_that_may_not_be_written(
    tmp_path: Path, closed: Callable[[Path], None]
) -> None:
    job = Job(test_conformance_iceberg.TestIceberg(), tmp_path)
    assert examined(job)[RIGHTS].health is Health.WELL
    file = Path(job.world.options["catalog.uri"].removeprefix("sqlite:///"))
    closed(file)
    found = examined(job)
    assert ill(found) == {RIGHTS}
    assert f"may not write {file}" in found[RIGHTS].told


def test_what_another_catalogue_permits_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_target, "file_of", lambda _catalog: None)
    found = examined(Job(test_conformance_iceberg.TestIceberg(), tmp_path))[RIGHTS]
    assert found.health is Health.UNASKED
    assert "what its catalogue permits shows only in doing it" in found.told


class Mute(BoxSink):
    """A sink that only takes rows."""

    capabilities = Capabilities(guarantees=frozenset({Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE}))


def test_of_a_target_that_keeps_nothing_to_ask_for_it_is_not_said_that_it_answers(tmp_path: Path) -> None:
    coordinator = QueryCoordinator(tmp_path / "cp")
    (coordinator.path / "offsets").mkdir(exist_ok=True)
    given = Given(classes={"box": f"{__name__}:Mute"})
    coordinator.set_barrier(0)
    link = coordinator.link(0, votes=[replace(coordinator.vote(0), handle=None)])
    coordinator.log.put_link(link)
    found = doctor.examine(str(coordinator.path), given, only=("targets",), within_s=10)
    health = {each.probe: each.health for each in found}
    assert health["answer"] is Health.UNASKED
    assert health["give the rights"] is Health.UNASKED, "the other questions were asked all the same"


def test_of_a_sink_that_was_not_asked_it_is_not_said_that_it_has_its_rights(tmp_path: Path) -> None:
    coordinator = well(tmp_path / "cp")
    given = Given(classes={"box": BOX})
    found = doctor.examine(str(coordinator.path), given, only=("targets",), within_s=10)
    (told,) = (each for each in found if each.probe == "give the rights")
    assert told.health is Health.UNASKED


class Lacking(BoxSink):
    """A sink whose server refuses something."""

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        raise ConfigurationError(f"{context.query} may not INSERT, {user}", next_step="GRANT INSERT")


class Reticent(BoxSink):
    """A sink whose server does not tell."""

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        return f"nothing is told of {context.sink} to {user}"


def test_what_a_server_refuses_is_told_and_what_it_does_not_tell_is_no_alarm(tmp_path: Path) -> None:
    coordinator = well(tmp_path / "cp")
    assert sick(coordinator, box=f"{__name__}:Lacking") == {RIGHTS}
    assert sick(coordinator, box=f"{__name__}:Reticent") == set()
    given = Given(classes={"box": f"{__name__}:Reticent"})
    found = doctor.examine(str(coordinator.path), given, only=("targets",), within_s=10)
    (told,) = (each.told for each in found if each.health is Health.UNASKED)
    assert told == f"of the sink box, nothing is told of box to {os.geteuid()}"


@pytest.mark.parametrize(
    ("uid", "mode", "may"),
    [(NOBODY, 0o755, False), (NOBODY, 0o757, True), (NOBODY, 0o752, False), (0, 0o500, True), (2**31 - 7, 0o700, True)],
)  # fmt: skip
def test_a_mode_tells_what_another_user_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, mode: int, *, may: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY + 1)  # of one's own the system is asked
    folder = tmp_path / "place"
    folder.mkdir()
    folder.chmod(mode)
    assert access.may_write(folder, uid) is may


# --- clusters -----------------------------------------------------------------------------------------------

HAS = {"read": True, "index": True, "delete": True, "view_index_metadata": True}


def cluster(monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, Any]]) -> OpenSearchSink:
    def ask(_: Target, method: str, path: str, body: object = None, *, fine: Any = ()) -> tuple[int, Any]:  # noqa: ANN401
        assert method == "POST"
        assert 403 in fine
        return answers.get(path, (400, {"error": f"no handler found for uri [{path}]"}))

    monkeypatch.setattr(Target, "ask", ask)
    return OpenSearchSink({"url": "http://localhost:9200", "index": "rows", "key": "key"})


@pytest.mark.parametrize("lacking", [None, "index", "delete"])
def test_elasticsearch_tells_of_each_right(monkeypatch: pytest.MonkeyPatch, lacking: str | None) -> None:
    index = {"rows": {**HAS, **({lacking: False} if lacking else {})}, "books": HAS}
    told = {"username": "writer", "has_all_requested": lacking is None, "index": index}
    sink = cluster(monkeypatch, {"/_security/user/_has_privileges": (200, told)})
    if lacking is None:
        assert sink.require_rights(sink_context()) == ""
        return
    with pytest.raises(ConfigurationError, match=f"does not permit the user writer {lacking} on rows"):
        sink.require_rights(sink_context())


REFUSED = {"type": "security_exception", "reason": "no permissions for [it] and User [name=writer]"}


class Guarded(BaseHTTPRequestHandler):
    """OpenSearch with its security: ``closed`` names what it refuses, by method and the last part of the path."""

    closed: ClassVar[tuple[str, str, str]] = ("", "", "")
    missing: ClassVar[str] = ""
    asked: ClassVar[list[str]] = []

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        index, ask = path.split("/")[1:3] if path.count("/") > 1 else (path[1:], "")
        self.asked.append(f"{self.command} {index} {ask}")
        status, told = 200, dict[str, Any]()
        if index == "_security":
            status, told = 400, {"error": "no handler found"}
        elif index == self.missing:
            status = 404
        elif (self.command, index, ask) == self.closed:
            # Of one document in many it tells in the answer.
            status = 200 if ask in {"_bulk", "_mget"} else 403
            by_ask: dict[str, dict[str, Any]] = {
                "_bulk": {"items": [{"index": {"status": 403, "error": REFUSED}}]},
                "_mget": {"docs": [{"_id": "x", "error": REFUSED}]},
            }
            told = by_ask.get(ask, {"error": REFUSED, "status": 403})
        elif ask == "_mget":
            told = {"docs": [{"_id": "x", "found": False}]}
        elif ask == "_bulk":
            told = {"items": [{"index": {"status": 409, "error": {"reason": "no document was found"}}}]}
        elif self.command == "DELETE":
            status, told = 409, {"error": {"reason": "no document was found"}, "status": 409}
        data = b"" if self.command == "HEAD" else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815  the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def guarded(monkeypatch: pytest.MonkeyPatch, **more: object) -> Iterator[OpenSearchSink]:
    given: dict[str, object] = {"closed": ("", "", ""), "missing": "", **more, "asked": []}
    for name, value in given.items():
        monkeypatch.setattr(Guarded, name, value)
    for url in served(Guarded):
        sink = OpenSearchSink({"url": f"http://{url}", "index": "rows", "books": "books", "key": "key"})
        yield sink
        sink.close()


def test_of_opensearch_each_right_is_tried_by_what_never_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    for sink in guarded(monkeypatch):
        assert sink.require_rights(sink_context()) == ""
    tried = [tuple(each.split(" ")) for each in Guarded.asked[1:]]
    each_index = [("HEAD", ""), ("POST", "_mget"), ("POST", "_bulk")]
    expected = [(method, index, ask) for index in ("rows", "books") for method, ask in each_index]
    assert sorted(tried) == sorted([*expected, ("DELETE", "rows", "_doc")])
    for each in tried:
        for sink in guarded(monkeypatch, closed=each):
            with pytest.raises(ConfigurationError, match="does not permit the user this one"):
                sink.require_rights(sink_context())


def test_books_that_are_not_there_yet_are_not_made_and_not_said_to_be_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for sink in guarded(monkeypatch, missing="books"):
        assert sink.require_rights(sink_context()).endswith("has no index books yet, which a start makes")
    assert [each for each in Guarded.asked if "books" in each] == ["HEAD books "]


def sink_context() -> QueryContext:
    from onceonly.model import Guarantee
    from onceonly.ports import QueryContext

    return QueryContext(query="q", sink="opensearch", guarantee=Guarantee.EXACTLY_ONCE)
