"""What a newcomer's program leaves: it ends below its query, by ``spark-submit`` or at a prompt, and is told truly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from harness import java_options, python_path
from tests.unit import ui_bench

from onceonly.log.runs import RunFiles
from onceonly.operations.find import open_checkpoint
from onceonly_proof.handover import until
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

PROGRAM = """\
import rate_rows
spark = rate_rows.session()
rows = spark.readStream.schema("value long").option("maxFilesPerTrigger", 1).json("in")
writer = rows.writeStream.format("onceonly.files").option("path", "out").option("onceonly.report", "run.html")
query = writer.option("checkpointLocation", "checkpoint").start()
query.processAllAvailable()
"""
"""Each line stands alone, as at a prompt. It leaves its query running."""
SUBMIT = [
    str(Path(pyspark.__file__).with_name("bin") / "spark-submit"), "--driver-memory", "700m",
    "--driver-java-options", SHORT_LIVED_JAVA,
]  # fmt: skip
END_S = 400.0
SETTLED = "everything up to chk-2 is settled"


class Program:
    """A program in a process of its own, in a folder."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.folder = folder
        self._log = folder / "program.log"
        (folder / "in").mkdir()
        for number in range(3):
            (folder / "in" / f"{number}.json").write_text(f'{{"value": {number}}}\n', encoding="utf-8")
        environment = {
            **os.environ, **java_options(), "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
        }  # fmt: skip
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, cwd=folder
            )

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def prompt(self) -> Any:  # noqa: ANN401  a pipe
        return self.process.stdin

    def end(self) -> str:
        """Let it end, as at the end of its input; give what it has said."""
        self.prompt.close()
        status = self.process.wait(END_S)
        said = self._log.read_text(encoding="utf-8", errors="replace")
        assert status == 0, said
        return said

    def told(self) -> str:
        """Say what ``onceonly watch`` says of it now."""
        command = [sys.executable, "-m", "onceonly", "watch", "--once", str(self.checkpoint)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    def page(self) -> str:
        """Return the first page of ``onceonly ui``."""
        found = open_checkpoint(self.checkpoint)
        with ui_bench.serve([found]) as page:
            return page.get(f"/{found.query}/now").text


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Program]]:
    programs: list[Program] = []
    yield programs
    for each in programs:
        each.process.kill()
        each.process.wait()


def assert_told(program: Program) -> None:
    """See that its end was noted, is in the report that it has written, and is said by every view."""
    [run] = RunFiles(program.checkpoint).newest()
    assert run.ended
    assert " run down " in program.told()
    assert f"SAFE: {SETTLED}" in program.told()
    again = program.folder / "again.html"
    command = [sys.executable, "-m", "onceonly", "report", str(program.checkpoint), "--out", str(again)]
    assert subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == 0
    own = program.folder / "run.html"
    for page in (own.read_text(encoding="utf-8"), again.read_text(encoding="utf-8"), program.page()):
        assert SETTLED in page
        assert f"run {run.run} ended" in page
        assert "cut off: nobody noted" not in page
        assert "run down" in page


@pytest.mark.parametrize("how", ["stop", "end", "submit", "stdin"])
def test_a_program_that_ends_below_its_query_has_its_end_noted_and_reported(
    started: list[Program], tmp_path: Path, how: str
) -> None:
    text = PROGRAM + ("spark.stop()\n" if how == "stop" else "")
    script = tmp_path / "program.py"
    script.write_text(text, encoding="utf-8")
    command = SUBMIT if how == "submit" else [sys.executable]
    program = Program(tmp_path, *command, "-" if how == "stdin" else str(script))
    started.append(program)
    if how == "stdin":
        program.prompt.write(text.encode())
    said = program.end()
    assert "py4j" not in said.lower(), said
    assert_told(program)


def test_a_session_at_a_prompt_is_seen_alive_and_its_end_is_noted(
    started: list[Program], tmp_path: Path
) -> None:
    program = Program(tmp_path, sys.executable, "-i", "-q")
    started.append(program)
    program.prompt.write(PROGRAM.encode())
    program.prompt.flush()
    assert until((program.checkpoint / "commits" / "2").exists, END_S)
    assert until(lambda: SETTLED in program.told(), 120)
    assert " run alive " in program.told()
    assert "next: nothing is to be done: a run is alive" in program.told()
    assert not (tmp_path / "run.html").exists(), "the query has not ended"
    assert "run alive" in program.page()
    said = program.end()
    assert "py4j" not in said.lower(), said
    assert_told(program)
