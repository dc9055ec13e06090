"""What a handle of the file sink says: all that any process needs to commit, to abort and to look up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import InDoubtError
from onceonly.model import Handle
from onceonly.sinks.files.manifests.manifest import DataFile
from onceonly.sinks.files.paths import HIDDEN, place
from onceonly.sinks.files.staging.staged import staged_name

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = 2
_LINKED = 1
"""The version whose staged files had their final paths in the folder, and were linked: read for ever."""
_UPLOADED = 3
"""The version of handles that hold uploads; others are written as before."""


class Upload(msgspec.Struct, frozen=True, array_like=True):
    """An upload that is left open: its id, and what the store answered to each of its parts."""

    id: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a handle's data says. ``staging`` is the folder of the transaction's temporary names.

    ``linked`` is for a handle of the version that gave final names by links: see ``placing``. ``uploads`` are those of
    the files, in their order, where the target is a bucket.
    """

    transaction: str
    target: Path
    staging: Path
    layout: str
    files: tuple[DataFile, ...]
    token: str = ""
    """The target's own id; empty where its writer did not say it."""
    linked: bool = False
    uploads: tuple[Upload, ...] = ()

    @property
    def manifests(self) -> Path:
        """The folder of the manifests of its query and sink, which have the same names there."""
        root = self.staging.parent
        return self.target / HIDDEN / "epochs" / root.parent.name / root.name

    def name_of(self, file: DataFile) -> str:
        """Return a file's name in the transaction's folder."""
        return file.path if self.linked else staged_name(file.path)

    def handle(self) -> Handle:
        uploads = {"uploads": msgspec.json.encode(self.uploads).decode()} if self.uploads else {}
        return Handle(
            transaction=self.transaction,
            data={
                "version": _UPLOADED if uploads else _VERSION,
                "target": str(self.target),
                "staging": str(self.staging),
                "layout": self.layout,
                "files": msgspec.json.encode(self.files).decode(),
                "token": self.token,
                **uploads,
            },
        )

    @classmethod
    def of(cls, handle: Handle) -> Prepared:
        """Read a handle; raises ``InDoubtError`` for one that this version cannot have written."""
        data = handle.data
        try:
            if data["version"] not in {_VERSION, _LINKED, _UPLOADED}:
                raise foreign(handle, f"format {data['version']}")
            return cls(
                transaction=handle.transaction,
                target=place(data["target"]),
                staging=place(data["staging"]),
                layout=str(data["layout"]),
                files=decoder(tuple[DataFile, ...]).decode(str(data["files"])),
                token=str(data.get("token", "")),
                linked=data["version"] == _LINKED,
                uploads=decoder(tuple[Upload, ...]).decode(str(data["uploads"]))
                if data["version"] == _UPLOADED
                else (),
            )
        except (KeyError, ValueError) as error:
            raise foreign(handle, str(error)) from error


def foreign(handle: Handle, why: str) -> InDoubtError:
    """Make the error for a handle that this version of the file sink cannot have written."""
    return InDoubtError(
        f"The handle of transaction {handle.transaction} is not one of the file sink: {why}.",
        next_step="use the version of onceonly that wrote it",
    )
