"""Both distributions, built as they would be published, and used from an environment that holds nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.archives import unpack

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
SOURCES = {"onceonly": ROOT, "onceonly-proof": ROOT / "proof"}
JOB = """
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import onceonly

os.environ["PYSPARK_PYTHON"] = sys.executable
folder = Path(sys.argv[1])
(folder / "in").mkdir()
(folder / "in/rows.json").write_text("".join(f'{{"id": {number}}}\\n' for number in range(100)))
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
onceonly.register(spark)
rows = spark.readStream.schema("id long").json(str(folder / "in"))
writer = rows.writeStream.format("onceonly.files").option("format", "json").option("path", str(folder / "out"))
query = writer.option("checkpointLocation", str(folder / "chk")).trigger(availableNow=True).start()
query.awaitTermination()
print("ROWS", sum(epoch.rows for epoch in onceonly.files.committed(str(folder / "out"))))
print("HOME", onceonly.__file__)
"""


def built(folder: Path) -> dict[str, Path]:
    """Build each sdist from the source tree and each wheel from its sdist; return the wheels."""
    wheels = {}
    for name, source in SOURCES.items():
        dist = folder / name
        run(TOOLS / "hatchling", "build", "-t", "sdist", "-d", dist, cwd=source)
        (sdist,) = dist.glob("*.tar.gz")
        unpack(sdist, dist / "unpacked")
        (unpacked,) = (dist / "unpacked").iterdir()
        run(TOOLS / "hatchling", "build", "-t", "wheel", "-d", dist, cwd=unpacked)
        (wheels[name],) = dist.glob("*.whl")
    return wheels


def environment(folder: Path, *wheels: Path, needs: str) -> Path:
    """Make an environment with these wheels and all that ``needs`` asks for, from here; return its ``bin``."""
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    (packages,) = venv.glob("lib/python*/site-packages")
    for name in closure(needs) - SOURCES.keys():
        for file in metadata.files(name) or ():
            if ".." not in file.parts:  # what is a command's has another Python's name in it
                share(Path(str(file.locate())), packages / file)
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", venv / "bin/python")
    run(*pip, "install", "--no-deps", "--no-compile", *wheels)
    return venv / "bin"


def share(source: Path, target: Path) -> None:
    """Give a file a second name; copy it where the other file system is another."""
    if source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


def closure(requirement: str) -> set[str]:
    """Return the names of all that a requirement asks for, itself among them, as it is installed here."""
    found: set[str] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        each = waiting.pop()
        for extra in ("", *each.extras):
            key = f"{canonicalize_name(each.name)}[{extra}]"
            if key in found or (each.marker and not each.marker.evaluate({"extra": ""})):
                continue
            found.add(key)
            for text in metadata.requires(each.name) or ():
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    inner.marker = None
                    waiting.append(inner)
    return {key.partition("[")[0] for key in found}


def run(*command: str | Path, cwd: Path | None = None, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command without what the tests' own environment would lend it."""
    clean = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return built(tmp_path_factory.mktemp("dist"))


def test_a_wheel_holds_its_own_package_and_nothing_else(wheels: dict[str, Path]) -> None:
    for name, package in (("onceonly", "onceonly"), ("onceonly-proof", "onceonly_proof")):
        with zipfile.ZipFile(wheels[name]) as wheel:
            tops = {entry.split("/")[0] for entry in wheel.namelist()}
            files = wheel.namelist()
        version = metadata.version(name)
        assert tops == {package, f"{package}-{version}.dist-info"}
        assert f"{package}/py.typed" in files


def test_without_the_proof_one_sentence_says_what_to_install(wheels: dict[str, Path], tmp_path: Path) -> None:
    commands = environment(tmp_path / "core", wheels["onceonly"], needs="onceonly")
    for command in ("demo", "verify"):
        told = run(commands / "onceonly", command, "--seed", "1", status=2).stderr
        assert "comes with the distribution onceonly-proof" in told
        assert "pip install 'onceonly[proof]'" in told
    listed = run(commands / "onceonly", "--help").stdout
    assert "checkpoints" in listed
    assert "Not installed" in listed
    run(commands / "onceonly", "checkpoints", "list", tmp_path, status=64)


@pytest.mark.long
def test_a_job_and_the_demo_run_from_the_wheels(wheels: dict[str, Path], tmp_path: Path) -> None:
    commands = environment(tmp_path / "all", *wheels.values(), needs="onceonly-proof[demo]")
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    told = run(commands / "python", tmp_path / "job.py", tmp_path, cwd=tmp_path).stdout
    assert "ROWS 100" in told
    assert str(tmp_path) in told.partition("HOME")[2], "the wheel's own code, not the source tree's"
    report = tmp_path / "report.json"
    run(commands / "onceonly", "demo", "--events", "5000", "--kills", "0", "--json", report, cwd=tmp_path)
    assert json.loads(report.read_text(encoding="utf-8"))["clean"] is True
