"""Redis: a Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor import RedisReader
from onceonly_proof.campaign.targets.keyed import KEYED
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.redis import EmbeddedRedis

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class Redis(Served[EmbeddedRedis]):
    """Keys of one server, by their prefix. It keeps through a SIGKILL what it has answered."""

    replaces = True
    shows_whole_epochs = False

    def __init__(self, folder: Path) -> None:
        # It commits by a script.
        super().__init__(EmbeddedRedis(folder, settings={"appendfsync": "always"}), commit=b"EVALSHA")

    def options(self, name: str) -> dict[str, str]:
        return {"url": self.through_the_proxy(self._server.url), "prefix": f"{name}:", **KEYED}

    def reader(self, sink: str, name: str) -> Reader:
        return RedisReader(sink, self._server.port, f"{name}:")
