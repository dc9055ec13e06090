"""PyFlink's own environment: it asks for other versions of the same packages than PySpark, and for an older Python.

Made once, from a locked list, in the cache folder of onceonly; its connector is fetched as our jars are.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from onceonly.errors import SetupError
from onceonly.jars import ivy
from onceonly.jars.locked import cache_folder

_REQUIREMENTS = Path(__file__).with_name("flink.lock")
_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_CONNECTOR_SHA256 = "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616"
# What apache-flink 2.3.0 declares, from the Python on that the list is locked for.
_PYTHON_MIN, _PYTHON_MAX = (3, 11), (3, 12)
_INSTALL_TIMEOUT_S = 1_800
_TRY = "import pyflink.table, pyflink.version; print(pyflink.version.__version__)"


def ensure() -> None:
    """Make the environment, if it is not there. Some minutes at the first time; idempotent.

    Raises:
        SetupError: no Python that PyFlink knows, or a package or the connector cannot be had.
    """
    connector = _connector()
    folder = _folder()
    if not (folder / ".whole").exists():
        _install(folder)
    # Into Flink's own lib: as a jar of the job, its classes would be loaded, and compiled, anew for each run.
    for lib in folder.glob("lib/python*/site-packages/pyflink/lib"):
        if not (lib / connector.name).exists():
            (lib / connector.name).symlink_to(connector)


def _install(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # uv takes the interpreter that is here, or fetches one.
    _run("venv", "--quiet", "--python", _python_wanted(), str(folder))
    _run("pip", "install", "--quiet", "--require-hashes", "-r", str(_REQUIREMENTS), "--python", str(python()))
    tried = subprocess.run([str(python()), "-c", _TRY], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise _failure(f"PyFlink was installed and does not start: {_last(tried.stderr)}")
    (folder / ".whole").write_text(tried.stdout, encoding="utf-8")


def python() -> Path:
    """Return the environment's interpreter."""
    return _folder() / "bin" / "python"


def _connector() -> Path:
    """Return Flink's connector for Kafka; fetched where it is missing."""
    _, artifact, version = _CONNECTOR.split(":")
    path = cache_folder() / "jars" / f"{artifact}-{version}.jar"
    if path.exists() and _sha256(path) == _CONNECTOR_SHA256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".flink-") as folder:
        problems = ivy.fetch([_CONNECTOR], Path(folder), lambda _line: None)
        fetched = Path(folder) / path.name
        if not fetched.exists() or _sha256(fetched) != _CONNECTOR_SHA256:
            raise _failure(f"{_CONNECTOR} cannot be had: {problems[-1] if problems else 'other bytes came'}")
        fetched.replace(path)
    return path


def versions() -> dict[str, str]:
    """Return the versions of what is locked here."""
    found = re.search(r"^apache-flink==(\S+)", _REQUIREMENTS.read_text(encoding="utf-8"), re.MULTILINE)
    return {"apache-flink": found[1] if found else "", "flink-sql-connector-kafka": _CONNECTOR.split(":")[2]}


def _folder() -> Path:
    locked = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return cache_folder() / "benchmarks" / f"flink-{locked}-py{_python_wanted()}"


def _python_wanted() -> str:
    """Name the version: this interpreter's, if PyFlink knows it. Pure, given the interpreter."""
    version = sys.version_info[:2]
    chosen = version if _PYTHON_MIN <= version <= _PYTHON_MAX else _PYTHON_MAX
    return ".".join(map(str, chosen))


def _run(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    try:
        done = subprocess.run(
            [str(uv), *arguments], capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure(f"uv {arguments[0]}: {error}") from error
    if done.returncode:
        raise _failure(f"uv {arguments[0]}: {_last(done.stderr)}")


def _last(text: str) -> str:
    return " ".join(text.split())[-400:]


def _failure(what: str) -> SetupError:
    return SetupError(
        f"the environment of PyFlink could not be made: {what}",
        next_step="see whether the network and Python 3.11 or 3.12 are there; the others are measured without it",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
