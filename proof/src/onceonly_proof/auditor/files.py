"""Reading a folder of JSON lines as any program would: visible names only, and what is left in the staging folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly_proof.auditor.globbing import Find

Parse: TypeAlias = "Callable[[bytes], tuple[bytes | None, bytes]]"
"""Gives key and value of a line."""

# Where JSON lines are looked for, a pattern as `**/*.json` takes them.
_ENDING = ".json"
# part-{epoch}-{slot}-{attempt}-{number}: the documented name of a data file. Its transaction is epoch-slot-attempt.
NAME = re.compile(r"part-(\d+)-(\d+)-([0-9a-f]{32})-\d+\.")


def parse_line(line: bytes) -> tuple[bytes | None, bytes]:
    """Read ``{"key":…,"value":…}`` as Spark writes a row of two texts; any other line is a value without a key."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None, line
    if not (isinstance(fields, dict) and isinstance(fields.get("value"), str)):
        return None, line
    key = fields.get("key")
    return (key.encode() if isinstance(key, str) else None), fields["value"].encode()


class FilesReader:
    """Reads the lines of a folder's files that some reader sees (``visible_files``), or that ``find`` finds.

    Fulfils ``Reader``. ``parse`` makes a row of a line. ``staging`` is the sink's folder of temporary names, below it
    ``query`` if others write there too. A file is read once and again only if it was changed, so that it can be looked
    at often. ``taken`` is where a consumer puts the files that it takes away, under their names: what it has is visible
    for good.
    """

    def __init__(
        self,
        sink: str,
        folder: Path | str,
        *,
        parse: Parse = parse_line,
        find: Find | None = None,
        staging: Path | str | None = None,
        query: str = "",
        taken: Path | str | None = None,
    ) -> None:
        self._sink = sink
        # The consumer's first: what it takes between the two looks is seen at the next, and never twice.
        self._folders = [Path(each) for each in (taken, folder) if each is not None]
        self._folder = Path(folder)
        self._parse = parse
        self._find = find or visible_files
        self._staging = Path(staging) if staging is not None else self._folder / "_onceonly" / "staging"
        self._query = query
        self._read: dict[str, tuple[tuple[int, int, int], list[Seen]]] = {}

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of all visible files, file by file. Raises ``UnavailableError`` where one cannot be read."""
        found = [(str(each.relative_to(top)), each) for top in self._folders for each in self._find(top)]
        for name, path in sorted(found):
            try:
                yield from self._rows_of(name, path)
            except FileNotFoundError:
                self._read.pop(str(path), None)  # it was taken away while we looked: it is not visible
            except OSError as error:
                raise UnavailableError(
                    f"{path} could not be read: {error}",
                    next_step="see to this file, then run the audit again",
                ) from error

    def orphans(self) -> list[Orphan]:
        """Return the files that still have a temporary name."""
        root = self._staging / self._query if self._query else self._staging
        return [
            Orphan(self._sink, f"staging file {path.relative_to(self._staging)}")
            for path in sorted(root.rglob("*"))
            if path.is_file()
        ]

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _rows_of(self, name: str, path: Path) -> list[Seen]:
        state = _state(path.stat())
        known = self._read.get(str(path))
        if known is not None and known[0] == state:
            return known[1]
        match = NAME.match(path.name)
        transaction = f"{int(match[1])}-{int(match[2])}-{match[3]}" if match else ""
        rows = [
            Seen(self._sink, *self._parse(line), name, number, transaction)
            for number, line in enumerate(path.read_bytes().splitlines())
        ]
        self._read[str(path)] = state, rows
        return rows


def visible_files(folder: Path) -> Iterator[Path]:
    """Yield what some reader of a folder sees, as ``is_seen`` has it."""
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] != "."]  # nothing below is seen
        above = Path(base).relative_to(folder).parts
        yield from (Path(base, name) for name in names if is_seen(*above, name))


def is_seen(*path: str) -> bool:
    """Say whether some reader of a folder sees a file: its name, after those of the folders on the way. Pure.

    Spark and Hive pass over what begins with a dot or ``_``, as a file or a folder on the way to it. A pattern as
    ``**/*.json`` passes over what begins with a dot only, and takes what ends so.
    """
    begin = {name[0] for name in path}
    return "." not in begin and ("_" not in begin or path[-1].endswith(_ENDING))


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
