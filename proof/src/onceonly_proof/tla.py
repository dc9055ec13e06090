"""Runs TLC, the model checker of TLA+, on the modules of ``formal/``. Tests and tools; needs Java.

TLC comes from Maven by the same lock list as the broker (``onceonly jars``). Each run has a folder of its own,
so that several may run at once and nothing is left behind.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly.jars.java import find_java
from onceonly_proof.embedded.jars import checker_jar

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAP = "1500m"
_LONG_S = 6 * 3600.0
_VIOLATED = re.compile(
    r"Error: (?:Invariant (\w+) is violated|(Deadlock) reached|Temporal properties were violated"
    r"|Action property (\w+) is violated)"
)
_STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found, 0 states left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What TLC found. ``violated`` names the broken law, ``Deadlock`` or ``Settles``; empty if all of them hold.

    ``states`` counts the distinct ones, zero where the search was cut short. ``steps`` is the length of the
    counterexample.
    """

    violated: str
    states: int
    steps: int
    seconds: float
    output: str


def formal() -> Path:
    """Return the folder of the modules, in the source tree. Raises ``SetupError`` where there is none."""
    folder = Path(__file__).parents[3] / "formal"
    if not folder.is_dir():
        raise SetupError(
            "The model is not part of the installed package.",
            next_step="check out onceonly's source, run `make setup` there, and use its .venv/bin/python",
        )
    return folder


def check(
    module: str,
    config: str,
    *,
    files: Mapping[str, str] | None = None,
    workers: int = 1,
    timeout_s: float = 300.0,
    brief: bool = True,
) -> Checked:
    """Check a module of ``formal/`` under a configuration, given as its text. Anywhere; blocks.

    ``files`` are more modules, by name; ``brief`` says that it takes a minute at most.

    Raises ``SetupError`` without Java or jar, ``ValueError`` with TLC's words
    where it could not read the model, and ``TimeoutError``.
    """
    with tempfile.TemporaryDirectory(prefix="onceonly-tlc-") as name:
        folder = Path(name)
        for path in formal().glob("*.tla"):
            shutil.copy(path, folder)
        for file, text in (files or {}).items():
            (folder / file).write_text(text, encoding="utf-8")
        (folder / "run.cfg").write_text(config, encoding="utf-8")
        command = [
            find_java(),
            f"-Xmx{_HEAP}",
            "-XX:+UseSerialGC",
            *(("-XX:TieredStopAtLevel=1",) if brief else ()),  # over before the better compiler would pay
            f"-Djava.io.tmpdir={folder}",
            *("-cp", str(checker_jar())),
            "tlc2.TLC",
            *("-workers", str(workers)),
            *("-config", "run.cfg"),
            *("-metadir", "states"),
            "-nowarning",
            f"{module}.tla",
        ]
        started = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "LC_ALL": "C"},
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            message = f"TLC was not done with {module} within {timeout_s:g} s"
            raise TimeoutError(message) from error
    return _read(done.stdout + done.stderr, module, time.monotonic() - started)


def _read(output: str, module: str, seconds: float) -> Checked:
    if "NoClassDefFoundError" in output or "ClassNotFoundException" in output:
        raise SetupError("TLC does not start: its jar is incomplete.", next_step="run `onceonly jars`")
    violated = _VIOLATED.search(output)
    states = _STATES.search(output)
    if violated is None and states is None:
        at = max(output.find("Error:"), 0)
        message = f"TLC could not check {module}:\n{output[at : at + 2000]}"
        raise ValueError(message)
    return Checked(
        violated=next((each for each in violated.groups() if each), "Settles") if violated else "",
        states=int(states[2]) if states else 0,
        steps=len(re.findall(r"^State \d+:", output, re.MULTILINE)),
        seconds=seconds,
        output=output,
    )


def main() -> int:
    """Check the model under a configuration in ``formal/``, all cores at work; 0 if every law holds, else 1."""
    name = sys.argv[1] if len(sys.argv) > 1 else "Small.cfg"
    config = (formal() / name).read_text(encoding="utf-8")
    found = check("Onceonly", config, workers=os.cpu_count() or 1, timeout_s=_LONG_S, brief=False)
    if found.violated:
        sys.stdout.write(f"{found.output}\n{name}: {found.violated} does not hold, {found.steps} steps\n")
        return 1
    sys.stdout.write(f"{name}: every law holds in {found.states:,} states ({found.seconds:.0f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
