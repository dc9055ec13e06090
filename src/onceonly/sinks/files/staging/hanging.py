"""What waits in a target, of whichever query: the staging folders of checkpoints that are lost, too. Only looks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext
from onceonly.ports.standing import Hanging
from onceonly.sinks.files.paths import escape, place, unescape
from onceonly.sinks.files.store import unavailable
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.ports import Leftover
    from onceonly.sinks.files.targets.port import Target


def hanging(target: Target, staging: Path) -> list[Hanging]:
    """List what queries have prepared, or begun to commit. Any process.

    Raises ``UnavailableError`` rather than give a part; what this user may not list is told as such.
    """
    try:
        queries = sorted(map(unescape, target.files.names(staging)))
    except OSError as error:
        raise unavailable(f"the temporary files in {staging} could not be listed", error) from error
    found: list[Hanging] = []
    for query in queries:
        folder = staging / escape(query)
        try:
            found += _of_query(target, folder, query)
        except NotADirectoryError:
            continue  # a file of somebody's
        except (OSError, ConfigurationError, UnavailableError) as error:
            # All queries' folders were listed, so what is missing is a right: on HDFS it stands in a sentence.
            forbidden = PermissionError | ConfigurationError
            if isinstance(error, forbidden) or isinstance(error.__cause__, forbidden):
                found.append(Hanging.unlisted(query, str(folder)))
            elif isinstance(error, OSError):
                raise unavailable(f"what waits in {folder} could not be looked at", error) from error
            else:
                raise
    return found


def _of_query(target: Target, folder: Path, query: str) -> Iterator[Hanging]:
    for sink in sorted(map(unescape, target.files.names(folder))):
        context = QueryContext(query=query, sink=sink, guarantee=Guarantee.EXACTLY_ONCE)
        for found in target.recover(context):
            if found.is_open:
                yield _told(target, context, found)


def _told(target: Target, context: QueryContext, found: Leftover) -> Hanging:
    folder = place(found.data["staging"])
    idle_s, by_hand = target.by_hand(folder)
    is_begun = target.is_begun(folder)
    what = "decided, and its commit was broken off" if is_begun else "written, and perhaps decided"
    return Hanging(
        transaction=found.transaction,
        query=context.query,
        sink=context.sink,
        told=f"chk-{found.epoch} of the sink {context.sink}, {what}: it waits in {folder} since "
        f"{time_of(int(1000 * (time.time() - idle_s)))}",
        if_lost=f"{by_hand}; its rows {'that are not visible yet ' if is_begun else ''}are gone then",
    )
