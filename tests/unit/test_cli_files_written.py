"""Files that a command writes: their folder is there before anything is done, and no command makes one by a slip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from tests.unit.operator_bench import QueryCoordinator, run

from onceonly.cli import cli, shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def commands(group: click.Group) -> Iterator[click.Command]:
    """Yield every command of the command line, those of the proof among them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield found
        if isinstance(found, click.Group):
            yield from commands(found)


def files(command: click.Command) -> Iterator[click.Path]:
    """Yield the types of options that take a file, alone or behind a word."""
    for parameter in command.params:
        kinds = parameter.type.types if isinstance(parameter.type, click.Tuple) else [parameter.type]
        yield from (kind for kind in kinds if isinstance(kind, click.Path) and kind.file_okay)


def test_every_file_that_a_command_writes_is_of_the_one_kind() -> None:
    found = [(command.name, kind) for command in commands(cli) for kind in files(command)]
    written = [(name, kind) for name, kind in found if not kind.exists]
    assert {name for name, _ in written} >= {"report", "audit", "verify", "demo", "textbook"}
    assert [name for name, kind in written if kind is not shared.NEW_FILE] == []


@pytest.mark.parametrize(
    "arguments",
    [("report", "--out"), ("report", "--export", "perfetto"), ("audit", "--export"), ("textbook", "--out")],
)
def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    command, *options = arguments
    places = () if command == "textbook" else (tmp_path / "cp",)
    done = run(command, *places, *options, tmp_path / "no where" / "run.html")
    assert (done.returncode, done.stdout) == (64, "")
    assert f"there is no folder {tmp_path / 'no where'}" in done.stderr
    assert f"mkdir -p '{tmp_path / 'no where'}'" in done.stderr
    assert not (tmp_path / "no where").exists()
