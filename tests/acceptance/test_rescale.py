"""``onceonly rescale``: a query with state goes on with other partitions, row by row as if nothing had been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_operators_view import onceonly as command
from test_skipped_epochs import rocksdb, skipped

import onceonly
import ways
from onceonly import savepoints

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from ways import Way

way, spark = ways.way, ways.spark  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(600)]
# Ids 0 to 29, the same again, which only the state knows, and 30 more.
IDS = [*range(30), *range(30), *range(30, 60)]


def frame(way: Way, rows: int) -> DataFrame:
    given = [(one, "app") for one in IDS[:rows]]
    settings: dict[str, Any] = {"rows_per_epoch": 10, "partitions": 2}
    return onceonly.collection(way.spark, given, "id long, app string", **settings).dropDuplicates(["id"])


def rescale(checkpoint: Path, *more: str) -> tuple[int, Any, str]:
    place = str(checkpoint.parent / "savepoints")
    return command("rescale", checkpoint, "--savepoint", place, *more, "--yes")


@pytest.mark.parametrize("way", ["format"], indirect=True)
def test_a_query_with_state_goes_on_with_other_partitions_after_a_savepoint(way: Way) -> None:
    checkpoint = way.folder / "q" / "checkpoint"
    with rocksdb(way):
        way.run(frame(way, 30))
        assert way.exactly(30)
        status, told, said = rescale(checkpoint, "--partitions", "5", "--because", "more rows")
        assert (status, told and told["partitions"]) == (0, 5), said
        assert (told["before"], told["savepoint"]["epoch"]) == (2, 2)
        assert len(list((checkpoint / "state/0").glob("[0-9]*"))) == 5
        status, _, said = rescale(checkpoint, "--partitions", "5")
        assert (status, "5 partitions already" in said) == (64, True), said
        way.run(frame(way, 80))
        assert savepoints.create(str(checkpoint), str(way.folder / "q" / "savepoints")).epoch > 3
        # Another number, smaller now: what is left of the former partitions is in nobody's way.
        status, told, said = rescale(checkpoint, "--partitions", "3")
        assert (status, told and told["before"]) == (0, 5), said
        way.run(frame(way, 90))
        assert savepoints.create(str(checkpoint), str(way.folder / "q" / "savepoints")).epoch > 8
    assert way.exactly(60)
    assert list(skipped(way).values()) == [(0, "unchanged")] * 2
    status, shown, _ = command("checkpoints", "list", checkpoint)
    (found,) = shown["checkpoints"]
    _, first = found["actions"]
    assert (first["command"], first["before"], first["because"]) == (
        "rescale",
        "2 partitions of state",
        "more rows",
    )
    assert first["after"].startswith("5 partitions of state, from chk-3 on")
