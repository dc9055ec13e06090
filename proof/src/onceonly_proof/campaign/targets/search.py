"""What OpenSearch and Elasticsearch have in common as targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor.search import SearchReader, ask
from onceonly_proof.campaign.targets.keyed import KEYED
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.opensearch import EmbeddedOpenSearch

if TYPE_CHECKING:
    from onceonly_proof.auditor import Reader


class Search(Served[EmbeddedOpenSearch]):
    """Indices of one node."""

    replaces = True
    shows_whole_epochs = False

    def __init__(self, server: EmbeddedOpenSearch) -> None:
        super().__init__(server, commit=b"/_bulk")

    def options(self, name: str) -> dict[str, str]:
        ask(self._server.url, "PUT", f"/{name}", {"settings": {"number_of_replicas": 0}})
        return {"url": self.through_the_proxy(self._server.url), "index": name, **KEYED}

    def reader(self, sink: str, name: str) -> Reader:
        return SearchReader(sink, self._server.url, name)
