from __future__ import annotations

import hashlib
import importlib.util
import re
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import SetupError
from onceonly.jars import ivy
from onceonly.jars import locked as jars
from onceonly.jars.installed import Spark, has_class, installed
from onceonly.jars.java import find_java
from onceonly_proof.embedded import jars as brokers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[2]
CONTENT = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}
NAMES = {"one-1.0.jar": "org.example:one:1.0", "two-2.0.jar": "org.example:two:2.0"}
TRIED = "spark-{0.line}_{0.scala}".format(installed())


class Repository:
    """Stands in for one attempt of Ivy: delivers what it holds, counts what it is asked."""

    def __init__(self) -> None:
        self.holds = dict(CONTENT)
        self.asked: list[list[str]] = []
        self.problems: list[str] = []
        self.after_attempt: Callable[[], None] = lambda: None

    def fetch(self, coordinates: Iterable[str], folder: Path, on_line: Callable[[str], None]) -> list[str]:
        names = set(coordinates)
        wanted = [jar for jar in jars._lock_list() if jar.coordinates in names]
        self.asked.append([jar.file_name for jar in wanted])
        problems = list(self.problems)
        for jar in wanted:
            if jar.file_name in self.holds:
                (folder / jar.file_name).write_bytes(self.holds[jar.file_name])
        self.after_attempt()
        return problems


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A lock list of two small jars and an empty cache folder."""
    users = {"one-1.0.jar": frozenset({"broker", TRIED}), "two-2.0.jar": frozenset({"broker"})}
    listed = tuple(
        jars.Jar(NAMES[file], hashlib.sha256(content).hexdigest(), users[file])
        for file, content in CONTENT.items()
    )
    monkeypatch.setattr(jars, "_lock_list", lambda: listed)
    monkeypatch.setenv("ONCEONLY_CACHE", str(tmp_path / "cache"))
    forget_what_was_verified(monkeypatch)
    return tmp_path / "cache" / "jars"


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, locked: Path) -> Repository:
    found = Repository()
    monkeypatch.setattr(ivy, "fetch", found.fetch)
    return found


def forget_what_was_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(jars, "_verified", set())


# --------------------------------------------------------------------------------- the lock list
def test_every_jar_is_locked_once_by_version_and_sha256() -> None:
    listed = jars._lock_list()
    assert len({jar.file_name for jar in listed}) == len(listed)
    for jar in listed:
        assert re.fullmatch(r"[\w.-]+:[\w.-]+:\d[\w.-]*(@zip)?", jar.coordinates)
        assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)
        assert jar.used_by
        servers = rf"broker|{'|'.join(brokers._OLDER.values())}|cassandra-5\.0|mariadb-11\.4"
        compared = r"delta-\d\.\d|jdbc-(mariadb|postgres)"
        known = rf"{servers}|{compared}|model|search-(opensearch|elasticsearch)|spark-\d\.\d_2\.1[23]|store-(hdfs|s3a)"
        assert all(re.fullmatch(known, user) for user in jar.used_by)


def test_a_set_up_fetches_no_older_broker(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = jars._lock_list()
    older = replace(two, used_by=frozenset({"broker-3.9"}))
    monkeypatch.setattr(jars, "_lock_list", lambda: (one, older))
    assert [path.name for path in jars.ensure_jars()] == ["one-1.0.jar"]
    assert [path.name for path in brokers.broker_classpath(release="3.9")] == ["two-2.0.jar"]


def test_a_broker_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(brokers.RELEASE_VARIABLE, raising=False)
    assert brokers.broker_release() == brokers.NEWEST
    monkeypatch.setenv(brokers.RELEASE_VARIABLE, "2.8")
    with pytest.raises(SetupError, match=r"'2\.8'") as raised:
        brokers.broker_release()
    assert "4.2, 3.9, 3.3" in raised.value.next_step


def test_the_connector_belongs_to_the_locked_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = re.search(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked
    run_on(monkeypatch, locked[1])
    assert f"org.apache.spark:spark-sql-kafka-0-10_2.13:{locked[1]}" in jars.packages().split(",")


def run_on(monkeypatch: pytest.MonkeyPatch, version: str, scala: str = "2.13") -> None:
    monkeypatch.setattr(jars, "installed", lambda: Spark(version, scala))


def test_packages_are_the_four_jars_of_the_connector_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    run_on(monkeypatch, "4.2.0")
    artifacts = {name.split(":")[1] for name in jars.packages().split(",")}
    assert artifacts == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }


@pytest.mark.parametrize(
    ("version", "scala", "connector"),
    [
        ("3.5.0", "2.12", "2.12:3.5."),
        ("4.0.5", "2.13", "2.13:4.0."),
        ("4.1.4", "2.13", "2.13:4.1."),
        ("4.2.1", "2.13", "2.13:4.2."),
        ("4.3.0", "2.13", "2.13:4.2."),  # its own is on no mirror that was asked
    ],
)
def test_packages_are_of_the_line_that_is_installed(
    monkeypatch: pytest.MonkeyPatch, version: str, scala: str, connector: str
) -> None:
    run_on(monkeypatch, version, scala)
    assert f"org.apache.spark:spark-sql-kafka-0-10_{connector}" in jars.packages()
    assert len(jars.packages().split(",")) == 4


@pytest.mark.parametrize(("version", "scala"), [("9.0.1", "2.13"), ("3.5.1", "2.13"), ("4.2.0", "3.3")])
def test_packages_of_a_line_that_was_not_tried_are_named_as_spark_names_them(
    monkeypatch: pytest.MonkeyPatch, version: str, scala: str
) -> None:
    run_on(monkeypatch, version, scala)
    assert jars.packages() == f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"


def test_jars_of_a_version_that_was_not_tried_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_on(monkeypatch, "9.0.1")
    with pytest.raises(SetupError, match=r"Spark 9\.0\.1 \(Scala 2\.13\) are in no lock list") as raised:
        jars.spark_jars()
    assert "onceonly.packages()" in raised.value.next_step


# --------------------------------------------------------------------------------- which Spark it is
@pytest.mark.parametrize(
    ("core", "version", "scala"),
    [
        ("spark-core_2.12-3.5.4.jar", "3.5.4", "2.12"),
        ("spark-core_2.13-4.0.1-amzn-0.jar", "4.0.1", "2.13"),
    ],
)
def test_the_version_is_that_of_sparks_own_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, core: str, version: str, scala: str
) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / core).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert installed() == Spark(version, scala)
    assert installed().line == version[:3]


@pytest.mark.parametrize(("version", "scala"), [("3.5.2.dev0", "2.12"), ("4.1.1+vendor", "2.13")])
def test_without_its_jars_pysparks_own_word_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, scala: str
) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "version.py").write_text(f'#\n__version__: str = "{version}"\n')
    monkeypatch.delenv("SPARK_HOME", raising=False)
    spec = importlib.util.spec_from_file_location(
        "pyspark",
        tmp_path / "pyspark" / "__init__.py",
        submodule_search_locations=[str(tmp_path / "pyspark")],
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert installed() == Spark(version[:5], scala)


def test_where_there_is_no_pyspark_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match="no PySpark here") as raised:
        jars.packages()
    assert "onceonly[spark]" in raised.value.next_step
    assert not has_class("org.apache.spark.sql.execution.streaming.MicroBatchExecution")


def test_a_class_is_looked_for_in_the_jar_of_sparks_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    with zipfile.ZipFile(tmp_path / "jars" / "spark-sql_2.13-9.9.9.jar", "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("org/example/There.class", b"x" * 100)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert has_class("org.example.There")
    assert not has_class("org.example.Here")


# ------------------------------------------------------------------------------------- resolving
def test_a_first_start_fetches_every_jar(repository: Repository, locked: Path) -> None:
    paths = jars.ensure_jars()
    assert {path.name: path.read_bytes() for path in paths} == CONTENT
    assert {path.parent for path in paths} == {locked}


def test_a_second_start_resolves_nothing(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    jars.ensure_jars()
    forget_what_was_verified(monkeypatch)
    jars.ensure_jars()
    assert len(repository.asked) == 1


def test_only_what_is_needed_is_fetched(repository: Repository, locked: Path) -> None:
    assert jars.spark_jars() == str(locked / "one-1.0.jar")
    assert repository.asked == [["one-1.0.jar"]]
    assert len(brokers.broker_classpath()) == 2
    assert repository.asked[1:] == [["two-2.0.jar"]]


def test_a_damaged_jar_is_named_and_resolved_again(
    repository: Repository,
    locked: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    jars.ensure_jars()
    (locked / "two-2.0.jar").write_bytes(b"secon")
    forget_what_was_verified(monkeypatch)
    jars.ensure_jars()
    assert repository.asked[1:] == [["two-2.0.jar"]]
    assert (locked / "two-2.0.jar").read_bytes() == b"second"
    assert "two-2.0.jar is damaged" in caplog.text


def test_other_bytes_than_the_locked_ones_are_never_installed(repository: Repository, locked: Path) -> None:
    repository.holds["two-2.0.jar"] = b"an impostor"
    with pytest.raises(SetupError, match=r"org\.example:two:2\.0; .* other bytes than the lock"):
        jars.ensure_jars()
    assert not (locked / "two-2.0.jar").exists()


def test_what_arrived_is_kept_and_only_the_rest_is_asked_for_again(repository: Repository) -> None:
    del repository.holds["two-2.0.jar"]
    repository.problems = ["java.net.SocketTimeoutException: Read timed out"]
    repository.after_attempt = lambda: repository.holds.update(CONTENT)
    assert len(jars.ensure_jars()) == 2
    assert repository.asked == [["one-1.0.jar", "two-2.0.jar"], ["two-2.0.jar"]]


def test_a_repository_that_keeps_timing_out_is_asked_three_times(repository: Repository) -> None:
    repository.holds.clear()
    repository.problems = ["java.net.SocketTimeoutException: Read timed out"]
    with pytest.raises(SetupError, match="Read timed out"):
        jars.ensure_jars()
    assert len(repository.asked) == 3


def test_without_a_network_the_error_names_the_jars_and_the_next_step_at_once(
    repository: Repository,
) -> None:
    repository.holds.clear()
    repository.problems = ["java.net.UnknownHostException: somewhere"]
    with pytest.raises(SetupError) as raised:
        jars.ensure_jars()
    assert "Jars are missing: org.example:one:1.0, org.example:two:2.0;" in raised.value.what
    assert "cannot be reached" in raised.value.what
    assert "`onceonly jars`" in raised.value.next_step
    assert len(repository.asked) == 1


def test_of_several_at_once_one_fetches_and_the_others_wait(repository: Repository) -> None:
    # Each takes the lock through a file of its own, as processes do.
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: jars.ensure_jars(), range(4)))
    assert len({tuple(answer) for answer in answers}) == 1
    assert len(repository.asked) == 1


def test_leftovers_of_a_killed_process_are_removed(repository: Repository, locked: Path) -> None:
    leftover = locked / ".resolving-killed"
    leftover.mkdir(parents=True)
    (leftover / "one-1.0.jar").write_bytes(b"fir")
    jars.ensure_jars()
    assert sorted(path.name for path in locked.iterdir()) == [".lock", *sorted(CONTENT)]


def test_a_cache_folder_that_cannot_be_made_is_named(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ONCEONLY_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=f"{tmp_path}/file/jars cannot be written") as raised:
        jars.ensure_jars()
    assert "ONCEONLY_CACHE" in raised.value.next_step


def test_the_cache_follows_the_desktop_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONCEONLY_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert jars.cache_folder() == Path("/somewhere/onceonly")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert jars.cache_folder() == Path("/home/somebody/.cache/onceonly")


# ---------------------------------------------------------------------------- what a machine lacks
def test_no_java_is_said_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no `java` on its PATH") as raised:
        find_java()
    assert "apt install openjdk-17-jre-headless" in raised.value.next_step


def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=f"{java} is Java 11, which is too old"):
        find_java()
    assert find_java(oldest=1) == str(java), "Ivy runs on it"


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SetupError) as raised:
        ivy.find_ivy()
    assert "onceonly[spark]" in raised.value.next_step


# ------------------------------------------------------------------------- the real Ivy, over HTTP
class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository on loopback that has both jars; gives its folder."""
    root = tmp_path / "mirror"
    for file, coordinates in NAMES.items():
        group, artifact, version = coordinates.split(":")
        folder = root.joinpath(*group.split("."), artifact, version)
        folder.mkdir(parents=True)
        (folder / file).write_bytes(CONTENT[file])
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        monkeypatch.setenv(ivy.REPOSITORY_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield root
        server.shutdown()
        thread.join()


@pytest.mark.integration
def test_ivy_fetches_the_listed_jars_from_a_mirror(locked: Path, mirror: Path) -> None:
    assert {path.name: path.read_bytes() for path in jars.ensure_jars()} == CONTENT
    assert sorted(path.name for path in locked.iterdir()) == [".lock", *sorted(CONTENT)]


@pytest.mark.integration
def test_ivy_keeps_what_it_got_where_a_mirror_lacks_a_jar(locked: Path, mirror: Path) -> None:
    next(mirror.rglob("two-2.0.jar")).unlink()
    with pytest.raises(SetupError, match=r"Jars are missing: org\.example:two:2\.0;"):
        jars.ensure_jars()
    assert (locked / "one-1.0.jar").read_bytes() == b"first"


@pytest.mark.integration
def test_ivy_without_a_network_ends_in_a_setup_error(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        closed_port = server.server_port
    monkeypatch.setenv(ivy.REPOSITORY_VARIABLE, f"http://127.0.0.1:{closed_port}")
    with pytest.raises(SetupError, match="cannot be reached from this machine"):
        jars.ensure_jars()
