"""Jobs of a campaign whose executors are processes of their own: how they are started, and how one of them dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any, cast

import msgspec
import psutil
import pytest
from tests.unit.test_campaign_matrix import one

from onceonly_proof.campaign import lives, page, result, session, speculating
from onceonly_proof.campaign.classes import jars
from onceonly_proof.campaign.lives import Life, Lives
from onceonly_proof.embedded.standalone import Standalone

if TYPE_CHECKING:
    from pathlib import Path

WORKER = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("executors", "master"), [(0, "local[2,4]"), (2, "local-cluster[2,1,700]")])
def test_a_session_has_threads_or_executors(
    executors: int, master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(session, "local_session", lambda _, **given: asked.update(given))
    monkeypatch.setattr(session, "spark_jars", lambda: "")
    monkeypatch.setattr(tempfile, "tempdir", "/short")
    session.session(tmp_path, executors=executors)
    assert asked["master"] == master
    own = {name: value for name, value in asked["conf"].items() if name.startswith("spark.executor.")}
    assert own.get("spark.executor.memory") == ("700m" if executors else None)
    # What a JVM that is killed has left goes with the job's own folder.
    assert ("-Djava.io.tmpdir=/short" in own.get("spark.executor.extraJavaOptions", "")) == bool(executors)


def test_a_life_is_told_how_many_executors_and_where_they_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    class Started:
        @staticmethod
        def start(command: list[str], *, env: dict[str, str], **_: object) -> None:
            started.append((command, env))

    class Classes:
        def option(self, _: Path) -> str:
            return "archive"

    monkeypatch.setattr(lives, "JobProcess", Started)
    Lives(tmp_path / "a", {}, cast("Any", Classes()), executors=2).warm()
    Lives(tmp_path / "b", {}, cast("Any", Classes())).warm()
    Lives(tmp_path / "c", {}, cast("Any", Classes()), executors=2, speculation=True).warm()
    (command, env), (others, other), (third, _) = started
    assert ["--speculation" in each for each in (command, others, third)] == [False, False, True]
    assert {"--executors=2", "--java="} <= set(command)
    assert {"--executors=0", "--java=archive"} <= set(others)
    home = tmp_path / "a" / "life-1" / "home"
    assert (env["SPARK_HOME"], "SPARK_HOME" in other) == (str(home), False)
    # Executors work in a folder of it.
    assert (home / "work").resolve() == tmp_path / "a" / "life-1" / "work"
    assert list((home / "work").iterdir()) == []
    assert (home / "jars").resolve() == jars()
    assert (home / "bin" / "spark-class").is_file()


@pytest.mark.parametrize("is_executor", [True, False])
def test_an_executor_dies_with_all_that_it_has_started(is_executor: bool, tmp_path: Path) -> None:  # noqa: FBT001
    name = "org.apache.spark.executor.CoarseGrainedExecutorBackend" if is_executor else "driver"
    command = [sys.executable, "-c", WORKER, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker = psutil.Process(int(process.stdout.readline()))
        try:
            assert (
                Life(tmp_path, cast("Any", None), cast("Any", None)).kill_executor(worker.pid) == is_executor
            )
            if is_executor:
                assert process.wait(60) == -signal.SIGKILL
                psutil.wait_procs([worker], timeout=20)
            assert psutil.pid_exists(worker.pid) != is_executor
        finally:
            process.kill()
            if psutil.pid_exists(worker.pid):
                worker.kill()
    assert not Life(tmp_path, cast("Any", None), cast("Any", None)).kill_executor(worker.pid)


def test_a_job_whose_tasks_have_second_attempts_runs_on_a_cluster_of_several_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts none on the host of the first."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(session, "local_session", lambda _, **given: asked.update(given))
    monkeypatch.setattr(session, "spark_jars", lambda: "")
    cluster = Standalone(tmp_path / "cluster", speculating.hosts(2))
    cluster.url = "spark://127.0.0.1:7"
    session.session(tmp_path, executors=2, cluster=cluster)
    assert asked["master"] == cluster.url
    assert (asked["conf"]["spark.speculation"], asked["conf"]["spark.cores.max"]) == ("true", "2")
    assert asked["conf"]["spark.eventLog.dir"] == str(tmp_path / "spark-log")
    assert speculating.hosts(2) == ["127.0.0.1", "127.0.0.2"]


def test_second_attempts_are_counted_as_spark_has_written_them_down(tmp_path: Path) -> None:
    """Also of a driver that was killed as it wrote."""
    assert speculating.second_attempts(tmp_path) == 0
    log = tmp_path / "spark-log"
    log.mkdir()

    def event(kind: str, *, second: bool) -> str:
        return json.dumps({"Event": kind, "Stage ID": 1, "Task Info": {"Task ID": 3, "Speculative": second}})

    told = [
        event("SparkListenerTaskStart", second=False),
        event("SparkListenerTaskStart", second=True),
        event("SparkListenerTaskEnd", second=True),
        json.dumps({"Event": "Another", "said": "SparkListenerTaskStart"}),
        event("SparkListenerTaskStart", second=True)[:-9],
    ]
    (log / "app-1.inprogress").write_text("\n".join(told))
    assert speculating.second_attempts(tmp_path) == 1


def test_a_round_on_such_a_cluster_proves_nothing_without_a_second_attempt() -> None:
    found = msgspec.structs.replace(one(), executors=2, speculation=True)
    assert " --executors 2 --speculation" in found.command
    assert "--speculation" not in one().command
    assert found.verdict == "inconclusive"
    assert "Spark started no second attempt of a task" in found.doubts[0]
    some = msgspec.structs.replace(found, second_attempts=3)
    assert (some.verdict, one().verdict) == ("clean", "clean")
    drawn = page.draw(result.fold([one(1), some], seed=1, machine={}, versions={}))
    assert drawn.count("--executors 2 --speculation --crashes") == 1
    assert "3 second attempts" in drawn


def test_a_round_says_how_many_executors_a_job_had() -> None:
    found = msgspec.structs.replace(one(), executors=2)
    assert " --executors 2" in found.command
    assert "--executors" not in one().command
    report = result.fold([one(1), found], seed=1, machine={}, versions={})
    drawn = page.draw(report)
    assert drawn.count("--executors 2 --crashes") == 1
