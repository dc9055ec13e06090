"""The report of a query that has ended: written where its option asks for one, and never the query's failure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator

from onceonly.errors import ConfigurationError
from onceonly.settings.batches import batch_query
from onceonly.settings.query import parse
from onceonly.spark import reporting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def query(tmp_path: Path) -> Iterator[QueryCoordinator]:
    made = QueryCoordinator(tmp_path / "checkpoint")
    made.complete(0)
    yield made
    reporting.ask(str(made.path), "")


def over(location: str) -> bool:
    """End a run; say whether a report was begun, and wait for it."""
    begun = reporting.ended(location)
    if begun is not None:
        begun.result(30)
    return begun is not None


def test_a_run_that_ends_has_its_report_written_and_written_anew(query: QueryCoordinator) -> None:
    path = query.path.parent / "run.html"
    reporting.ask(str(query.path), str(path))
    assert over(f"file:{query.path}")
    assert "everything up to chk-0 is settled" in path.read_text(encoding="utf-8")
    query.complete(1)
    assert over(f"file:{query.path}")
    assert "everything up to chk-1 is settled" in path.read_text(encoding="utf-8")


def test_nobody_gets_a_report_who_has_not_asked_or_asks_no_more(query: QueryCoordinator) -> None:
    assert not over(str(query.path))
    reporting.ask(str(query.path), str(query.path.parent / "run.html"))
    reporting.ask(str(query.path), "")
    assert not over(str(query.path))


def test_a_report_that_cannot_be_written_is_a_warning(
    query: QueryCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    (query.path.parent / "taken").write_text("", encoding="utf-8")
    reporting.ask(str(query.path), str(query.path.parent / "taken" / "run.html"))
    with caplog.at_level(logging.WARNING):
        assert over(str(query.path))
    assert "There is no report of the run" in caplog.text
    assert "cannot be written" in caplog.text
    assert "Next: name another place for it" in caplog.text


def test_a_report_that_fails_in_a_way_that_nobody_has_thought_of_is_a_warning(
    query: QueryCoordinator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.view.page.report", lambda _: 1 / 0)
    reporting.ask(str(query.path), str(query.path.parent / "run.html"))
    assert over(str(query.path))
    assert "There is no report of the run: division by zero" in caplog.text


def test_a_checkpoint_without_a_log_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reporting.ask(str(tmp_path), str(tmp_path / "run.html"))
    assert over(str(tmp_path))
    assert "There is no report of the run" in caplog.text
    reporting.ask(str(tmp_path), "")


def test_a_batch_is_refused_with_it() -> None:
    settings = parse({"checkpointLocation": "/c", "onceonly.report": "/r.html"}, default_name="kafka")
    assert settings.query is not None
    assert settings.query.report == "/r.html"
    with pytest.raises(ConfigurationError, match=r"onceonly\.report"):
        batch_query(settings, "job")
