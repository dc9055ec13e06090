"""The command line: exit statuses, one message and a next step, never a stack trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from onceonly import cli
from onceonly.errors import ConfigurationError, InDoubtError, OnceonlyError, SetupError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--version"], 0),
        (["--help"], 0),
        (["demo", "--help"], 0),
        (["jars", "--help"], 0),
        (["nonsense"], 64),
        (["demo", "--nonsense"], 64),
        (["demo", "--events", "many"], 64),
        (["demo", "--events", "0"], 64),
        (["demo", "--guarantee", "twice"], 64),
        (["demo", "--events", "400000"], 64),
        (["demo", "--events", "100", "--kills", "12"], 64),
    ],
)
def test_status(arguments: list[str], status: int) -> None:
    assert cli.run(arguments) == status


def test_a_folder_that_is_not_empty_is_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert cli.run(["demo", "--events", "5000", "--kills", "0", "--keep", str(tmp_path)]) == 64
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    told = capsys.readouterr()
    assert told.out == ""
    assert "not empty" in told.err
    assert "next:" in told.err
    assert "Traceback" not in told.err


def test_the_environment_stands_behind_the_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONCEONLY_DEMO_EVENTS", "many")
    assert cli.run(["demo"]) == 64
    assert "many" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigurationError("w", next_step="n"), 64),
        (InDoubtError("w", next_step="n"), 1),
        (SetupError("w", next_step="n"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors(
    error: OnceonlyError | KeyboardInterrupt, status: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setitem(cli.cli.commands, "failing", failing)
    assert cli.run(["failing"]) == status
    assert "next:" in capsys.readouterr().err
