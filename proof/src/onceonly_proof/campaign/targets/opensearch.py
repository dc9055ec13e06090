"""OpenSearch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.campaign.targets.search import Search
from onceonly_proof.embedded.opensearch import EmbeddedOpenSearch

if TYPE_CHECKING:
    from pathlib import Path


class OpenSearch(Search):
    """Indices of one node."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002  it chooses one that its user can reach
        super().__init__(EmbeddedOpenSearch())
