"""``transactions hanging``: what is open and no log knows, of every sink that can list it."""

from __future__ import annotations

import importlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.unit.operator_bench import BOX, QueryCoordinator, here

from onceonly.log.presence import Presence
from onceonly.ports.standing import Hanging


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueryCoordinator:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = QueryCoordinator(tmp_path / "cp")
    made.complete(0)
    return made


def found(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[dict[str, Any]]]:
    status = here("transactions", "hanging", coordinator.path, "--sink", f"box={BOX}", "--json")
    return status, json.loads(capsys.readouterr().out)["transactions"]


def test_what_a_link_names_is_no_finding_and_what_none_does_is_one(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.decide(1)
    assert found(coordinator, capsys) == (0, [])
    coordinator.open("t9-0")
    status, (only,) = found(coordinator, capsys)
    assert (status, only["transaction"], only["query"]) == (1, "t9-0", coordinator.query)
    assert only["command"] == f"onceonly transactions abort t9-0 {coordinator.path}"


def test_a_name_of_an_epoch_that_is_settled_hides_nothing(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.open("t0-0")  # used again by an epoch that was not decided
    status, (only,) = found(coordinator, capsys)
    assert (status, only["transaction"]) == (1, "t0-0")
    assert "next start" in only["told"]
    # No epoch is in flight that a command could abort, so that would refuse.
    assert only["command"] == f"onceonly transactions commit chk-0 {coordinator.path}"
    assert here(*shlex.split(only["command"])[1:], "--yes", "--sink", f"box={BOX}") == 0
    capsys.readouterr()
    assert found(coordinator, capsys) == (0, [])


def test_what_a_running_query_has_open_is_its_own(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator.open("t9-0")
    presence = Presence.hold(str(coordinator.path))
    assert found(coordinator, capsys) == (0, [])
    presence.close()
    assert found(coordinator, capsys)[0] == 1


def test_what_a_sink_finds_of_others_is_told_with_what_it_blocks(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box: Any = importlib.import_module("operator_bench")  # as the command imports it
    others = [
        Hanging(told="open", transaction="x", query="another", blocks="readers"),
        Hanging(told="nobody ends it", blocks="readers", command="a tool"),
    ]
    monkeypatch.setattr(box.BoxSink, "hanging", lambda _self: others)
    status, told = found(coordinator, capsys)
    assert status == 1
    assert [each["transaction"] for each in told] == ["x", None]
    assert "of the query another, whose checkpoint is not here" in told[0]["told"]
    assert [each["command"] for each in told] == [None, "a tool"]
    assert here("transactions", "hanging", coordinator.path, "--sink", f"box={BOX}") == 1
    shown = capsys.readouterr().out
    assert "without a name" in shown
    assert "a tool" in shown


def test_what_could_not_be_looked_at_is_neither_open_nor_safe(
    coordinator: QueryCoordinator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box: Any = importlib.import_module("operator_bench")  # as the command imports it
    unseen = Hanging.unlisted(coordinator.query, "/x")
    monkeypatch.setattr(box.BoxSink, "hanging", lambda _self: [unseen])
    status, (only,) = found(coordinator, capsys)
    assert (status, only["is_open"], only["command"]) == (2, None, None)
    assert only["told"].endswith(f"{coordinator.query}: ask again as the user that its job runs as")
    assert here("transactions", "hanging", coordinator.path, "--sink", f"box={BOX}") == 2
    shown = capsys.readouterr().out
    assert shown.startswith("1 folder may not be listed: what is open there is unknown")
    assert "nothing is open" not in shown
    assert "the same, as that user" in shown
