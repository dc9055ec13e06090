"""The main job under kills, through the command line, small: exit status, JSON, duplicates where they belong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import java_options

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

KEYS = {
    "missing", "duplicated", "wrong_windows", "kills", "epochs", "transactions", "seconds", "guarantee", "clean",
}  # fmt: skip


def run_demo(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    report = folder / "report.json"
    command = [
        *(sys.executable, "-m", "onceonly", "demo", "--json", str(report)),
        *("--picture", str(folder / "picture.html"), *options),
    ]
    environment = {**os.environ, **java_options()}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=880, cwd=folder, env=environment
    )
    told = done.stdout + done.stderr
    assert report.exists(), told
    return done.returncode, json.loads(report.read_text(encoding="utf-8")), told


def test_exactly_once_under_kills(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    status, report, told = run_demo(
        tmp_path, "--events", "10000", "--kills", "2", "--seed", "7", "--keep", str(kept)
    )
    assert status == 0, told
    assert report.keys() >= KEYS
    assert report["clean"] is True
    assert (report["missing"], report["duplicated"], report["wrong_windows"]) == (0, 0, 0)
    assert sum(report["kills"].values()) == 2
    assert report["failures"] == 0, "the job may only die by the kills"
    # Two queries, at least as many epochs each as the demo plans, four slots in one of them.
    assert report["epochs"] >= 80
    assert report["transactions"].keys() == {"committed", "recovered", "aborted"}
    assert report["transactions"]["committed"] + report["transactions"]["recovered"] >= 5 * 40
    assert "CLEAN for exactly-once" in told
    assert "<svg" in (tmp_path / "picture.html").read_text(encoding="utf-8")
    assert not _jobs()
    assert_operator_sees(kept, report)


def assert_operator_sees(kept: Path, report: dict[str, Any]) -> None:
    """List and show what the demo has left, with no Spark to be had and no broker running."""
    listed = {
        Path(each["path"]).name: each for each in told_without_spark("checkpoints", "list", "--all", kept)
    }
    for query, epochs in report["epochs_by_query"].items():
        assert listed[query]["run"]["state"] == "down"
        assert listed[query]["epochs_known"] >= epochs
        assert {epoch["state"] for epoch in listed[query]["epochs"][1:]} == {"complete"}
    newest = listed["results"]["epochs"][1]
    assert newest["sinks"].keys() == {"kafka", "files"}
    shown = told_without_spark("checkpoints", "show", newest["name"], kept / "checkpoints" / "results")
    epoch = shown[0]["epoch"]
    assert {handle["state"] for handle in epoch["handles"] if handle["transaction"]} == {"committed"}
    assert epoch["sources"][0]["partitions"]
    assert epoch["spark"]["operators"][0]["rows_total"] > 0
    assert all(each["transactions"] == [] for each in told_without_spark("transactions", "list", kept))


def told_without_spark(*words: object) -> list[dict[str, Any]]:
    program = (
        "import sys; sys.modules.update(pyspark=None, pyarrow=None, pandas=None, confluent_kafka=None, kafka=None)\n"
        "from onceonly.cli import main; sys.argv[0] = 'onceonly'; main()"
    )
    command = [sys.executable, "-c", program, *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["checkpoints"]
    return found


@pytest.mark.long
def test_at_least_once_shows_its_duplicates(tmp_path: Path) -> None:
    status, report, told = run_demo(
        tmp_path, "--events", "5000", "--kills", "1", "--seed", "1", "--guarantee", "at-least-once"
    )
    assert status == 0, told
    assert report["duplicated"] > 0
    assert (report["missing"], report["wrong_windows"]) == (0, 0)
    assert report["guarantee"] == "at-least-once"


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    import signal
    import time

    folder = tmp_path / "kept"
    command = [
        *(sys.executable, "-m", "onceonly", "demo", "--events", "5000", "--kills", "0"),
        *("--keep", str(folder)),
    ]
    # A shell starts what runs in the background deaf to Ctrl-C, and the demo would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    demo = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 120
        while not (folder / "job.log").exists():
            assert demo.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        started = psutil.Process(demo.pid).children(recursive=True)
        assert started
        demo.send_signal(signal.SIGINT)
        _, told = demo.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
        demo.kill()
        demo.wait()
    assert demo.returncode == 130
    assert "interrupted" in told
    assert "Traceback" not in told
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []


def _jobs() -> list[psutil.Process]:
    """Return the jobs of demos that still run, whoever has adopted them."""
    return [
        each
        for each in psutil.process_iter(["cmdline"])
        if "onceonly_proof.demo.job" in (each.info["cmdline"] or [])
    ]
