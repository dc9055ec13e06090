"""MySQL: a MariaDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly_proof.auditor import DatabaseReader
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.mariadb import PASSWORD, EmbeddedMariaDb

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class MySql(Served[EmbeddedMariaDb]):
    """Tables of one server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(EmbeddedMariaDb(folder), commit=b"\x03COMMIT")

    def options(self, name: str) -> dict[str, str]:
        self._server.sql(f"CREATE TABLE `{name}` (`key` LONGTEXT, `value` LONGTEXT)")
        url = self.through_the_proxy(self._server.url)
        return {"url": url, "table": f'"{name}"', "password": PASSWORD}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(sink, self._connect, f"SELECT `key`, `value` FROM `{name}`")  # noqa: S608

    def _connect(self) -> Any:  # noqa: ANN401  the client's own
        return self._server.connect()
