"""Runs the code blocks of pages in one Spark session; started once by test_docs.

Reads a JSON line ``{"page": …, "folder": …}`` from standard input for each page and answers, on the descriptor
given, with ``{"ran": [lines of blocks], "error": …}``. A page is run from top to bottom in one namespace and one
folder, as a reader would. Three things differ from what is printed: ``localhost:9092`` is the test's broker, as
other addresses are servers of the stage, ``/data`` is the page's folder, and after each block its queries are drained
and stopped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docs_stage
from doc_blocks import RUN, Block, blocks, matches, transcript
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceonly.jars.locked import spark_jars
from onceonly.spark.processes.start import FOLDER
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND_TIMEOUT_S = 300
# For the session here and for the jobs that pages start: what lives for seconds gains nothing from a page of its
# own, from the second compiler, or from a process for each checkpoint file.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JAVA,
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.executorEnv.PYTHONPATH": str(FOLDER),
}


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("docs").config("spark.jars", spark_jars())
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def write_defaults(folder: Path) -> None:
    """Put the settings where a job started with ``SPARK_CONF_DIR`` finds them."""
    lines = [f"{name} {value}" for name, value in SETTINGS.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Page:
    """One page on its way through its blocks."""

    def __init__(self, name: str, folder: Path, spark: SparkSession, servers: str) -> None:
        self.name = name
        self.folder = folder
        self.servers = servers
        self.ran: list[int] = []
        stage = docs_stage.STAGES.get(name, docs_stage.Stage)
        self.stage = stage(spark, folder, servers)
        # A name that no module has: what the page defines travels to executors by value, as from a program.
        self.names: dict[str, Any] = {"__name__": "page", "spark": spark, **self.stage.names()}

    def run(self) -> None:
        for block in blocks(self.name):
            if block.language not in RUN:
                continue
            code = re.sub(r"(?<![\w.~])/data\b", str(self.folder), block.code)
            for printed, real in {"localhost:9092": self.servers, **self.stage.addresses}.items():
                code = code.replace(printed, real)
            run: Callable[[Block, str], None] = self.stage.own.get(block.name) or getattr(
                self, block.language
            )
            run(block, code)
            self.drain()
            check = self.stage.checks.get(block.name)
            if check is not None:
                check(self.names)
            self.ran.append(block.line)

    def python(self, block: Block, code: str) -> None:
        if block.name.endswith(".py"):
            (self.folder / block.name).write_text(code, encoding="utf-8")
        else:
            exec(compile(code, block.place, "exec"), self.names)  # noqa: S102  that is the purpose

    def sh(self, block: Block, code: str) -> None:
        done = self._bash(code)
        assert done.returncode == 0, f"{block.place}: {done.stdout}"

    def console(self, block: Block, code: str) -> None:
        for command, expected in transcript(code):
            seen = self._bash(command).stdout
            assert matches(expected, seen), (
                f"{block.place}: {command}\n--- seen\n{seen}\n--- shown\n{expected}"
            )

    def json(self, block: Block, code: str) -> None:
        """Take a JSON block for the output of the command before it, or for a file that the stage names."""
        seen = json.loads(self.stage.shown[block.name]())
        assert docs_stage.fits(json.loads(code), seen), f"{block.place}: seen {json.dumps(seen, indent=2)}"

    def drain(self) -> None:
        for query in [value for value in self.names.values() if isinstance(value, StreamingQuery)]:
            if query.isActive:
                query.processAllAvailable()
                query.stop()
            failure = query.exception()
            if failure is not None:
                raise failure

    def _bash(self, code: str) -> subprocess.CompletedProcess[str]:
        python = Path(sys.executable).parent
        path = f"{self.folder}:{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
        return subprocess.run(
            ["bash", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{python}:{os.environ['PATH']}",
                "PYTHONPATH": path,
                "PYTHONWARNINGS": "ignore",
                "SPARK_CONF_DIR": os.getcwd(),  # noqa: PTH109  the reader's folder, see write_defaults
            },
        )


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")
    servers = sys.argv[2]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    write_defaults(Path.cwd())
    spark = session()
    for line in sys.stdin:
        asked = json.loads(line)
        page: Page | None = None
        error = ""
        try:
            page = Page(asked["page"], Path(asked["folder"]), spark, servers)
            page.run()
        except BaseException:  # noqa: BLE001  whatever a page throws is its answer
            error = traceback.format_exc()
        for query in spark.streams.active:
            query.stop()
        answers.write(json.dumps({"ran": page.ran if page else [], "error": error}) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
