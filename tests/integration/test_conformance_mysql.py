"""The conformance suite for the SQL sink on a real MariaDB."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from onceonly.sinks.sql import MySqlSink
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.mariadb import PASSWORD, EmbeddedMariaDb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as found:
        yield found


@pytest.mark.long
class TestMariaDb(SinkConformance):
    sink = MySqlSink
    every_pass = False
    server: EmbeddedMariaDb

    @pytest.fixture(autouse=True)
    def served(self, server: EmbeddedMariaDb) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        # A target of its own has books of its own.
        name = f"t{uuid.uuid4().hex}"
        self.server.sql(
            f"CREATE TABLE {name} (`key` VARCHAR(50) NOT NULL, `value` LONGTEXT CHARACTER SET utf8mb4)"
        )
        return {
            "url": self.server.url, "password": PASSWORD, "table": name, "books": f"{name}_books",
            "staging": str(folder / "staging"),
        }  # fmt: skip

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        return self.server.sql(f"SELECT `key`, `value` FROM {options['table']}")  # noqa: S608

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in Path(options["staging"]).rglob("*") if path.is_file()]

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {"key": [None, "k" * 51], "value": ["without a key", "with a long one"]}
        )

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        self.server.kill()
        yield
        self.server.start()
