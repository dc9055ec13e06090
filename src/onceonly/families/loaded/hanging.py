"""What waits beside a table, of whichever query: files that no entry of its log names, of lost checkpoints too.

Only looks. What is open has a note in the place of its data files; what a put leaves that lands after a sweep has none,
and is found by a vacuum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.loaded.load import APPS, epoch_of, folder_of
from onceonly.ports.standing import Hanging
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from onceonly.families.loaded.places import Home

BLOCKS = "nothing: files that no entry of the log names hold nobody up"


def hanging(home: Home, committed: Callable[[str], Collection[str]]) -> list[Hanging]:
    """List the attempts that are noted as open and not ``committed``, as the table's log says of an app.

    Raises ``UnavailableError`` rather than give a part; what this user may not list is told as such.
    """
    found: list[Hanging] = []
    for query in home.below(APPS):
        try:
            for sink in home.below(f"{APPS}/{query}"):
                found += _of_sink(home, query, sink, committed)
        except (ConfigurationError, UnavailableError) as error:
            # All queries' folders were listed, so what is missing is a right: on a store it stands in a sentence.
            if not isinstance(error, ConfigurationError) and not isinstance(error.__cause__, PermissionError):
                raise
            found.append(Hanging.unlisted(query, f"{home.text}/{APPS}/{query}"))
    return found


def _of_sink(
    home: Home, query: str, sink: str, committed: Callable[[str], Collection[str]]
) -> Iterator[Hanging]:
    app = f"{APPS}/{query}/{sink}"
    # Listed before the log is read: what is committed in between is in one of them.
    names = home.marked(app)
    known = committed(app) if names else ()
    for name in names:
        if name in known:
            continue
        since_s, remove = home.by_hand(app, name)
        since = "" if since_s is None else f" since {time_of(int(1000 * since_s))}"
        yield Hanging(
            transaction=name,
            query=query,
            sink=sink,
            told=f"chk-{epoch_of(name)} of the sink {sink}, written and perhaps decided: its files wait in "
            f"{home.text}/{folder_of(app, name)}{since}, and no entry of the table's log names them",
            blocks=BLOCKS,
            if_lost=f"{remove} does; its rows are gone then",
        )
