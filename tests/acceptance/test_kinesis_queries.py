"""The Kinesis sink under real Spark: drivers, executors and servers that die lose nothing, and repeats drop out."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import sql_job
from test_operators_view import assert_well
from test_sql_queries import EPOCHS, start

from onceonly_proof.embedded.kinesis import EmbeddedKinesis

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(900)]
POINTS = ("slot.during_write", "slot.after_prepare", "link.after_put", "receipt.after_put")


def told(server: EmbeddedKinesis) -> list[dict[str, Any]]:
    return [json.loads(record["Data"]) for record in server.records("rows")]


def test_jobs_that_are_killed_lose_nothing_and_their_envelopes_tell_repeats(tmp_path: Path) -> None:
    with EmbeddedKinesis() as server:
        server.make_stream("rows", shards=2)
        options = {**server.options("rows"), "envelope": "json"}
        run = start(tmp_path, "kinesis", options, "slot.before_prepare=kill@2")  # an executor's worker
        try:
            assert run.wait() != 0, run.tail()  # with which its query fails
        finally:
            run.kill_tree()
        for point in POINTS:
            run = start(tmp_path, "kinesis", options, f"{point}=pause@2")
            try:
                run.wait_for(point)
                server.kill()
                server.start()
            finally:
                run.kill_tree()
        run = start(tmp_path, "kinesis", options)
        try:
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        rows = told(server)
        secret = [
            text for name in ("access.key", "secret.key") for text in ("--option", f"{name}={options[name]}")
        ]
        assert_well(tmp_path / "checkpoint", "--yes", *secret)
    noted = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
    assert noted >= EPOCHS
    wanted = set(range(noted * sql_job.ROWS_PER_EPOCH))
    ids = Counter(each["row"]["id"] for each in rows)
    assert not wanted - ids.keys()
    assert max(ids.values()) > 1  # else no life has written again, and nothing was tried
    last: dict[int, int] = {}
    for each in rows:
        last[each["epoch"]] = max(each["try"], last.get(each["epoch"], 0))
    newest = [each for each in rows if each["try"] == last[each["epoch"]]]
    kept = {(each["epoch"], each["slot"], each["number"]): each["row"]["id"] for each in newest}
    assert Counter(kept.values()) == dict.fromkeys(ids, 1)


def test_exactly_once_is_refused_before_the_first_record(tmp_path: Path) -> None:
    with EmbeddedKinesis() as server:
        server.make_stream("rows")
        options = {**server.options("rows"), "envelope": "json", "onceonly.guarantee": "exactly-once"}
        run = start(tmp_path, "kinesis", options)
        try:
            assert run.wait() != 0
            assert "does not offer exactly-once: a row that was appended" in run.tail(100_000)
        finally:
            run.kill_tree()
        assert told(server) == []
