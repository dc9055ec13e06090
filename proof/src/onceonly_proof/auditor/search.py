"""Reading an index of OpenSearch or Elasticsearch as any program would, by a search over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from onceonly_proof.auditor.world import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.auditor.world import Orphan

_CALL_S = 60.0
HITS_MAX = 10_000
"""How many documents one search gives."""


class SearchReader:
    """Reads all documents of an index, by their fields ``key`` and ``value``; fulfils ``Reader``.

    Each look asks for a refresh first, as whoever wants the newest does: what a search then lacks is not visible yet.
    """

    def __init__(self, sink: str, url: str, index: str) -> None:
        self._sink = sink
        self._url = url
        self._index = index

    def rows(self) -> Iterator[Seen]:
        """Yield the rows that a search gives. Raises ``OSError``, and ``ValueError`` where there are more than that."""
        ask(self._url, "POST", f"/{self._index}/_refresh")
        query = {"size": HITS_MAX, "_source": ["key", "value"], "query": {"match_all": {}}}
        answer = ask(self._url, "POST", f"/{self._index}/_search", query)
        if answer["timed_out"] or answer["_shards"]["successful"] < answer["_shards"]["total"]:
            message = f"a search of {self._index} was answered in part"
            raise OSError(message)
        found = answer["hits"]["hits"]
        if len(found) == HITS_MAX:
            message = f"{self._index} has {HITS_MAX} documents or more, which one search does not give"
            raise ValueError(message)
        for hit in found:
            row = hit["_source"]
            yield Seen(self._sink, row["key"].encode(), row["value"].encode())

    def orphans(self) -> list[Orphan]:
        """Nothing is left open in an index."""
        return []

    def close(self) -> None:
        """Nothing is kept open between calls."""


def ask(url: str, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  whatever the server answers
    """Return what a server answers. Raises ``OSError`` for no answer, and for one that is an error."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(  # noqa: S310  of this machine
        f"{url}{path}", data=data, method=method, headers={"Content-Type": "application/json"}
    )
    with urlopen(request, timeout=_CALL_S) as answer:  # noqa: S310  as above
        return json.load(answer)
