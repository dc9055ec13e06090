"""Socket: a reader of lines, which answers when it has read all of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor import EnvelopedReader
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.lines import EmbeddedLines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.auditor import Reader

_PLACE = "lines"


class Socket(Served[EmbeddedLines]):
    """Lines of one reader, in envelopes. Rounds come one after another, so a round's are those since it began."""

    shows_whole_epochs = False

    def __init__(self, folder: Path) -> None:
        # Each attempt says all at once, and the answer to it can be lost.
        super().__init__(EmbeddedLines(folder), commit=b"{")
        self._begun: dict[str, int] = {}

    def options(self, name: str) -> dict[str, str]:
        self._begun[name] = len(self._server.kept())
        return {
            "host": "127.0.0.1",
            "port": str(self._proxy.port),
            "acknowledge": "answer",
            "envelope": "json",
            "timeout": "5 seconds",
        }

    def reader(self, sink: str, name: str) -> Reader:
        return EnvelopedReader(sink, lambda: self._records(self._begun[name]))

    def _records(self, first: int) -> Iterator[tuple[str, int, bytes]]:
        for order, line in enumerate(self._server.kept()[first:]):
            yield _PLACE, order, line
