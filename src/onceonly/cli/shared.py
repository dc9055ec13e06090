"""What the operator's commands have in common: the path, the output, one sentence for each folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onceonly.errors import CheckpointMovedError, ConfigurationError, InDoubtError, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from onceonly.errors import OnceonlyError
    from onceonly.operations.find import Checkpoint, Found
    from onceonly.operations.search import Problem

EXIT_ANOMALY = 1
EXIT_CANNOT_TELL = 2
EXIT_USAGE = 64  # EX_USAGE of sysexits.h
# A table is as wide as what is in it: in a pipe nothing is cut and nothing is folded.
_PIPE_WIDTH = 100_000
HADOOP_CONF = "ONCEONLY_HADOOP_CONF"
"""The environment's name for files of what the job gives to Hadoop."""


def _take(_context: click.Context, _parameter: click.Parameter, files: tuple[Path, ...]) -> None:
    """Tell this process what the job gave to Hadoop, before any store is opened."""
    from onceonly.stores import opened
    from onceonly.stores.configuration import settings

    opened.tell(settings(files))


hadoop_option = click.option(
    "--hadoop-conf", multiple=True, metavar="FILE", envvar=HADOOP_CONF, expose_value=False, callback=_take,
    type=click.Path(exists=True, path_type=Path),
    help="What the job gives to Hadoop to reach a store: a file such as core-site.xml or spark-defaults.conf, or a "
    f"folder of them. Default: the files that {HADOOP_CONF} names; those in HADOOP_CONF_DIR are read before.",
)  # fmt: skip


class _NewFile(click.Path):
    """A file that a command will write: its folder is there before anything is done, and none is made by a slip."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  click's
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if str(path) != "-" and not path.parent.is_dir():
            raise ConfigurationError(
                f"{path} cannot be written: there is no folder {path.parent}",
                next_step=f"correct it, or make the folder: mkdir -p {shlex.quote(str(path.parent))}",
            )
        return path


NEW_FILE = _NewFile()
# What a name from outside could steer a terminal with, or turn round the text that stands behind it.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_EPOCH = re.compile(r"(?:chk-)?(\d{1,19})")
_path = click.argument("path", default=".", metavar="[PATH]")


def path_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the path of a command, and how its store is reached."""
    return _path(hadoop_option(command))


SECONDS: Final = click.FloatRange(min=0, min_open=True)
"""What a time-out may be."""
because_option = click.option(
    "--because", default="", metavar="TEXT", help="Why, for the record.",
    callback=lambda _context, _parameter, text: text.strip(),
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")
events_option = click.option(
    "--events", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
    help="The event log of the job, which ONCEONLY_EVENTS named: it tells more of each step.",
)  # fmt: skip
yes_option = click.option("--yes", is_flag=True, help="Do it without asking.")


def span_option(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    """Read a time as Spark writes it."""
    from onceonly.options import span

    try:
        return span(text)
    except ValueError as error:
        message = f"{text!r} is no time such as '7 days', '12 hours' or 90m"
        raise click.BadParameter(message) from error


def epoch_of(name: str) -> int | None:
    """Return the number of an epoch that is named chk-7 or 7; None for another name."""
    match = _EPOCH.fullmatch(name)
    return int(match[1]) if match else None


def epoch_named(name: str) -> int:
    """Return the number of an epoch that is named chk-7 or 7. Raises ``ConfigurationError`` for another name."""
    epoch = epoch_of(name)
    if epoch is None:
        raise ConfigurationError(f"{name!r} does not name an epoch", next_step="write it as chk-7")
    return epoch


def stdout() -> Console:
    """Return the console for data. Colours only on a terminal, and not with NO_COLOR."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, highlight=False, width=None if terminal else _PIPE_WIDTH)


@dataclass(frozen=True)
class Legible:
    """What rich prints, without what a name in it would do to a terminal."""

    part: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in console.render(self.part, options):
            yield Segment(text if control else legible(text), style, control)


def legible(text: str) -> str:
    """Return a text in which what steers a terminal is seen."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def show(*parts: RenderableType) -> None:
    """Print data; in a pipe without the blanks that fill a table up."""
    if not parts:
        return
    console = stdout()
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        elif console.is_terminal:
            console.print(Legible(part))
        else:
            with console.capture() as captured:
                console.print(Legible(part))
            click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(value: Any) -> None:  # noqa: ANN401  any JSON
    """Print JSON."""
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def has_screen() -> bool:
    """Say whether a browser would be seen: elsewhere one of text would take the terminal."""
    here = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return here and sys.stdout.isatty()


def complain(what: str, next_step: str) -> None:
    """Print one message and one next step to standard error."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), legible(what)))
    console.print(Text.assemble(("next:  ", "bold"), legible(next_step)))


def tell(text: str) -> None:
    """Print a message to standard error."""
    click.echo(legible(text), err=True)


def status_of(error: OnceonlyError) -> int:
    """Return the exit status for an error."""
    if isinstance(error, ConfigurationError):
        return EXIT_USAGE
    return EXIT_ANOMALY if isinstance(error, InDoubtError | CheckpointMovedError) else EXIT_CANNOT_TELL


def report(problems: Iterable[Problem], *, others: bool) -> int:
    """Say what is wrong with folders, one sentence each; return the exit status.

    A checkpoint of Spark's alone is only worth a word where there are ``others`` to show.
    """
    status = 0
    for problem in problems:
        if problem.foreign and others:
            tell(f"left out: {problem.error.what}")
            continue
        complain(problem.error.what, typed(problem.error))
        status = max(status, status_of(problem.error) if not problem.foreign else EXIT_CANNOT_TELL)
    return status


def each(
    found: Found, do: Callable[[Checkpoint], Any], *, at_once: int = 1
) -> tuple[list[tuple[Checkpoint, Any]], tuple[Problem, ...]]:
    """Do something with each checkpoint; one that fails is a problem and does not hide the others.

    ``at_once`` is for what asks nobody: how many are done at the same time.
    """
    from onceonly import background
    from onceonly.errors import OnceonlyError
    from onceonly.operations.search import Problem

    def attempt(checkpoint: Checkpoint) -> Any:  # noqa: ANN401  whatever is done
        try:
            return do(checkpoint)
        except OnceonlyError as error:
            return Problem(checkpoint.path, error)

    done = background.spread("onceonly-look", attempt, found.checkpoints, threads_max=at_once)
    pairs = list(zip(found.checkpoints, done, strict=True))
    failed = [result for _, result in pairs if isinstance(result, Problem)]
    return [pair for pair in pairs if not isinstance(pair[1], Problem)], (*found.problems, *failed)


@contextlib.contextmanager
def progress(verb: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show on a terminal, on standard error, how far a work has come, and with what; silent elsewhere.

    It begins when it is told of something, as somebody may be asked before. Any thread tells.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = [TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    beside = TextColumn("{task.fields[beside]}", markup=False)
    shown = Progress(*columns, beside, console=console, transient=True, disable=not console.is_terminal)
    task = shown.add_task(verb, beside="")

    def told(done: int, total: int, beside: str) -> None:
        shown.update(task, completed=done, total=total, beside=legible(beside))
        shown.start()

    try:
        yield told
    finally:
        shown.stop()


def agreed(question: str, *, yes: bool) -> bool:
    """Ask on the terminal. Raises ``ConfigurationError`` where nobody could answer."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "there is no terminal to ask on, and nothing was done", next_step="look at it, then add --yes"
        )
    return click.confirm(question, err=True)


def blocks(parts: Sequence[RenderableType]) -> list[RenderableType]:
    """Put an empty line between parts."""
    from rich.text import Text

    found: list[RenderableType] = []
    for part in parts:
        found += [Text(), part] if found else [part]
    return found


def show_each(groups: Iterable[Sequence[RenderableType]]) -> None:
    """Print groups of parts one below the other, with an empty line between parts."""
    show(*blocks([part for group in groups for part in group]))
