"""Spark's rows as files in a bucket of S3: killed at each step of a commit, each row is there once."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from stored_files_job import ROWS_PER_EPOCH

from onceonly import files
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1800)]

BUCKET = "lake"
JOB = Path(__file__).with_name("stored_files_job.py")
POINTS = (
    "commit.before_handle",
    "commit.after_handle",
    "complete.before",
    "receipt.after_put",
    "link.after_put",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path_factory.mktemp("s3")) as found:
        found.make_bucket(BUCKET)
        opened.tell(Hadoop(found.hadoop()))
        yield found
        opened.tell(Hadoop())


def run(way: str, epochs: int, folder: Path, server: EmbeddedS3, failpoints: str = "") -> tuple[int, str]:
    """Run the job; return its status and what it said."""
    environment = {
        **os.environ,
        "ONCEONLY_FAILPOINTS": failpoints,
        "ONCEONLY_FAILPOINTS_DIR": str(folder),
    }
    target = f"s3a://{BUCKET}/{folder.name}"
    done = subprocess.run(
        [sys.executable, str(JOB), way, str(epochs), str(folder), target, json.dumps(server.hadoop())],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(errors="replace")


def rows(server: EmbeddedS3, folder: str) -> Counter[int]:
    """Read what anybody sees who lists."""
    found: Counter[int] = Counter()
    for name in server.names(BUCKET, folder):
        if name[0] in "._":
            continue
        for each in server.names(BUCKET, f"{folder}/{name.rstrip('/')}"):
            content = server.read(BUCKET, f"{folder}/{name}{each}")
            assert content is not None
            found.update(pq.ParquetFile(io.BytesIO(content)).read()["value"].to_pylist())
    return found


@pytest.mark.parametrize(
    ("way", "points"),
    [
        ("format", POINTS[:3]),
        pytest.param("format", POINTS, marks=pytest.mark.long),
        pytest.param("foreachBatch", POINTS, marks=pytest.mark.long),
    ],
)
def test_rows_in_a_bucket_are_there_once_whatever_is_killed(
    tmp_path: Path, server: EmbeddedS3, way: str, points: tuple[str, ...]
) -> None:
    for point in points:
        status, said = run(way, 1000, tmp_path, server, f"{point}=kill@2")
        assert status != 0, f"{point}: {said[-2000:]}"
    done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    status, said = run(way, done + 3, tmp_path, server)
    assert status == 0, said[-4000:]
    found = rows(server, tmp_path.name)
    epochs = len(found) // ROWS_PER_EPOCH
    assert epochs > len(points)
    assert found == Counter(range(epochs * ROWS_PER_EPOCH))
    listed = files.committed(f"s3a://{BUCKET}/{tmp_path.name}")
    assert sum(epoch.rows for epoch in listed) == len(found)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.parent.name == "events" or path.parent.name == "events" for path in written)
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    assert SECRET not in said
