"""``onceonly textbook``: eight pictures of exactly-once, each drawn from a recorded run."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from onceonly.cli import shared
from onceonly_proof.campaign.result import save
from onceonly_proof.textbook import pictures, recordings
from onceonly_proof.textbook.page import page

_FILE = Path("onceonly-textbook.html")


@click.command()
@click.option(
    "--out",
    type=shared.NEW_FILE,
    default=_FILE,
    show_default=True,
    help="The file that is written.",
)
@click.option("--no-browser", is_flag=True, help="Do not open it.")
def textbook(*, out: Path, no_browser: bool) -> int:
    """Write the textbook, one HTML file that needs nothing else, and open it.

    Eight pictures of what exactly-once is, step by step, each drawn from a run that took place and was recorded.
    Standard output is the file's path. Needs neither Spark nor Java.
    """
    save(out, page(pictures.draw(recordings.read())).encode())
    shared.show(str(out.resolve()))
    if not no_browser and not (shared.has_screen() and webbrowser.open(out.resolve().as_uri())):
        shared.tell("no browser was found here: open the file in one")
    return 0
