"""Rows that are staged on a real S3 server: the conformance suite of the staged family."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.staged_double import StagedSuite, StoredDouble

from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration

_BUCKET = "checkpoints"
_folders = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path_factory.mktemp("s3")) as found:
        found.make_bucket(_BUCKET)
        yield found


@pytest.mark.long
class TestOnSeaweed(StagedSuite):
    sink = StoredDouble
    every_pass = False
    server: EmbeddedS3

    @pytest.fixture(autouse=True)
    def served(self, server: EmbeddedS3) -> Iterator[None]:
        self.server = server
        yield
        opened.tell(Hadoop())

    def options(self, folder: Path) -> dict[str, str]:
        staging = f"s3a://{_BUCKET}/staging-{next(_folders)}"
        return {**super().options(folder), "staging": staging, "hadoop": json.dumps(self.server.hadoop())}

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return list(self._files(options["staging"].rpartition("/")[2]))

    def _files(self, folder: str) -> Iterator[str]:
        for name in self.server.names(_BUCKET, folder):
            path = f"{folder}/{name}"
            if name.endswith("/"):
                yield from self._files(path.rstrip("/"))
            else:
                yield path
