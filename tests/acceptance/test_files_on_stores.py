"""Spark's rows as files on S3 and HDFS: killed at each step of a commit, each row is there once; no key is written."""

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

from onceonly import errors, files
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
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
    "slot.after_prepare",
)


class OnS3:
    """A bucket, and how it is read without our code."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedS3(folder)
        self.server.start()
        self.server.make_bucket(BUCKET)
        self.root = f"s3a://{BUCKET}"
        self.hadoop = self.server.hadoop()

    def names(self, folder: str) -> list[str]:
        return self.server.names(BUCKET, folder)

    def read(self, name: str) -> bytes | None:
        return self.server.read(BUCKET, name)


class OnHdfs:
    """The root of a file system, and how it is read without our code."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedHdfs(folder)
        self.server.start()
        self.root = self.server.url
        self.hadoop = self.server.hadoop()
        self.names, self.read = self.server.names, self.server.read


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OnS3 | OnHdfs]]:
    """Return what has been started, so that each server is started by the first test that needs it."""
    found: dict[str, OnS3 | OnHdfs] = {}
    yield found
    for each in found.values():
        each.server.close()
    opened.tell(Hadoop())


def found_or_started(
    places: dict[str, OnS3 | OnHdfs], kind: str, folders: pytest.TempPathFactory
) -> OnS3 | OnHdfs:
    """Return the place of a kind, of which this process is told."""
    if kind not in places:
        places[kind] = (OnS3 if kind == "s3" else OnHdfs)(folders.mktemp(kind))
    opened.tell(Hadoop(places[kind].hadoop))
    return places[kind]


def run(way: str, epochs: int, folder: Path, place: OnS3 | OnHdfs, failpoints: str = "") -> tuple[int, str]:
    """Run the job; return its status and what it said."""
    environment = {
        **os.environ,
        "ONCEONLY_FAILPOINTS": failpoints,
        "ONCEONLY_FAILPOINTS_DIR": str(folder),
    }
    target = f"{place.root}/{folder.name}"
    done = subprocess.run(
        [sys.executable, str(JOB), way, str(epochs), str(folder), target, json.dumps(place.hadoop)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(errors="replace")


def rows(place: OnS3 | OnHdfs, folder: str) -> Counter[int]:
    """Read what anybody sees who lists."""
    found: Counter[int] = Counter()
    for name in place.names(folder):
        if name[0] in "._":
            continue
        for each in place.names(f"{folder}/{name.rstrip('/')}"):
            content = place.read(f"{folder}/{name}{each}")
            assert content is not None
            found.update(pq.ParquetFile(io.BytesIO(content)).read()["value"].to_pylist())
    return found


@pytest.mark.parametrize(
    ("kind", "way", "points"),
    [
        ("s3", "format", POINTS[1:2]),
        pytest.param("s3", "format", POINTS, marks=pytest.mark.long),
        pytest.param("s3", "foreachBatch", POINTS, marks=pytest.mark.long),
        pytest.param("hdfs", "format", POINTS, marks=pytest.mark.long),
    ],
)
def test_rows_on_a_store_are_there_once_whatever_is_killed(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    places: dict[str, OnS3 | OnHdfs],
    kind: str,
    way: str,
    points: tuple[str, ...],
) -> None:
    place = found_or_started(places, kind, tmp_path_factory)
    for point in points:
        status, said = run(way, 1000, tmp_path, place, f"{point}=kill@2")
        assert status != 0, f"{point}: {said[-2000:]}"
    done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    status, said = run(way, done + 3, tmp_path, place)
    assert status == 0, said[-4000:]
    found = rows(place, tmp_path.name)
    epochs = len(found) // ROWS_PER_EPOCH
    assert epochs > len(points)
    assert found == Counter(range(epochs * ROWS_PER_EPOCH))
    listed = files.committed(f"{place.root}/{tmp_path.name}")
    assert sum(epoch.rows for epoch in listed) == len(found)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in written), "Spark's own log of its options"
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    assert SECRET not in said


@pytest.mark.long
def test_a_quota_that_is_used_up_is_told_in_one_sentence_and_once_it_is_raised_the_job_goes_on(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, places: dict[str, OnS3 | OnHdfs]
) -> None:
    place = found_or_started(places, "hdfs", tmp_path_factory)
    assert isinstance(place, OnHdfs)
    target = f"/{tmp_path.name}"
    assert run("format", 2, tmp_path, place)[0] == 0
    place.server.admin("-setSpaceQuota", "1", target)
    status, said = run("format", 1000, tmp_path, place)
    assert status != 0
    error = errors.find_error(said)
    assert error is not None, said[-2000:]
    assert "DSQuotaExceededException: The DiskSpace quota of " in error.what
    assert target in error.what
    assert "hdfs dfsadmin -setQuota, -setSpaceQuota" in error.next_step
    place.server.admin("-clrSpaceQuota", target)
    done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    status, said = run("format", done + 2, tmp_path, place)
    assert status == 0, said[-4000:]
    found = rows(place, tmp_path.name)
    assert found == Counter(range(len(found)))
    assert len(found) >= ROWS_PER_EPOCH * (done + 2)
