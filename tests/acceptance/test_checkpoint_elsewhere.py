"""Spark has a query's checkpoint on one store and onceonly is told another place: refused, and nothing is written."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import elsewhere_job
import pytest
from harness import python_path, start, visible_files

from onceonly.jars.locked import ensure_jars
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(1800)]

BUCKET = "checkpoints"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path / "s3") as found:
        found.make_bucket(BUCKET)
        yield found


def ids(folder: Path) -> Counter[int]:
    lines = [line for path in visible_files(folder) for line in path.read_bytes().splitlines()]
    return Counter(json.loads(line)["id"] for line in lines)


def test_a_place_on_another_store_is_refused_by_both_names_and_the_right_one_goes_on(
    server: EmbeddedS3, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"id": 1}\n{"id": 2}\n')
    other, here = str(tmp_path / "other"), str(tmp_path / "chk")
    store, out = f"s3a://{BUCKET}/chk", str(tmp_path / "out")

    def case(spark: str, told: str, target: str = out) -> dict[str, str]:
        return {"spark": spark, "told": told, "target": target}

    cases = [
        case(other, other, str(tmp_path / "others")),
        case(store, here),
        case(store, other),
        case(here, f"s3a://{BUCKET}/nowhere"),
        case(here, store),
        # By another spelling, and then the right ones.
        case(store, store.replace("s3a:", "s3:") + "/"),
        case(here, here, str(tmp_path / "out-here")),
    ]
    settings = {f"spark.hadoop.{name}": value for name, value in server.hadoop().items()}
    settings["spark.jars"] = ",".join(map(str, ensure_jars(used_by="store-s3a")))
    given = {"folder": str(tmp_path), "settings": settings, "cases": cases}
    env = {"PYTHONPATH": python_path()}
    job = start(elsewhere_job.__file__, tmp_path, json.dumps(given), env=env)
    try:
        assert job.wait(900) == 0, job.tail()
    finally:
        job.kill_tree()
    told = json.loads(job.tail(1))
    for said, (spark, wrong) in zip(
        told[1:5],
        [(store, here), (store, other), (here, f"s3://{BUCKET}/nowhere"), (here, f"s3://{BUCKET}/chk")],
        strict=True,
    ):
        assert said.startswith("[ONCEONLY:CONFIGURATION] "), said
        assert wrong in said.replace("s3a:", "s3:")
        assert f"Spark keeps the query's at {spark}" in said.replace("file:///", "/").replace("file:/", "/")
        assert "the same checkpointLocation" in said
    assert [told[0], *told[5:]] == ["", "", ""]
    assert ids(tmp_path / "out") == ids(tmp_path / "out-here") == Counter([1, 2])
    assert server.names(BUCKET, "nowhere") == []
