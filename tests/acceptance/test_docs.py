"""Every code block of README and docs runs, on real Spark and a real broker, and does what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from doc_blocks import RUN, blocks, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
WITH_CODE = [page for page in pages() if any(block.language in RUN for block in blocks(page))]


class Reader:
    """The process in which pages are run, one after the other, in one Spark session."""

    def __init__(self, process: subprocess.Popen[str], answers: IO[str], log: Path) -> None:
        self.process = process
        self.answers = answers
        self.log = log

    def run(self, page: str, folder: Path) -> list[int]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"page": page, "folder": str(folder)}) + "\n")
        self.process.stdin.flush()
        answer = self.answers.readline()
        assert answer, f"the reader of the pages died:\n{self.log.read_text(encoding='utf-8')[-3000:]}"
        told = json.loads(answer)
        assert not told["error"], told["error"]
        ran: list[int] = told["ran"]
        return ran


@pytest.fixture(scope="module")
def reader(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    ours, theirs = os.pipe()
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "docs_runner.py"), str(theirs), kafka.bootstrap_servers],
            stdin=subprocess.PIPE, stdout=out, stderr=out, pass_fds=[theirs], text=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        )  # fmt: skip
    os.close(theirs)
    with os.fdopen(ours, encoding="utf-8") as answers, process:
        yield Reader(process, answers, log)
        assert process.stdin
        process.stdin.close()
        assert process.wait(60) == 0


FURTHER = (
    *("broker-was-down", "cassandra", "kinesis", "mysql", "opensearch", "rabbitmq"),
    *("prove-a-sink", "upgrade-a-query", "write-a-sink"),
)
"""Pages that are run in ``make test-all``: of these servers, one that waits for a time-out, and what takes minutes."""


def page_of(page: str) -> object:
    is_long = any(server in page for server in FURTHER)
    return pytest.param(page, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.parametrize("page", [page_of(page) for page in WITH_CODE])
def test_every_block_of_the_page_runs(reader: Reader, tmp_path: Path, page: str) -> None:
    ran = reader.run(page, tmp_path)
    assert ran == [block.line for block in blocks(page) if block.language in RUN]


def test_the_pages_that_must_have_examples_have_them() -> None:
    assert {"README.md", "docs/how-to/write-a-sink.md"} <= set(WITH_CODE)
