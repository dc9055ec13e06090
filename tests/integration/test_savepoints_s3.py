"""Savepoints in a bucket of a real S3 server: what is large is copied by the server, and is what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QUERY, QueryCoordinator

from onceonly import savepoints
from onceonly.log import open_log
from onceonly.operations import restoring
from onceonly.operations.given import Given
from onceonly.savepoints import place
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.objects import ObjectStore
from onceonly.stores.opened import address_of, open_store
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

STATE = b"\0state" * (1 << 18)


def test_from_a_folder_into_a_bucket_and_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_told", Hadoop())
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0, 1)
    state = query.path / "state" / "0" / "0" / "2.snapshot"
    state.parent.mkdir(parents=True)
    state.write_bytes(STATE)
    copied: list[bool] = []
    real = ObjectStore._copied

    def noted(self: ObjectStore, other: ObjectStore, name: str, known: tuple[int, str | None]) -> bool:
        copied.append(real(self, other, name, known))
        return copied[-1]

    monkeypatch.setattr(ObjectStore, "_copied", noted)
    with EmbeddedS3(tmp_path / "s3") as server:
        server.make_bucket("bucket")
        opened.tell(Hadoop(server.hadoop()))
        savepoints.create(str(query.path), "s3a://bucket/place")
        made = restoring.restore("s3a://bucket/place", "s3a://bucket/queries/a", Given())
        assert (made.query, copied) == (QUERY, [True])
        assert open_store(address_of("s3a://bucket/queries/a")).get("state/0/0/2.snapshot") == STATE
        assert open_log("s3a://bucket/queries/a", query=QUERY, create=True).newest() == 1
        again = savepoints.create("s3a://bucket/queries/a", "s3a://bucket/place2")
        (found,) = place.standing("s3a://bucket/place2")
        assert copied == [True, True]
        assert found.savepoint is not None
        assert found.savepoint.files == again.files
        assert place.wrong(found.address, found.savepoint) == []
