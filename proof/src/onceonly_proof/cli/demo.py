"""``onceonly demo``: the main job under kills, and its audit."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from onceonly.cli import shared
from onceonly.errors import SetupError
from onceonly.model import Guarantee

if TYPE_CHECKING:
    from types import FrameType

_PICTURE = Path("onceonly-demo.html")


@click.command()
@click.option(
    "--events", type=click.IntRange(min=1), default=336_776, show_default=True, help="How many flights."
)
@click.option("--kills", type=click.IntRange(min=0), default=8, show_default=True, help="How many SIGKILLs.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Chooses the steps and moments of the kills."
)
@click.option(
    "--guarantee",
    type=click.Choice([each.value for each in Guarantee]),
    default=Guarantee.EXACTLY_ONCE.value,
    show_default=True,
    help="What the sinks promise, and what the audit holds them to.",
)
@click.option("--json", "json_file", type=shared.NEW_FILE, help="Write the report as JSON; - is stdout.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep checkpoints, event log, job log, picture and the broker's data in this new folder.",
)
@click.option(
    "--picture",
    type=shared.NEW_FILE,
    help="Where the time line goes.  [default: onceonly-demo.html, or picture.html in the folder of --keep]",
)
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds for the whole.")
def demo(  # noqa: PLR0913  one parameter for each option
    *,
    events: int,
    kills: int,
    seed: int,
    guarantee: str,
    json_file: Path | None,
    keep: Path | None,
    picture: Path | None,
    timeout: float,
) -> int:
    """Stream real flights Kafka → Spark → Kafka, kill the job again and again, and audit the result.

    Needs Java 17+ and the extra onceonly[proof]. Exit status 0 if the audit is clean for the guarantee.
    """
    try:
        from onceonly_proof.demo.options import DemoOptions
        from onceonly_proof.demo.run import run_demo
    except ModuleNotFoundError as error:
        raise SetupError(
            f"the demo needs the package {error.name}", next_step="run: pip install 'onceonly[proof]'"
        ) from None
    # A polite kill cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    options = DemoOptions(
        events=events,
        kills=kills,
        seed=seed,
        guarantee=Guarantee(guarantee),
        keep=keep,
        picture=picture or (keep / "picture.html" if keep else _PICTURE),
        timeout_s=timeout,
    )
    messages = Console(stderr=True)
    result = run_demo(options, messages)
    text = json.dumps(result.to_json(), indent=2)
    if json_file is not None and str(json_file) != "-":
        json_file.write_text(text + "\n", encoding="utf-8")
    if str(json_file) == "-":
        messages.print(result.render())
        click.echo(text)
    else:
        Console(file=sys.stdout).print(result.render())
    messages.print(f"The time line: {result.picture}", highlight=False, soft_wrap=True)
    if keep is not None:
        messages.print(f"Kept: {keep}", highlight=False, soft_wrap=True)
    return 0 if result.is_clean else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
