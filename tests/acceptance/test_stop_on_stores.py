"""An operator ends a query whose checkpoint is on a store; the next start goes on as if it had never been stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from savepoint_job import newest
from test_savepoints import CUT, assert_alike, end_after, finished, start
from test_savepoints_on_stores import BUCKET, Bench

from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(1800)]

OPERATOR, PROVIDER, MORE = "dedup", "hdfs", 3


@pytest.fixture(params=["s3", "hdfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[EmbeddedS3 | EmbeddedHdfs, str]]:
    with (EmbeddedS3 if request.param == "s3" else EmbeddedHdfs)(tmp_path / "server") as server:
        if isinstance(server, EmbeddedS3):
            server.make_bucket(BUCKET)
        opened.tell(Hadoop(server.hadoop()))
        yield server, f"s3a://{BUCKET}" if isinstance(server, EmbeddedS3) else server.url
    opened.tell(Hadoop())


def test_a_query_on_a_store_ends_after_its_epoch_and_goes_on_when_started(
    place: tuple[EmbeddedS3 | EmbeddedHdfs, str], tmp_path: Path
) -> None:
    server, root = place
    bench = Bench(server, tmp_path, OPERATOR, PROVIDER)
    one = f"{root}/one"
    run = bench.start(one, tmp_path / "ledger")
    try:
        run.until(lambda: newest(one) >= CUT, "epochs were noted", poll_s=1)
        told = bench.onceonly("stop", one, "--because", "an upgrade")
        assert (told["ended"], told["settled"], told["run"]["ended"] is not None) == ("stopped", True, True)
        assert (told["request"]["because"], bool(told["request"]["seen"])) == ("an upgrade", True)
        finished(run)
    finally:
        run.kill_tree()
    at = newest(one)
    assert told["epoch"]["name"] == f"chk-{at}"
    assert bench.onceonly("stop", one)["ended"] == "down"
    bench.goes_on(one, tmp_path / "ledger", at + MORE)
    whole = tmp_path / "whole"
    end_after(whole, at + MORE)
    finished(start(tmp_path, whole, tmp_path / "ledger2", OPERATOR, PROVIDER))
    assert_alike(tmp_path / "ledger2", tmp_path / "ledger", range(at + MORE + 1))
