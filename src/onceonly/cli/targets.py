"""What the commands that reach a target have in common: its options, and what is agreed to before a secret is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onceonly.cli import shared
from onceonly.errors import ConfigurationError
from onceonly.operations.given import OPTIONS_FILE, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.operations.given import Given


def sink_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that tell how a target is reached."""
    for option in (
        click.option(
            "--sink", "classes", multiple=True, metavar="SINK=CLASS",
            help="What a sink of yours is, package.module:Class: none is imported because a checkpoint names it.",
        ),
        click.option(
            "--options-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file of lines NAME=VALUE, as for --option, for what should not be on a command line. "
            f"Default: the file that {OPTIONS_FILE} names.",
        ),
        click.option(
            "--option", "options", multiple=True, metavar="[SINK:]NAME=VALUE",
            help="An option of a sink that the log does not hold: a secret one, or one that has changed.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that tell how the query's sources are reached."""
    for option in (
        click.option(
            "--source-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file of lines NAME=VALUE, as for --source, for what should not be on a command line.",
        ),
        click.option(
            "--source", "sources", multiple=True, metavar="NAME=VALUE",
            help="An option of the query's source, which says how it is reached: it is seen whether it has what is "
            "read next. Of several of a kind, N:NAME=VALUE is of that with the number N.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def described_option(told: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option for a job that a file describes, as no checkpoint does; ``told`` says what is done with it."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("--for", "described", type=file, metavar="OPTIONS.json", help=told)


def given(
    options: tuple[str, ...], options_file: Path | None, classes: tuple[str, ...], *, yes: bool
) -> Given:
    """Return what the operator gives by ``sink_options``; they are asked before a secret is sent."""
    return read(options, options_file, classes, agree=_agreeing(yes=yes))


def _agreeing(*, yes: bool) -> Callable[[str], None]:
    """Make what asks the operator before a secret is sent; each address once."""
    known: set[str] = set()

    def agree(what: str) -> None:
        if what in known:
            return
        shared.tell(what)
        if not shared.agreed("Shall it be sent there?", yes=yes):
            raise ConfigurationError(
                f"it was not agreed to: {what}",
                next_step="give the address yourself with --option, or agree",
            )
        known.add(what)

    return agree
