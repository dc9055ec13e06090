"""What goes wrong on HDFS as users meet it, on a real one: one sentence, nothing lost, and it goes on afterwards."""

from __future__ import annotations

import getpass
import itertools
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from stored_query import ROWS, StoredQuery

from onceonly.errors import (
    CommitDelayedError,
    ConfigurationError,
    OnceonlyError,
    UnavailableError,
    WriteFailedError,
)
from onceonly.stores import opened, webhdfs
from onceonly.stores.access import Hadoop
from onceonly.stores.name_nodes import Server
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server

JOB = "etl"
_folders = itertools.count()


class Cluster:
    """An HDFS that looks at permissions, and its operator."""

    def __init__(self, server: EmbeddedHdfs) -> None:
        self.server = server
        host, _, port = server.web.rpartition(":")
        self._operator = WebHdfs((Server(host, int(port), tls=False),), user=getpass.getuser())

    def home(self) -> str:
        """Make a folder of the job's user; return its path."""
        path = f"/home-{next(_folders)}"
        self.ask("PUT", "MKDIRS", path)
        self.own(path, JOB)
        return path

    def ask(self, method: str, operation: str, path: str, **more: str) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = self._operator.ask(method, operation, path, **more)
        return found

    def own(self, path: str, user: str) -> None:
        """Give what is at and below a path to a user."""
        for each in self._tree(path):
            self.ask("PUT", "SETOWNER", each, owner=user)

    def permit(self, path: str, mode: str) -> None:
        """Set what may be done in the folders at and below a path."""
        for each in self._tree(path, files=False):
            self.ask("PUT", "SETPERMISSION", each, permission=mode)

    def limit(self, path: str, quota: str) -> None:
        """Let a folder have no more names, or no more bytes, than it has."""
        used = self.ask("GET", "GETCONTENTSUMMARY", path)["ContentSummary"]
        count = int(str(used["directoryCount"])) + int(str(used["fileCount"]))
        value = count if quota == "namespacequota" else max(1, int(str(used["spaceConsumed"])))
        self.ask("PUT", "SETQUOTA", path, **{quota: str(value)})

    def lift(self, path: str, quota: str) -> None:
        self.ask("PUT", "SETQUOTA", path, **{quota: "-1"})

    def rows(self, folder: str) -> Counter[int]:
        """Count the rows that anybody finds who lists a folder."""
        found: Counter[int] = Counter()
        for name in self.server.names(folder.lstrip("/")):
            if name[0] not in "._":
                content = self.server.read(f"{folder.lstrip('/')}/{name}")
                assert content is not None
                found.update(int(json.loads(line)["id"]) for line in content.splitlines())
        return found

    def _tree(self, path: str, *, files: bool = True) -> Iterator[str]:
        yield path
        for each in self.ask("GET", "LISTSTATUS", path)["FileStatuses"]["FileStatus"]:  # type: ignore[attr-defined]
            if each["type"] == "DIRECTORY":
                yield from self._tree(f"{path}/{each['pathSuffix']}", files=files)
            elif files:
                yield f"{path}/{each['pathSuffix']}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"dfs.permissions.enabled": "true"}
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs"), settings=settings) as server:
        yield Cluster(server)


@pytest.fixture(autouse=True)
def told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HADOOP_USER_NAME", JOB)
    monkeypatch.setattr(webhdfs, "_AGAIN_S", 1.0)
    opened.tell(Hadoop(cluster.server.hadoop()))
    yield
    opened.tell(Hadoop())


@dataclass(frozen=True)
class Trouble:
    """Something that befalls a folder, until its operator sees to it; and what is to be said of it."""

    begins: Callable[[Cluster, str], None]
    ends: Callable[[Cluster, str], None]
    says: str
    next_step: str


TROUBLES = {
    "may not write": Trouble(
        lambda cluster, path: cluster.permit(path, "555"),
        lambda cluster, path: cluster.permit(path, "755"),
        r"HDFS does not permit it: Permission denied: user=etl, access=WRITE, inode=\"{path}",
        "give the job's user the right to write in this folder",
    ),
    "may not pass": Trouble(
        lambda cluster, path: cluster.permit(path, "600"),
        lambda cluster, path: cluster.permit(path, "755"),
        r"HDFS does not permit it: Permission denied: user=etl, access=EXECUTE, inode=\"{path}",
        "give the job's user the right to pass through this folder",
    ),
    "names are used up": Trouble(
        lambda cluster, path: cluster.limit(path, "namespacequota"),
        lambda cluster, path: cluster.lift(path, "namespacequota"),
        r"NSQuotaExceededException: The NameSpace quota .* of directory {path} is exceeded",
        "raise",
    ),
    "space is used up": Trouble(
        lambda cluster, path: cluster.limit(path, "storagespacequota"),
        lambda cluster, path: cluster.lift(path, "storagespacequota"),
        r"DSQuotaExceededException: The DiskSpace quota of {path} is exceeded",
        "raise",
    ),
    "safe mode": Trouble(
        lambda cluster, _path: cluster.server.admin("-safemode", "enter"),
        lambda cluster, _path: cluster.server.admin("-safemode", "leave"),
        r"HDFS is in safe mode, and for 1 s did not do what was asked \(\w+ of {path}.*Name node is in safe mode",
        "hdfs dfsadmin -safemode leave",
    ),
}
each_trouble = pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)


@contextmanager
def befallen(trouble: Trouble, cluster: Cluster, path: str, *kinds: type[OnceonlyError]) -> Iterator[None]:
    """Let a trouble befall a path while the block runs, which is to end by an error that tells of it."""
    trouble.begins(cluster, path)
    try:
        with pytest.raises(kinds) as caught:
            yield
    finally:
        trouble.ends(cluster, path)
    assert_told(caught.value, trouble, path)


def assert_told(error: OnceonlyError, trouble: Trouble, path: str) -> None:
    """See that one sentence names what is wrong, and what is to be done about it."""
    assert "\n" not in str(error)
    assert_matches(trouble.says.format(path=path), error.what)
    if not isinstance(error, CommitDelayedError):  # which a supervised query takes up by itself
        assert trouble.next_step in str(error)


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(AssertionError, match=pattern):  # shows both where it does not
        raise AssertionError(text)


def expected(epochs: int) -> Counter[int]:
    return Counter(range(ROWS * epochs))


@pytest.fixture
def on_hdfs(cluster: Cluster, tmp_path: Path) -> tuple[StoredQuery, str]:
    """A query with its checkpoint on HDFS, and that one's path; its files are here."""
    path = f"{cluster.home()}/chk"
    cluster.ask("PUT", "MKDIRS", path)
    cluster.own(path, JOB)
    return StoredQuery(f"{cluster.server.url}{path}", str(tmp_path / "out")), path


def local_rows(query: StoredQuery, tmp_path: Path) -> Counter[int]:
    assert query.path == str(tmp_path / "out")
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_bytes().splitlines()]
    return Counter(int(json.loads(line)["id"]) for line in lines)


@each_trouble
def test_a_checkpoint_in_trouble_is_told_at_a_start_and_goes_on_when_that_is_over(
    cluster: Cluster, on_hdfs: tuple[StoredQuery, str], tmp_path: Path, trouble: Trouble
) -> None:
    query, path = on_hdfs
    query.begin()
    query.write(0)
    query.close()
    with befallen(trouble, cluster, path, ConfigurationError, UnavailableError):
        query.plan(1)
    query.start()
    query.write(1, 2)
    assert query.newest() == 2
    assert local_rows(query, tmp_path) == expected(3)


@each_trouble
def test_a_checkpoint_in_trouble_before_a_decision_decides_nothing_and_the_epoch_runs_again(
    cluster: Cluster, on_hdfs: tuple[StoredQuery, str], tmp_path: Path, trouble: Trouble
) -> None:
    query, path = on_hdfs
    query.begin()
    query.write(0)
    plan = query.plan(1)
    ballot = query.prepare(plan)
    with befallen(trouble, cluster, path, ConfigurationError, UnavailableError):
        query.decide(plan, ballot)
    assert local_rows(query, tmp_path) == expected(1), "nothing shows that is not decided"
    query.start()
    query.write(1, 2)
    assert local_rows(query, tmp_path) == expected(3)


@pytest.fixture
def to_hdfs(cluster: Cluster, tmp_path: Path) -> tuple[StoredQuery, str]:
    """A query that writes to HDFS, and the path of its target; its checkpoint is here."""
    path = f"{cluster.home()}/out"
    cluster.ask("PUT", "MKDIRS", path)
    cluster.own(path, JOB)
    (tmp_path / "chk").mkdir()
    return StoredQuery(str(tmp_path / "chk"), f"{cluster.server.url}{path}"), path


@each_trouble
def test_a_target_in_trouble_is_told_before_the_first_record_and_goes_on_when_that_is_over(
    cluster: Cluster, to_hdfs: tuple[StoredQuery, str], trouble: Trouble
) -> None:
    query, path = to_hdfs
    query.begin()
    with befallen(trouble, cluster, path, ConfigurationError, UnavailableError):
        query.plan(0)
    query.start()
    query.write(0, 1)
    assert cluster.rows(path) == expected(2)


@each_trouble
def test_a_target_in_trouble_while_rows_are_written_shows_nothing_and_they_are_written_again(
    cluster: Cluster, to_hdfs: tuple[StoredQuery, str], trouble: Trouble
) -> None:
    query, path = to_hdfs
    query.begin()
    query.write(0)
    plan = query.plan(1)
    with befallen(trouble, cluster, path, ConfigurationError, UnavailableError, WriteFailedError):
        query.prepare(plan)
    assert cluster.rows(path) == expected(1)
    query.start()
    query.write(1, 2)
    assert cluster.rows(path) == expected(3)
    assert staged(cluster, path, query) == []


@each_trouble
def test_a_target_in_trouble_after_a_decision_delays_its_commit_and_no_more(
    cluster: Cluster, to_hdfs: tuple[StoredQuery, str], trouble: Trouble
) -> None:
    """Space is not needed any more for what only gets its name."""
    query, path = to_hdfs
    query.begin()
    query.write(0)
    plan = query.plan(1)
    ballot = query.prepare(plan)
    with befallen(trouble, cluster, path, OnceonlyError):
        query.decide(plan, ballot)
    query.start()
    query.write(1, 2)
    assert cluster.rows(path) == expected(3)
    assert staged(cluster, path, query) == []


def staged(cluster: Cluster, path: str, query: StoredQuery) -> list[str]:
    return cluster.server.names(f"{path.lstrip('/')}/_onceonly/staging/{query.id}/files")


def test_who_may_put_and_not_list_is_told_so(
    cluster: Cluster, on_hdfs: tuple[StoredQuery, str], tmp_path: Path
) -> None:
    query, path = on_hdfs
    query.begin()
    query.write(0)
    cluster.permit(path, "333")
    query.close()
    with pytest.raises(ConfigurationError, match="user=etl, access=READ_EXECUTE") as caught:
        query.plan(1)
    assert "the right to read and to list this folder" in caught.value.next_step
    cluster.permit(path, "755")
    query.start()
    query.write(1)
    assert local_rows(query, tmp_path) == expected(2)


def test_who_may_not_remove_what_another_user_put_is_told_so(
    cluster: Cluster, on_hdfs: tuple[StoredQuery, str], tmp_path: Path
) -> None:
    """Folders in which each may put, and remove his own alone, and a job that was started as somebody else before."""
    query, path = on_hdfs
    query.begin()
    epochs = 25
    query.write(*range(epochs))
    query.close()
    cluster.own(path, "former")
    cluster.permit(path, "1777")
    with pytest.raises(ConfigurationError, match="Permission denied by sticky bit: user=etl") as caught:
        query.write(*range(epochs, epochs + 25))
    assert "hdfs dfs -chown -R" in caught.value.next_step
    cluster.own(path, JOB)
    query.start()
    last = query.next + 25
    query.write(*range(query.next, last))
    assert local_rows(query, tmp_path) == expected(last)


@pytest.mark.parametrize("kind", ["rpc", "nobody", "no host", "data node"])
def test_an_http_address_that_is_wrong_is_named(
    cluster: Cluster, on_hdfs: tuple[StoredQuery, str], tmp_path: Path, kind: str
) -> None:
    query, _ = on_hdfs
    query.begin()
    rpc = cluster.server.url.removeprefix("hdfs://")
    address, says = {
        "rpc": (rpc, "it answers HTTP 404 Not Found, as neither a name node nor HttpFS does"),
        "nobody": (f"127.0.0.1:{free_ports(1)[0]}", "Connection refused"),
        "no host": ("nowhere.invalid:9870", "nowhere.invalid:9870: .*(not known|resolution)"),
        "data node": (
            cluster.server.data_web,
            "it answers like a data node, as neither a name node nor HttpFS does",
        ),
    }[kind]
    opened.tell(Hadoop({**cluster.server.hadoop(), "dfs.namenode.http-address": address}))
    path = f"{cluster.server.url}/nowhere/out"
    (tmp_path / "chk").mkdir()
    target = StoredQuery(str(tmp_path / "chk"), path)
    target.begin()
    for wrong in (query, target):
        with pytest.raises(UnavailableError, match=says) as caught:
            wrong.plan(0)
        assert address in caught.value.what
        assert "dfs.namenode.http-address" in str(caught.value)
    opened.tell(Hadoop(cluster.server.hadoop()))
    query.start()
    query.write(0)
    assert local_rows(query, tmp_path) == expected(1)


def test_folders_above_that_are_missing_are_made(cluster: Cluster) -> None:
    home = cluster.home()
    query = StoredQuery(f"{cluster.server.url}{home}/no/such/chk", f"{cluster.server.url}{home}/nor/such/out")
    query.begin()
    query.write(0, 1)
    assert cluster.rows(f"{home}/nor/such/out") == expected(2)


@pytest.mark.parametrize("where", ["out", "out/deeper"])
def test_a_file_in_the_place_of_a_folder_is_named(cluster: Cluster, tmp_path: Path, where: str) -> None:
    home = cluster.home()
    opened.open_store(opened.address_of(f"{cluster.server.url}{home}")).replace("out", b"a file")
    (tmp_path / "chk").mkdir()
    query = StoredQuery(str(tmp_path / "chk"), f"{cluster.server.url}{home}/{where}")
    query.begin()
    with pytest.raises(
        ConfigurationError,
        match=rf"a file is in the way, where \S+{home}/{where}.* needs folders \(.*{home}/out",
    ):
        query.plan(0)
