"""A short campaign on real Spark and Kafka: one fault of every kind, and nothing is wrong afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import onceonly
from onceonly_proof.campaign.kinds import KINDS
from onceonly_proof.campaign.plan import plan_round

pytestmark = pytest.mark.acceptance

SEED = 5
CAMPAIGN = "TESTED_CAMPAIGN"
VERIFY = [sys.executable, "-W", "ignore", "-m", "onceonly", "verify"]


@pytest.mark.parametrize(
    "sink",
    [
        "kafka",
        pytest.param("redis", marks=pytest.mark.long),
        pytest.param("kafka+postgres+opensearch+delta", marks=pytest.mark.long),
    ],
)
def test_one_fault_of_every_kind_leaves_no_anomaly_and_nothing_behind(sink: str, tmp_path: Path) -> None:
    temporary = folders_of_jvms()
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    options = [*("--sink", sink, "--seed", str(SEED), "--round", "1", "--each")]
    process = start([*options, "--json", str(report), "--html", str(page)], tmp_path)

    assert process.wait(400) == 0, said(tmp_path)

    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    plan = plan_round(SEED, 1, sink, each=True)
    planned = [blow.fault for blow in plan.blows]
    assert found["verdict"] == "clean"
    # Who takes files away strikes where there are some, and who cuts connections where there is a server.
    of_query = [
        kind
        for kind in KINDS.values()
        if kind.query in {"", plan.query} and not (kind.served or kind.sources or kind.executors)
    ]
    assert len(planned) == sum(1 for kind in of_query if kind.points(sink))
    # What leads to a fault fires only where the job does not come there by itself.
    openers = [fault.opener for fault in planned if fault.opener]
    names = {fault.name for fault in planned}
    assert names <= found["faults"].keys() <= names | {fault.name for fault in openers}
    assert 0 <= sum(found["faults"].values()) - len(planned) <= len(openers)
    deaths = sum(fault.crashes for fault in planned)
    assert deaths <= found["crashes"] <= deaths + sum(fault.crashes for fault in openers)
    assert not any(found["anomalies"].values())
    (row,) = found["rounds"]
    assert row["rows"] > 0
    assert len(row["recovery_s"]) == sum(1 for fault in planned if fault.crashes and fault.measured)
    assert page.stat().st_size > 0
    # What was clean is not kept; nor what JVMs had that were killed.
    assert list((tmp_path / "work").iterdir()) == []
    assert folders_of_jvms() == temporary


@pytest.mark.parametrize(
    ("source", "sink", "crashes", "more"),
    [
        ("http", "files", 5, ["--no-dear"]),  # the one that runs every day is short
        *(
            pytest.param(source, "files", 12, [], marks=pytest.mark.long)
            for source in (
                *("socket", "rabbitmq", "rabbitmq-stream", "kinesis"),
                *("http-no-resume", "rabbitmq-no-ids"),
            )
        ),
        pytest.param("kinesis", "postgres", 12, ["--query", "window"], marks=pytest.mark.long),
        *(
            pytest.param(source, "files", 12, ["--executors", "2"], marks=pytest.mark.long)
            for source in ("rabbitmq-stream", "kinesis")
        ),
        *(
            pytest.param(source, "files", 12, ["--checkpoint", "s3+journals"], marks=pytest.mark.long)
            for source in ("http", "kinesis")
        ),
    ],
)
def test_a_source_is_read_once_while_all_that_reads_it_dies(
    source: str, sink: str, crashes: int, more: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    options = ["--source", source, "--sink", sink, "--seed", "1", "--crashes", str(crashes), *more]
    process = start([*options, "--json", str(report)], tmp_path)

    assert process.wait(900) == 0, said(tmp_path)

    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    assert (found["verdict"], found["matrix"][0]["source"]) == ("clean", source)
    assert found["crashes"] >= crashes
    assert not any(found["anomalies"].values())
    assert found["rounds"][0]["replays"] > 0
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("sink", "query", "seed"), [("files", "unchanged", "7"), ("postgres", "window", "6")]
)
def test_a_kinesis_source_without_fixed_ranges_is_caught(
    sink: str, query: str, seed: str, tmp_path: Path
) -> None:
    """What stands is noted and not kept to: another attempt reads what is there by then.

    Of these seeds, epochs read up to the newest record, and rows come all the time: each replay has more of them.
    """
    code = tmp_path / "code"
    shutil.copytree(
        Path(onceonly.__file__).parent, code / "onceonly", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = code / "onceonly" / "sources" / "kinesis" / "reading.py"
    text = path.read_text(encoding="utf-8")
    for before, after in (
        ("standing = ranges.get(share.number, share.group, share.start)", "standing = None"),
        ("if standing == found:", "if True:"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    report = tmp_path / "report.json"
    options = ["--source", "kinesis", "--sink", sink, "--query", query, "--seed", seed]
    process = start([*options, "--crashes", "8", "--json", str(report)], tmp_path, code)

    assert process.wait(900) == 1, said(tmp_path)

    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    assert found["anomalies"]["duplicated"] + found["anomalies"]["lost"] > 0


def test_a_campaign_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    process = start(["--sink", "kafka", "--minutes", "5", "--seed", "1"], tmp_path)
    try:
        deadline = time.monotonic() + 120
        # The broker, the job's Python and its JVM.
        while len(own := family(tmp_path)) < 4:
            assert process.poll() is None, said(tmp_path)
            assert time.monotonic() < deadline, said(tmp_path)
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait(60)

    _, alive = psutil.wait_procs(own, timeout=60)
    assert alive == []
    deadline = time.monotonic() + 60
    while family(tmp_path):
        assert time.monotonic() < deadline, family(tmp_path)
        time.sleep(0.1)


def start(options: list[str], folder: Path, code: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a campaign; ``code`` is the folder of another package onceonly than this one."""
    work = folder / "work"
    work.mkdir()
    path = [str(code), *filter(None, [os.environ.get("PYTHONPATH")])]
    other = {} if code is None else {"PYTHONPATH": os.pathsep.join(path)}
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [*VERIFY, *options],
            stdout=said,
            stderr=said,
            env={**os.environ, "TMPDIR": str(work), CAMPAIGN: str(folder), **other},
        )


def folders_of_jvms() -> set[Path]:
    """What JVMs keep among temporary files where nobody gives them a folder of their own: see conftest.py."""
    folder = Path(tempfile.gettempdir())
    return {path for each in ("artifacts-*", "spark-*", "liblz4-java-*") for path in folder.glob(each)}


def said(folder: Path) -> str:
    return (folder / "said").read_text(encoding="utf-8")


def family(folder: Path) -> list[psutil.Process]:
    """Find the processes of a campaign by what each inherits: also those that nobody is a parent of."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get(CAMPAIGN) == str(folder)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
