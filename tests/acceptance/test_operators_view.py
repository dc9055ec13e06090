"""The person on call sees and settles it all while the job is down, and where Spark is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import operator_job
import pytest
from harness import python_path, start
from ledger_sink import by_epoch, staged
from operator_job import EPOCHS, KEYS

from onceonly.log.progress import ProgressFiles

if TYPE_CHECKING:
    from harness import Bench, Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ALL = ("kafka", "files", "results")
ROWS = [(f"k{number % 17}", str(number)) for number in range(300)]
# No class is imported because a checkpoint names it.
LEDGER = ("--sink", "ledger=ledger_sink:LedgerSink")
RESULTS = ("--sink", "results=docs_sink:ResultsSink")


def onceonly(*arguments: str | Path, path: str | Path = "", **env: str) -> tuple[int, Any, str]:
    """Run the command line in a process of its own; give its status, its JSON, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "onceonly", *map(str, arguments), "--json"],
        env={**os.environ, "PYTHONPATH": python_path(path), **env},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def assert_well(checkpoint: str | Path, *arguments: str | Path, path: str | Path = "") -> None:
    """See that the doctor gives no alarm on a job that has ended well."""
    status, told, said = onceonly("doctor", checkpoint, "--timeout", "60", *arguments, path=path)
    assert status == 0, (told and [each for each in told["findings"] if each["health"] != "well"]) or said


@dataclass
class Job:
    """The job of ``operator_job.py`` on one checkpoint."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / "counts"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def start(self, failpoints: str = "") -> Run:
        told = [str(self.checkpoint), str(self.ledger)]
        path = {"PYTHONPATH": python_path()}
        return start(operator_job.__file__, self.folder, *told, failpoints=failpoints, env=path)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Leave what a job leaves that was killed between its votes and its decision, in its sixth epoch."""
    job = Job(tmp_path_factory.mktemp("operator"))
    run = job.start("link.before_put=pause@6")
    try:
        run.wait_for("link.before_put")
        run.until(lambda: _spark_reports(job, 4), "Spark reported chk-4")
        _a_living_run_is_left_alone(job, run)
    finally:
        run.kill_tree()
    return job


def _spark_reports(job: Job, epoch: int) -> bool:
    return ProgressFiles(job.checkpoint).get(epoch) is not None


def _a_living_run_is_left_alone(job: Job, run: Run) -> None:
    open_before = staged(job.ledger)
    status, _, told = onceonly("transactions", "abort", "chk-5", "--yes", job.checkpoint)
    assert status == 64
    assert "a run is alive" in told
    assert f"process {run.process.pid} (driver)" in told
    status, seen, _ = onceonly("checkpoints", "list", job.folder)
    assert status == 0
    assert seen["checkpoints"][0]["run"]["state"] == "alive"
    assert staged(job.ledger) == open_before != []


def test_a_killed_job_is_shown_with_its_state(job: Job) -> None:
    status, seen, _ = onceonly("checkpoints", "list", job.folder)
    assert status == 0
    (checkpoint,) = seen["checkpoints"]
    assert checkpoint["run"] == {"state": "down", "who": ""}
    assert [(each["name"], each["state"]) for each in checkpoint["epochs"]][:3] == [
        ("chk-5", "in flight"), ("chk-4", "complete"), ("chk-3", "complete"),
    ]  # fmt: skip
    _, seen, _ = onceonly("checkpoints", "show", "chk-4", job.folder)
    epoch = seen["checkpoints"][0]["epoch"]
    assert {part["span"] for part in epoch["sources"][0]["partitions"]} & {20}
    assert epoch["sinks"]["ledger"]["rows"] == KEYS
    (operator,) = epoch["spark"]["operators"]
    assert operator["name"] == "stateStoreSave"
    assert operator["rows_total"] == KEYS
    assert operator["memory_bytes"] > 0
    assert epoch["spark"]["duration_ms"]["triggerExecution"] > 0
    assert epoch["bytes"]["state"]["0"] > 0
    assert [step["step"].split(" ")[0] for step in epoch["steps"]] == ["barrier", "link", "receipt:", "noted"]
    assert {handle["state"] for handle in epoch["handles"]} == {"committed"}


def test_where_spark_is_not_installed_it_is_all_seen(job: Job, tmp_path: Path) -> None:
    """In a fresh environment that has the four required packages, as locked, and nothing else."""
    python = _bare_environment(tmp_path)
    packages = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    assert packages == [
        "click",
        "markdown-it-py",
        "mdurl",
        "msgspec",
        "onceonly",
        "pygments",
        "rich",
        "xxhash",
    ]
    command = python.with_name("onceonly")
    for arguments, words in (
        (["checkpoints", "list"], "chk-5"),
        (["checkpoints", "show", "chk-4"], "stateStoreSave"),
        (["transactions", "list"], "nothing is pending"),
        (["transactions", "list", "--all"], "committed"),
    ):
        done = subprocess.run(
            [command, *arguments, job.folder], capture_output=True, text=True, check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert words in done.stdout


def _bare_environment(folder: Path) -> Path:
    """Make an environment with the wheel and its required packages; give its Python."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = lock.replace("\\\n", "").splitlines()
    wanted = ("click==", "markdown-it-py==", "mdurl==", "msgspec==", "pygments==", "rich==", "xxhash==")
    (folder / "core.txt").write_text(
        "\n".join(line for line in blocks if line.startswith(wanted)), encoding="utf-8"
    )
    tools = Path(sys.executable).parent
    wheels, venv = folder / "wheels", folder / "venv"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", venv / "bin/python"]
    install = [*pip, "install", "--no-deps"]
    for command in (
        [tools / "hatchling", "build", "-t", "wheel", "-d", wheels],
        [sys.executable, "-m", "venv", "--without-pip", venv],
        [*install, "--require-hashes", "-r", folder / "core.txt"],
    ):  # fmt: skip
        subprocess.run(list(map(str, command)), check=True, cwd=ROOT)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run(list(map(str, [*install, wheel])), check=True)
    return venv / "bin/python"


@pytest.mark.long
def test_what_is_undecided_is_aborted_and_the_job_goes_on(job: Job) -> None:
    """Runs last on this job."""
    abandoned = staged(job.ledger)
    assert abandoned
    status, seen, _ = onceonly("transactions", "list", "--ask", *LEDGER, job.checkpoint)
    assert status == 1
    assert sorted("." + each["transaction"] for each in seen["checkpoints"][0]["open_outside"]) == sorted(
        abandoned
    )
    status, seen, told = onceonly("transactions", "abort", "chk-5", "--yes", *LEDGER, job.checkpoint)
    assert status == 0, told
    (settled,) = seen["checkpoints"]
    assert {each["outcome"] for each in settled["transactions"]} == {"aborted and fenced"}
    (link,) = settled["links"]
    assert link in {"5.0 ABORT", "5.1 ABORT"}
    assert staged(job.ledger) == []
    run = job.start()
    try:
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
    found = Counter((epoch, row["k"], row["count"]) for epoch, row in by_epoch(job.ledger))
    assert found == Counter(
        (epoch, f"k{key}", 4 * (epoch + 1)) for epoch in range(EPOCHS) for key in range(KEYS)
    )
    status, seen, _ = onceonly("checkpoints", "list", job.folder)
    assert {each["state"] for each in seen["checkpoints"][0]["epochs"]} <= {"complete", "aborted"}
    assert_well(job.checkpoint, *LEDGER)


def test_kafka_files_and_a_database_are_settled_with_the_job_down(bench: Bench) -> None:
    bench.args = ["--way", "epoch", "--per-epoch", "100", *bench.with_all_sinks()]
    bench.feed(ROWS)
    bench.run_and_kill_at("link.after_put", 2)
    status, seen, _ = onceonly("transactions", "list", bench.folder)
    assert status == 1
    pending = seen["checkpoints"][0]["transactions"]
    assert {each["sink"] for each in pending} == set(ALL)
    assert {each["state"] for each in pending} == {"pending"}
    before = {sink: len(bench.rows_in(sink)) for sink in ALL}
    assert set(before.values()) == {100}
    status, _, told = onceonly(
        "transactions", "commit", "chk-1", "--yes", bench.checkpoint, path=bench.folder
    )
    assert status == 64
    assert " ".join(RESULTS) in told
    assert {sink: len(bench.rows_in(sink)) for sink in ALL} == before, (
        "nothing is committed before all is known"
    )
    # Killed on its way, and run again.
    fired = bench.folder / "fired-operator"
    fired.mkdir()
    killed = subprocess.run(
        [sys.executable, "-m", "onceonly", "transactions", "commit", "chk-1", "--yes", *RESULTS, bench.checkpoint],
        env={
            **os.environ, "PYTHONPATH": str(bench.folder), "ONCEONLY_FAILPOINTS": "plan.after_recommit=kill@2",
            "ONCEONLY_FAILPOINTS_DIR": str(fired),
        },
        check=False, capture_output=True,
    )  # fmt: skip
    assert killed.returncode == -9
    commit = ("transactions", "commit", "chk-1", "--yes", *RESULTS)
    status, seen, told = onceonly(*commit, bench.checkpoint, path=bench.folder)
    assert status == 0, told
    outcomes = {(each["transaction"], each["outcome"]) for each in seen["checkpoints"][0]["transactions"]}
    assert {name for name, _ in outcomes} >= {each["transaction"] for each in pending}
    assert {outcome for _, outcome in outcomes} <= {"committed", "already committed"}
    assert {sink: len(bench.rows_in(sink)) for sink in ALL} == dict.fromkeys(ALL, 200)
    bench.assert_nothing_left_open(*ALL)
    assert onceonly("transactions", "list", "--ask", *RESULTS, bench.folder, path=bench.folder)[0] == 0
    bench.run()
    bench.assert_exactly_once(ROWS, *ALL)
    bench.assert_nothing_left_open(*ALL)
    assert_well(bench.checkpoint, *RESULTS, path=bench.folder)
