"""The command line: ``onceonly demo``, ``onceonly jars``. Thin: everything it does can be called.

Data go to stdout, messages to stderr. Exit status: 0 clean, 1 anomaly or in doubt, 2 cannot tell, 64 wrong
usage. Every option can be given as ``ONCEONLY_<COMMAND>_<OPTION>``; the command line goes first.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

import click
from rich.console import Console
from rich.text import Text

from onceonly.cli.demo import demo
from onceonly.cli.jars import jars
from onceonly.errors import ConfigurationError, InDoubtError, OnceonlyError

EXIT_ANOMALY = 1
EXIT_CANNOT_TELL = 2
EXIT_USAGE = 64  # EX_USAGE of sysexits.h
_EXIT_INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("onceonly"), prog_name="onceonly")
def cli() -> None:
    """End-to-end exactly-once for Spark Structured Streaming."""


cli.add_command(demo)
cli.add_command(jars)


def main() -> None:
    """Run the command line, and end the process with its exit status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line and give its exit status. An error is one message and one next step."""
    try:
        status = cli.main(
            arguments, prog_name="onceonly", standalone_mode=False, auto_envvar_prefix="ONCEONLY"
        )
    except click.exceptions.Abort:
        _complain("interrupted", "everything that was started has been cleaned up")
        return _EXIT_INTERRUPTED
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except OnceonlyError as error:
        _complain(error.what, error.next_step)
        if isinstance(error, ConfigurationError):
            return EXIT_USAGE
        return EXIT_ANOMALY if isinstance(error, InDoubtError) else EXIT_CANNOT_TELL
    return status if isinstance(status, int) else 0


def _complain(what: str, next_step: str) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), what))
    console.print(Text.assemble(("next:  ", "bold"), next_step))
