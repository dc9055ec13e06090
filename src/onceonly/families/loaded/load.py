"""What one attempt has loaded, as its vote says: whole data files of the target, which no log of it names yet. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError, InDoubtError
from onceonly.model import Handle
from onceonly.ports.standing import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_VERSION = 1
APPS: Final = "onceonly"
"""The folder of all queries, beside a target's other data files."""
OPEN: Final = "_open"
"""The folder of the notes that tell which attempts are open, beside those of the epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A finished file. ``path`` is below the folder of its attempt, ``keys`` are the partition's values as texts.

    ``notes`` is what the target's log says of it besides: statistics.
    """

    path: str
    bytes: int
    rows: int
    keys: tuple[str | None, ...] = ()
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The files of one attempt. ``folder`` is below the place where the target's data files lie.

    ``app`` names the query's sink in the target's log; it is the upper part of the folder, too. ``table`` is the
    target's own id, ``columns`` what the files hold, and ``since`` a version of the target from before they were begun.
    """

    name: str
    folder: str
    files: tuple[DataFile, ...] = ()
    table: str = ""
    columns: str = ""
    since: int = 0

    @property
    def app(self) -> str:
        return self.folder.rsplit("/", 2)[0]

    @property
    def epoch(self) -> int:
        return int(self.name.partition(".")[0])

    def handle(self) -> Handle:
        return Handle(
            transaction=self.name,
            data={
                "version": _VERSION,
                "folder": self.folder,
                "files": msgspec.json.encode(self.files).decode(),
                "table": self.table,
                "columns": self.columns,
                "since": self.since,
            },
        )

    def parts(self) -> list[Part]:
        """Return the partitions of its files, by their values."""
        return [
            Part(
                partition="/".join("null" if key is None else key for key in file.keys),
                rows=file.rows,
                bytes=file.bytes,
            )
            for file in self.files
        ]

    @classmethod
    def of(cls, handle: Handle) -> Load:
        """Read a handle, or what ``recover`` lists. Raises ``InDoubtError`` for one that this version did not write."""
        data = handle.data
        try:
            load = cls(
                name=handle.transaction,
                folder=str(data["folder"]),
                files=decoder(tuple[DataFile, ...]).decode(str(data.get("files", "[]"))),
                table=str(data.get("table", "")),
                columns=str(data.get("columns", "")),
                since=int(data.get("since", 0)),
            )
        except (KeyError, ValueError) as error:
            raise _foreign(handle, str(error)) from error
        if data.get("version", _VERSION) != _VERSION:
            raise _foreign(handle, f"it is of format {data['version']}")
        if epoch_of(load.name) is None or load.folder.rpartition("/")[2] != load.name:
            raise _foreign(handle, "its name and its folder differ")
        return load


def _foreign(handle: Handle, why: str) -> InDoubtError:
    return InDoubtError(
        f"The handle of transaction {handle.transaction} is none of this sink: {why}.",
        next_step="use the version of onceonly that wrote it",
    )


def require_unchanged(
    loads: Sequence[Load], shown: str, *, table: str, differing: Callable[[str], str]
) -> None:
    """See that a table is still as it was when these were loaded. Pure, but for ``differing``.

    ``table`` is the target's own id, ``differing`` says what the columns that were told have become, empty where they
    are the same. Raises ``ConfigurationError``.
    """
    for load in {(each.table, each.columns): each for each in loads}.values():
        what = "it was made anew" if load.table != table else differing(load.columns)
        if what:
            raise ConfigurationError(
                f"{shown} is not as it was when the rows were written: {what}.",
                next_step="undo that change, so that the rows go into the table as they were written; before the "
                "decision, a new start writes them for the table as it is",
            )


def app_of(query: str, sink: str) -> str:
    """Return what the target's log calls a query's sink. Pure."""
    return f"{APPS}/{query}/{sink}"


def owner_of(app: str) -> tuple[str, str] | None:
    """Return query and sink of what ``app_of`` has named; None for another name. Pure."""
    first, *rest = app.split("/", 2)
    return (rest[0], rest[1]) if first == APPS and len(rest) == 2 else None  # noqa: PLR2004  query and sink


def folder_of(app: str, name: str) -> str:
    """Return the folder of an attempt. Epochs sort as texts, so that a listing can begin at one. Pure."""
    return f"{app}/{int(name.partition('.')[0]):010d}/{name}"


def epoch_of(name: str) -> int | None:
    """Return the epoch that an attempt's name tells, None for another name. Pure."""
    parts = name.split(".")
    return int(parts[0]) if len(parts) == 3 and parts[0].isdecimal() and parts[1].isdecimal() else None  # noqa: PLR2004
