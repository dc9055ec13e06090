"""``onceonly audit`` of a table of MariaDB: a row removed, doubled or changed is found, and books cut short."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import test_conformance_mysql
from audited_table import assert_told, each_change
from test_conformance_mysql import TestMariaDb as Suite
from tests.unit.test_operations_audit import Job

from onceonly.operations.audit import Word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.embedded.mariadb import EmbeddedMariaDb

server = test_conformance_mysql.server  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def job(server: EmbeddedMariaDb, tmp_path: Path) -> Iterator[Job]:
    suite = Suite()
    suite.server = server
    made = Job(suite, tmp_path)
    with made.world:
        yield made


def do(job: Job, statement: str) -> None:
    suite = job.suite
    assert isinstance(suite, Suite)
    suite.server.sql(statement.format(table=job.world.options["table"], books=job.world.options["books"]))


@each_change
def test_a_table_tells_how_many_rows_it_has_and_what_they_add_up_to(
    job: Job, statement: str, word: Word, told: str
) -> None:
    do(job, statement)
    assert_told(job, word, told)


def test_books_that_have_lost_the_newest_epoch_differ(job: Job) -> None:
    do(job, "DELETE FROM {books} WHERE epoch = 1")
    assert job.found()[1] is Word.DIFFERS
