"""Folders of files on the store of the checkpoints, which has faults of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor.stored import StoredFilesReader
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.auditor import Reader


class StoredFiles(Unserved):
    """``names``, ``read`` and ``left`` are of paths below ``root``: what is in a folder, in a file, and what waits."""

    shows_whole_epochs = False

    def __init__(
        self,
        root: str,
        names: Callable[[str], list[str]],
        read: Callable[[str], bytes | None],
        left: Callable[[str], list[str]],
    ) -> None:
        self._root = root
        self._names, self._read, self._left = names, read, left

    def options(self, name: str) -> dict[str, str]:
        return {"path": f"{self._root}/files-{name}", "format": "json"}

    def reader(self, sink: str, name: str) -> Reader:
        return StoredFilesReader(sink, f"files-{name}", names=self._names, read=self._read, left=self._left)
