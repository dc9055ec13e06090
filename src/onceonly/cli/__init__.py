"""The command line: what an operator does, and ``demo``, ``textbook`` and ``verify`` of the proof.

All thin. Those come with the distribution onceonly-proof, which names them under the entry point
``onceonly.commands``. Data go to stdout, messages to stderr. Exit status: 0 clean, 1 anomaly or in doubt, 2 cannot
tell, 64 wrong usage. Every option can be given as ``ONCEONLY_<COMMAND>_<OPTION>``; the command line goes first.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib import metadata

import click

from onceonly.cli.shared import EXIT_ANOMALY, EXIT_CANNOT_TELL, EXIT_USAGE, complain, status_of
from onceonly.errors import OnceonlyError, SetupError, typed

__all__ = ["EXIT_ANOMALY", "EXIT_CANNOT_TELL", "EXIT_USAGE", "cli", "main", "run"]

_EXIT_INTERRUPTED = 130
_COMMANDS = (
    "audit",
    "checkpoints",
    "doctor",
    "files",
    "jars",
    "journal",
    "metrics",
    "report",
    "rescale",
    "savepoint",
    "stop",
    "transactions",
    "ui",
    "watch",
)
_OF_PROOF = ("demo", "textbook", "verify")
_ENTRY_POINTS = "onceonly.commands"


class _Commands(click.Group):
    """Loads a command when it is asked for: an operator's look should not wait for the demo's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *_OF_PROOF, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = super().get_command(ctx, cmd_name)
        if known is not None:
            return known
        if cmd_name in _COMMANDS:
            found: click.Command = getattr(importlib.import_module(f"onceonly.cli.{cmd_name}"), cmd_name)
            return found
        return _of_proof(cmd_name) if cmd_name in _OF_PROOF else None


def _of_proof(name: str) -> click.Command:
    """Return a command of onceonly-proof, or one in its place that says what to install."""
    for point in metadata.entry_points(group=_ENTRY_POINTS, name=name):
        try:
            found: click.Command = point.load()
        except ModuleNotFoundError as error:
            return _missing(name, f"needs the package {error.name}, which is not installed")
        return found
    return _missing(name, "comes with the distribution onceonly-proof, which is not installed")


def _missing(name: str, why: str) -> click.Command:
    @click.command(
        name,
        short_help="Not installed: pip install 'onceonly[proof]'.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def command() -> None:
        raise SetupError(f"onceonly {name} {why}.", next_step="run: pip install 'onceonly[proof]'")

    return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onceonly", prog_name="onceonly")
def cli() -> None:
    """End-to-end exactly-once for Spark Structured Streaming."""


def main() -> None:
    """Run the command line, and end the process with its exit status."""
    # Clients in Rust warn on stderr of what they then say in an error, with whole answers of servers.
    os.environ.setdefault("RUST_LOG", "error")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit status. An error is one message and one next step."""
    try:
        status = cli.main(
            arguments, prog_name="onceonly", standalone_mode=False, auto_envvar_prefix="ONCEONLY"
        )
    except click.exceptions.Abort:
        complain(
            "interrupted",
            "run the same command again, which goes on or begins anew: nothing half is taken for whole",
        )
        return _EXIT_INTERRUPTED
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except OnceonlyError as error:
        complain(error.what, typed(error))
        return status_of(error)
    return status if isinstance(status, int) else 0
