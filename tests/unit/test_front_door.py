"""What somebody meets first: the set-up, the lock files, the import."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from onceonly.jars.locked import _lock_list

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROOF = tomllib.loads((ROOT / "proof" / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
LOCKED = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE))


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def fake(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def check_machine(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    make = shutil.which("make")
    assert make
    return subprocess.run(
        [make, "--no-print-directory", "-C", str(ROOT), "machine"],
        env={"PATH": str(path), "HOME": os.environ["HOME"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A PATH with a Python and a Java that will do, and nothing else."""
    folder = tmp_path / "bin"
    fake(folder, "python3", f'exec "{sys.executable}" "$@"')
    fake(folder, "java", "echo 'openjdk version \"17.0.1\" 2021-10-19' >&2")
    return folder


# ------------------------------------------------------------------------------------ the machine
def test_a_machine_that_will_do_is_passed_in_silence(good: Path) -> None:
    answer = check_machine(good)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_an_older_python_is_passed_over_for_a_newer_one_beside_it(good: Path) -> None:
    (good / "python3").rename(good / "python3.12")
    fake(good, "python3", "exit 1")
    assert check_machine(good).returncode == 0


@pytest.mark.parametrize(
    ("name", "script", "sentence"),
    [
        ("python3", "exit 1", "Python 3.11 or newer is needed and was not found"),
        ("python3", 'case "$2" in *venv*) exit 1;; esac', "python3 has no venv module"),
        ("java", "exit 127", "Java 17 or newer is needed and was not found"),
        ("java", "echo 'java version \"1.8.0_392\"' >&2", "Java 17 or newer is needed, and java"),
        ("java", "echo 'openjdk version \"11.0.2\"' >&2", "Java 17 or newer is needed, and java"),
    ],
)
def test_what_is_missing_is_one_sentence_and_nothing_is_made(
    good: Path, name: str, script: str, sentence: str
) -> None:
    fake(good, name, script)
    answer = check_machine(good)
    assert answer.returncode != 0
    error, *rest = answer.stderr.splitlines()
    assert error.startswith(f"error: {sentence}")
    assert "then run make again." in error
    assert all(line.startswith("make: ***") for line in rest)


def test_java_home_goes_before_the_path(good: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    fake(old / "bin", "java", "echo 'openjdk version \"11.0.2\"' >&2")
    assert f"{old}/bin/java is older" in check_machine(good, JAVA_HOME=str(old)).stderr


def test_ci_runs_what_everybody_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert commands[-1] == "exec make test"


# ---------------------------------------------------------------------------------- the lock files
def test_everything_locked_has_a_hash() -> None:
    # A requirement ends where a line does not end in a backslash.
    entries = re.findall(r"^[a-z0-9-]+==(?:.*\\\n)*.*\n", LOCK, re.MULTILINE)
    assert len(entries) >= len(LOCKED)
    for entry in entries:
        assert "--hash=sha256:" in entry, entry


def test_everything_the_project_asks_for_is_locked() -> None:
    asked = list(PROJECT["dependency-groups"]["dev"])
    for project in (PROJECT["project"], PROOF["project"]):
        asked += project["dependencies"]
        asked += [line for extra in project["optional-dependencies"].values() for line in extra]
    missing = {name_of(line) for line in asked} - LOCKED.keys() - {"onceonly", "onceonly-proof"}
    assert not missing


def test_the_versions_that_were_run_together_are_the_locked_ones() -> None:
    for pin in PROJECT["tool"]["uv"]["constraint-dependencies"]:
        name, version = pin.split("==")
        assert LOCKED[name] == version


@pytest.mark.parametrize(
    "file",
    ["requirements.lock", "src/onceonly/jars/jars.lock", "proof/src/onceonly_proof/embedded/jars.lock"],
)
def test_a_lock_file_names_no_host(file: str) -> None:
    assert "://" not in (ROOT / file).read_text()


@pytest.mark.parametrize("kind", ["integration", "acceptance"])
def test_make_test_looks_for_each_kind_where_all_of_it_is(kind: str) -> None:
    mark = re.compile(rf"\bmark\.{kind}\b")
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if mark.search(path.read_text())]
    given = re.search(rf'-m "{kind} and not long" (\S+)', MAKEFILE)
    assert files
    assert given
    named = re.search(r"^INTEGRATION := (.*)$", MAKEFILE, re.MULTILINE) if "$" in given[1] else given
    assert named
    places = [ROOT / place for place in named[1].split()]
    assert [file for file in files if not {file, *file.parents} & {*places}] == []


# ------------------------------------------------------------------------------ versions of PySpark
def test_the_page_of_versions_tells_of_each_that_is_run_and_each_has_a_connector() -> None:
    matrix = re.search(r"^MATRIX \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert matrix
    page = (ROOT / "docs/reference/pyspark.md").read_text()
    told = re.findall(r"^\| (\d+\.\d+\.\d+) \|", page, re.MULTILINE)
    assert told == sorted([*matrix[1].split(), LOCKED["pyspark"]])
    users = set().union(*(jar.used_by for jar in _lock_list()))
    for version in told:
        line = version.rpartition(".")[0]
        assert f"spark-{line}_{'2.12' if line == '3.5' else '2.13'}" in users


# -------------------------------------------------------------------------------------- the package
def test_at_most_four_dependencies_are_required_and_pyspark_is_none_of_them() -> None:
    required = {name_of(line) for line in PROJECT["project"]["dependencies"]}
    assert len(required) <= 4
    assert "pyspark" not in required


@pytest.mark.parametrize(("name", "project"), [("onceonly", PROJECT), ("onceonly-proof", PROOF)])
def test_the_installed_version_is_the_projects(name: str, project: dict[str, Any]) -> None:
    assert metadata.version(name) == project["project"]["version"]


def test_both_distributions_are_released_together() -> None:
    version = PROJECT["project"]["version"]
    assert PROOF["project"]["version"] == version
    wanted = [*PROOF["project"]["dependencies"], *PROOF["project"]["optional-dependencies"]["demo"]]
    assert {line.partition("==")[2] for line in wanted if name_of(line) == "onceonly"} == {version}
    assert PROJECT["project"]["optional-dependencies"]["proof"] == [f"onceonly-proof[demo]=={version}"]
    assert (ROOT / "proof/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("absent", ["pyspark", "confluent_kafka", "kafka", "pyarrow", "pandas"])
def test_the_package_imports_where_an_extra_is_not_installed(absent: str) -> None:
    # None in sys.modules makes every import of that name fail.
    program = f"import sys; sys.modules[{absent!r}] = None; import onceonly; import onceonly.cli"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
