"""Spark's Python processes take PySpark from where it is compiled, and from nowhere else than Spark would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest

from onceonly.spark.processes.start import FOLDER, without_zips

HOME = Path(pyspark.__file__).parent
ZIPS = [str(path) for path in sorted((HOME / "python" / "lib").glob("*.zip"))]
INSTALLED = [str(HOME.parent), str(Path(py4j.__file__).parents[1])]


def test_the_zips_of_the_installed_pyspark_are_left_out() -> None:
    assert len(ZIPS) == 2
    assert without_zips([*ZIPS, "/jars/spark-core.jar", *INSTALLED]) == ["/jars/spark-core.jar", *INSTALLED]


@pytest.mark.parametrize(
    "path",
    [
        ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip", *INSTALLED],
        ["/elsewhere/pyspark/python/lib/pyspark.zip", *INSTALLED],
        [*ZIPS, "/somewhere"],
        INSTALLED,
    ],
    ids=["another Spark's", "another PySpark's", "not installed", "no zip"],
)
def test_any_other_path_stays_as_it_is(path: list[str]) -> None:
    assert without_zips(path) == path


def test_without_an_installed_py4j_the_zips_stay(tmp_path: Path) -> None:
    home = tmp_path / "pyspark"
    (home / "python" / "lib").mkdir(parents=True)
    (home / "__init__.py").touch()
    path = [str(home / "python" / "lib" / "pyspark.zip"), str(tmp_path)]

    assert without_zips(path) == path


def python(code: str, *path: str) -> str:
    """Run a Python as Spark starts its own: its zips first, then what a setting names, then the user's."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((*ZIPS, *path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_process_with_the_folder_on_its_path_runs_the_installed_package() -> None:
    assert FOLDER.is_dir()
    code = "import py4j, pyspark; print(pyspark.__file__, '.zip' in py4j.__file__)"

    assert python(code, str(FOLDER)) == f"{HOME / '__init__.py'} False"
    assert ".zip" in python(code, str(FOLDER / "missing"))


@pytest.mark.parametrize("has_own", [True, False])
def test_what_would_have_run_without_it_runs_after_it(tmp_path: Path, *, has_own: bool) -> None:
    if has_own:
        own = "import sys\nsys.own = [entry for entry in sys.path if entry.endswith('pyspark.zip')]\n"
        (tmp_path / "sitecustomize.py").write_text(own, encoding="utf-8")
    code = f"import sys; print(getattr(sys, 'own', None), {str(FOLDER)!r} in sys.path)"

    assert python(code, str(FOLDER), str(tmp_path)) == ("[] False" if has_own else "None False")
