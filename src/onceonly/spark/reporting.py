"""A report of a query when it ends or fails, where its option asks for one: one HTML file. Driver's Python.

It is written beside the query, after Spark has said that it is over, and never changes what became of it: what goes
wrong is a warning in the log.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly import background
from onceonly.errors import OnceonlyError
from onceonly.log.place import home_of

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger("onceonly")

_END_S: Final = 10.0
"""How long a process that ends waits for a report."""
# By checkpoint: where the report of its query goes.
_wanted: dict[str, Path] = {}
_begun: list[Future[None]] = []


def ask(checkpoint: str, path: str) -> None:
    """Have a report written when a run on this checkpoint ends; none with an empty path. The last call counts."""
    with contextlib.suppress(OnceonlyError):  # an address that is refused by name, later
        if path:
            _wanted[home_of(checkpoint)] = Path(path).absolute()
        else:
            _wanted.pop(home_of(checkpoint), None)


def ended(location: str) -> Future[None] | None:
    """Begin to write the report of a run that is over; return None where nobody asked. Never raises, does not wait."""
    path = None
    with contextlib.suppress(
        OnceonlyError
    ):  # an address that only Java knows, of a query that is none of ours
        path = _wanted.get(home_of(location))
    if path is None:
        return None
    _begun[:] = [each for each in _begun if not each.done()]
    _begun.append(background.begin("onceonly-report", _write, location, path))
    return _begun[-1]


def _write(location: str, path: Path) -> None:
    try:
        from onceonly.looking import look

        # Nobody is there to make the folder when a query ends; what is wrong with it, writing says.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        log.info("The run is in the report %s", look(location).report(path))
    except OnceonlyError as error:
        log.warning("There is no report of the run: %s Next: %s", error.what, error.next_step)
    except Exception as error:  # noqa: BLE001  whatever it is, it is not the query's
        log.warning("There is no report of the run: %s", error)


def end() -> None:
    """Wait a short time for reports that are being written. Called at the end of the process."""
    wait([each for each in _begun if not each.done()], timeout=_END_S)


atexit.register(end)
