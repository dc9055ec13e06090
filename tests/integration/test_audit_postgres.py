"""``onceonly audit`` of a table of PostgreSQL: a row removed, doubled or changed is found, where its user may look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from audited_table import assert_told, each_change
from postgres_databases import ask
from test_conformance_postgres import TestPostgres as Suite
from tests.unit.test_operations_audit import Job

from onceonly.operations.audit import Word

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.embedded.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def job(postgres: EmbeddedPostgres, tmp_path: Path) -> Iterator[Job]:
    suite = Suite()
    suite.server = postgres
    made = Job(suite, tmp_path)
    with made.world:
        yield made


def do(job: Job, statement: str) -> None:
    suite = job.suite
    assert isinstance(suite, Suite)
    ask(suite.admin(job.world.options), statement.format(table=job.world.options["table"]))


def may_look(job: Job) -> None:
    [user] = [part for part in job.world.options["password"].split("-") if part.startswith("u")]
    do(job, f"GRANT SELECT ON results TO {user}")


@each_change
def test_a_table_tells_how_many_rows_it_has_and_what_they_add_up_to(
    job: Job, statement: str, word: Word, told: str
) -> None:
    may_look(job)
    do(job, statement)
    assert_told(job, word, told)


def test_books_that_have_lost_the_newest_epoch_differ(job: Job) -> None:
    do(job, "DELETE FROM onceonly_commits WHERE epoch = 1")
    assert job.found()[1] is Word.DIFFERS


def test_what_its_user_may_not_read_is_not_told(job: Job) -> None:
    last = job.audit().findings[-1]
    assert (last.epoch, last.word) == (None, Word.NOT_TOLD)
    assert "results" in last.told[0]
