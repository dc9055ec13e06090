"""Opening a browser at the page. Its address holds the token, and a command line is everybody's to read (``ps``).

So the browser is given a file that only this user can read, and that leads to the address. It is gone with the server.
"""

from __future__ import annotations

import os
import signal
import tempfile
import webbrowser
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly import background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_FILE_MODE: Final = 0o600
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>onceonly</title>
<p><a href="{address}">Go to the page of onceonly</a></p>
</html>
"""


@contextmanager
def opened(address: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Open a browser at an address and ``tell`` where that cannot be; leave nothing of it when the block ends."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="onceonly-ui-", ignore_cleanup_errors=True)
    except OSError as error:
        tell(_itself(error))
        yield
        return
    with folder as path, _ended_by_signals():
        try:
            file = _leading(Path(path, "open.html"), address)
        except OSError as error:
            tell(_itself(error))
        else:
            # Some browsers take seconds to say that they have begun, and wait for the server meanwhile.
            background.begin("onceonly-browser", _open, file.as_uri(), tell)
        yield


def _leading(file: Path, address: str) -> Path:
    """Write a file that leads to an address, readable by this user alone in a folder of the same kind; return it."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "w", encoding="utf-8") as out:  # noqa: PTH123  a descriptor
        out.write(_PAGE.format(address=escape(address)))
    return file


def _open(uri: str, tell: Callable[[str], None]) -> None:
    if not webbrowser.open(uri):
        tell("no browser was found here: open the address in one")


def _itself(error: OSError) -> str:
    return f"no file for a browser can be written here ({error.strerror}): open the address in one"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a kill and a closed terminal end the process as an error does, so that what it leaves is removed."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, _end)
    if before[signal.SIGHUP] is signal.SIG_DFL:  # else it is of nohup, which goes on
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
