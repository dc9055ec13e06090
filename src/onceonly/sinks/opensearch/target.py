"""One cluster: what it is asked, and what each of its answers means. Threads may share it."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.sinks.opensearch.clients import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onceonly.errors import OnceonlyError
    from onceonly.sinks.opensearch.clients import Client
    from onceonly.sinks.opensearch.options import SearchOptions

BULK_BYTES = 5 << 20
BULK_ROWS = 2_000
IDS_MAX = 5_000
_ROUNDS_MAX = 100
"""How often documents are removed at a time, as many as a request has: others wait for the next time."""
_OK, _CONFLICT, _TOO_MANY, _TOO_LARGE = 200, 409, 429, 413
_BAD, _LOGIN, _FORBIDDEN, _MISSING, _BROKEN, _UNAVAILABLE = 400, 401, 403, 404, 500, 503
DROPPED = 200
"""The status of a document that is not in the index, though the cluster calls that no error."""
_PAGE = 1000
_DELAY_FIRST_S, _DELAY_MAX_S = 0.1, 5.0
_BLOCKED, _NO_INDEX = "cluster_block_exception", "index_not_found_exception"
_REFUSED, _CLOSED = "security_exception", "index_closed_exception"
_NO_PIPELINE = re.compile(r"pipeline with id \[.*?\] does not exist")
_FLOOD = re.compile(r"read.only\W+allow.delete")
_CONTENT_MAX = "http.max_content_length"
_SIZE = re.compile(r"([\d.]+)(b|kb|mb|gb)")
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
_HELD = re.compile(r"current version \[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Item:
    """One document of a bulk request: what is to be done, and the place of its row."""

    place: int
    action: bytes
    document: bytes

    @property
    def size(self) -> int:
        """Its bytes in a request."""
        return len(self.action) + len(self.document) + 2


@dataclass(frozen=True, slots=True)
class Told:
    """What a cluster said of a document that it did not take."""

    place: int
    status: int
    reason: str

    @property
    def held(self) -> int | None:
        """The version that it has, where that is greater."""
        found = _HELD.search(self.reason) if self.status == _CONFLICT else None
        return int(found[1]) if found else None


class Target:
    """A client that is made when it is first needed."""

    def __init__(self, options: SearchOptions, client: Callable[[SearchOptions], Client]) -> None:
        self._options = options
        self._make = client
        self._client: Client | None = None

    def close(self) -> None:
        """Give back the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(
        self, method: str, path: str, body: object = None, *, fine: Sequence[int] = ()
    ) -> tuple[int, Any]:
        """Return status and answer. Raises a typed error for a status that is an error, unless it is ``fine``."""
        status, answer = self._asked(method, path, None if body is None else encoded(body), fine=fine)
        if status >= _BAD and status not in fine:
            raise self._meaning(status, answer)
        return status, answer

    def bulk(self, index: str, items: Sequence[Item]) -> list[Told]:
        """Write documents; return those that were not taken. What is refused for now is asked again, for a time.

        Raises a typed error; then a part is written, and the same again changes nothing.
        """
        told: list[Told] = []
        for part in _parts(items):
            told += self._patiently(index, part)
        return told

    def versions(self, index: str, ids: Sequence[str]) -> dict[str, int]:
        """Return the versions of the documents that are there, by their ids."""
        found: dict[str, int] = {}
        for first in range(0, len(ids), IDS_MAX):
            some = self._looked_up(f"/{index}/_mget?_source=false", ids[first : first + IDS_MAX])
            found |= {name: each["_version"] for name, each in some.items()}
        return found

    def read(self, index: str, query: object, *, whole: bool) -> Iterator[list[Mapping[str, Any]]]:
        """Yield the documents that a query finds, some at a time, with their versions; what is in them if ``whole``."""
        self.ask("POST", f"/{index}/_refresh")
        body = {"size": _PAGE, "version": True, "_source": whole, "sort": ["_doc"], "query": query}
        found = self._found(f"/{index}/_search?scroll=1m", body)
        while found["hits"]["hits"]:
            yield found["hits"]["hits"]
            found = self._found("/_search/scroll", {"scroll": "1m", "scroll_id": found["_scroll_id"]})
        self.ask("DELETE", "/_search/scroll", {"scroll_id": found["_scroll_id"]}, fine=range(_BAD, 600))

    def uuid(self, index: str) -> str:
        """Return the index's own id, which one that is made anew has not; of other things, what they are."""
        _, found = self.ask("GET", f"/{index}?filter_path=**.uuid")
        return str(found[index]["settings"]["index"]["uuid"]) if index in found else "no index"

    def require_rights(self) -> str:
        """See that the user may read and write both indices; return why that cannot be seen.

        Raises ``ConfigurationError``. Elasticsearch tells of each right where it has users; else it is tried.
        """
        given = self._options
        wanted = {
            given.index: ["read", "index", "delete", "view_index_metadata"],
            given.books: ["read", "index"],
        }
        body = {"index": [{"names": [name], "privileges": each} for name, each in wanted.items()]}
        status, answer = self.ask("POST", "/_security/user/_has_privileges", body, fine=range(_BAD, 600))
        if status == _OK and "index" in answer:
            lacking = [
                f"{right} on {name}"
                for name, rights in sorted(answer["index"].items())
                for right, has in sorted(rights.items())
                if not has
            ]
            if lacking:
                raise ConfigurationError(
                    f"{given.where} does not permit the user {answer.get('username', given.user)} "
                    f"{', '.join(lacking)}",
                    next_step=f"grant its role that of the indices {given.index} and {given.books}",
                )
            return ""
        unseen = [name for name, rights in wanted.items() if not self._tried(name, rights)]
        return f"{given.where} has no index {unseen[0]} yet, which a start makes" if unseen else ""

    def _tried(self, index: str, rights: Sequence[str]) -> bool:
        """Ask for what a sink does with an index, of a document that nobody has: no condition of a change holds.

        Return false where the index is not there. Raises a typed error.
        """
        if self.ask("HEAD", f"/{index}", fine=(_MISSING,))[0] == _MISSING:
            return False
        nobody = uuid.uuid4().hex
        self._looked_up(f"/{index}/_mget", [nobody])
        never = {"_id": nobody, "if_seq_no": 0, "if_primary_term": 1, "pipeline": "_none"}
        for told in self._once(index, [Item(0, encoded({"index": never}), b"{}")]):
            if told.status not in {_CONFLICT, DROPPED}:
                raise self._meaning(told.status, told.reason)
        if "delete" in rights:
            path = f"/{index}/_doc/{nobody}?if_seq_no=0&if_primary_term=1"
            self.ask("DELETE", path, fine=(_CONFLICT, _MISSING))
        return True

    def content_max(self) -> int:
        """Return how many bytes a request may have, as far as the cluster tells; as it comes, 100 MB."""
        path = f"/_cluster/settings?include_defaults=true&filter_path=**.{_CONTENT_MAX}"
        _, answer = self.ask("GET", path, fine=range(_BAD, 600))
        for told in answer.values() if isinstance(answer, dict) else ():
            if isinstance(told, dict) and "http" in told:  # a refusal has a number and texts, too
                found = _SIZE.fullmatch(str(told["http"]["max_content_length"]))
                if found is not None:
                    return int(float(found[1]) * _UNITS[found[2]])
        return 100 * _UNITS["mb"]

    def documents(self, index: str, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the documents that are there, by their ids, none where the index is not there."""
        return self._looked_up(f"/{index}/_mget", ids, fine=(_MISSING,))

    def create(self, index: str, name: str, document: object) -> bool:
        """Make a document unless it is there; say whether it was made."""
        path = f"/{index}/_create/{quote(name, safe='')}"
        return self.ask("PUT", path, document, fine=(_CONFLICT,))[0] != _CONFLICT

    def replace(self, index: str, found: Mapping[str, Any], document: object) -> bool:
        """Write over a document as it was found; say whether nobody else had."""
        path = f"/{index}/_doc/{quote(found['_id'], safe='')}?if_seq_no={found['_seq_no']}"
        path += f"&if_primary_term={found['_primary_term']}"
        return self.ask("PUT", path, document, fine=(_CONFLICT,))[0] != _CONFLICT

    def put(self, index: str, name: str, document: object, version: int) -> None:
        """Write a document unless it has a greater version."""
        path = f"/{index}/_doc/{quote(name, safe='')}?version={version}&version_type=external_gte"
        self.ask("PUT", path, document, fine=(_CONFLICT,))

    def remove(self, index: str, query: object) -> None:
        """Remove the documents that a query finds, unless they have changed since, some at a time. Best effort."""
        for _ in range(_ROUNDS_MAX):
            self.ask(
                "POST", f"/{index}/_refresh", fine=range(_BAD, 600)
            )  # what is removed is found until then
            if self._removed(index, query) < BULK_ROWS:
                return

    def _removed(self, index: str, query: object) -> int:
        """Remove some of the documents that a query finds; return how many."""
        search = {"size": BULK_ROWS, "_source": False, "seq_no_primary_term": True, "query": query}
        status, found = self.ask("POST", f"/{index}/_search", search, fine=range(_BAD, 600))
        if status != _OK:
            return 0
        lines = [
            {
                "delete": {
                    "_id": hit["_id"],
                    "if_seq_no": hit["_seq_no"],
                    "if_primary_term": hit["_primary_term"],
                }
            }
            for hit in found["hits"]["hits"]
        ]
        if not lines:
            return 0
        body = b"".join(encoded(line) + b"\n" for line in lines)
        status, answer = self._asked("POST", f"/{index}/_bulk", body, lines=True)
        return sum(each["delete"]["status"] == _OK for each in answer["items"]) if status == _OK else 0

    # --- calls ----------------------------------------------------------------------------------------------

    def _looked_up(
        self, path: str, ids: Sequence[str], *, fine: Sequence[int] = ()
    ) -> dict[str, Mapping[str, Any]]:
        status, answer = self.ask("POST", path, {"ids": list(ids)}, fine=fine)
        found: dict[str, Mapping[str, Any]] = {}
        for each in answer["docs"] if status == _OK else ():
            # A whole answer may be an error in each of its parts: a shard that is not up yet is not an empty one.
            if "error" in each:
                said = _reason(each)
                meant = _MISSING if _NO_INDEX in said else _FORBIDDEN if _REFUSED in said else _UNAVAILABLE
                if meant not in fine:
                    raise self._meaning(meant, each)
            elif each["found"]:
                found[each["_id"]] = each
        return found

    def _found(self, path: str, body: object) -> Any:  # noqa: ANN401  JSON
        """Search; return an answer of all shards. A whole answer may be one of some of them."""
        _, answer = self.ask("POST", path, body)
        shards = answer["_shards"]
        if shards["successful"] < shards["total"]:
            some = {"reason": f"{shards['successful']} of {shards['total']} shards have answered"}
            raise self._meaning(_UNAVAILABLE, some)
        return answer

    def _patiently(self, index: str, items: Sequence[Item]) -> list[Told]:
        deadline = time.monotonic() + self._options.timeout_s
        delay, told = _DELAY_FIRST_S, list[Told]()
        left = {item.place: item for item in items}
        while True:
            wait: list[Told] = []
            for each in self._once(index, list(left.values())):
                (wait if each.status == _TOO_MANY or each.status >= _BROKEN else told).append(each)
            if not wait:
                return told
            if time.monotonic() + delay > deadline:
                raise UnavailableError(
                    f"{self._options.where} has had too much to do for {self._options.timeout_s:g} s: {wait[0].reason}",
                    next_step="nothing, if that passes; else more nodes, or fewer rows an epoch",
                )
            time.sleep(delay)
            delay = min(2 * delay, _DELAY_MAX_S)
            left = {each.place: left[each.place] for each in wait}

    def _once(self, index: str, items: Sequence[Item]) -> list[Told]:
        body = b"".join(b"%b\n%b\n" % (item.action, item.document) for item in items)
        status, answer = self._asked("POST", f"/{index}/_bulk", body, lines=True)
        if status == _TOO_MANY:
            return [Told(item.place, status, _reason(answer)) for item in items]
        if status == _TOO_LARGE:
            if len(items) == 1:
                return [
                    Told(items[0].place, status, f"its {items[0].size} bytes are more than the cluster takes")
                ]
            middle = len(items) // 2
            return [*self._once(index, items[:middle]), *self._once(index, items[middle:])]
        if status >= _BAD:
            raise self._meaning(status, answer)
        told: list[Told] = []
        for item, answered in zip(items, answer["items"], strict=True):
            [result] = answered.values()
            status = result["status"]
            if status >= _BAD:
                if status in {_FORBIDDEN, _MISSING} or self._of_index(_reason(result)):
                    raise self._meaning(status, result)  # it is not this document's fault
                told.append(Told(item.place, status, _reason(result)))
            elif result.get("result") == "noop" or result.get("_index", index) != index:
                # No error to the cluster: a pipeline may drop a document, or send it elsewhere.
                told.append(Told(item.place, DROPPED, f"an ingest pipeline {_fate(result)}"))
        return told

    def _asked(
        self, method: str, path: str, body: bytes | None, *, lines: bool = False, fine: Sequence[int] = ()
    ) -> tuple[int, Any]:
        if self._client is None:
            self._client = self._make(self._options)
        return self._client.ask(method, path, body, lines=lines, fine=fine)

    def _meaning(self, status: int, answer: object) -> OnceonlyError:
        """Return what a status means that is no success."""
        where, said, who = self._options.where, _reason(answer), self._options.user or "this one"
        if status == _LOGIN:
            return ConfigurationError(
                f"{where} does not let the user {who} in: {said}",
                next_step="see to the options user and password",
            )
        if (found := self._of_index(said)) is not None:
            return found
        if status == _FORBIDDEN:
            return ConfigurationError(
                f"{where} does not permit the user {who} what the sink does: {said}",
                next_step="grant it reading and writing of documents, and the mapping, of the indices "
                f"{self._options.index} and {self._options.books}",
            )
        if status == _MISSING:
            return ConfigurationError(
                f"{where} has no index {self._options.index}: {said}",
                next_step=f"make it: PUT /{self._options.index}",
            )
        if status == _TOO_MANY or status >= _BROKEN:
            return UnavailableError(
                f"{where} cannot answer now: {status} {said}",
                next_step="see to the cluster's health; the query goes on by itself",
            )
        return ConfigurationError(
            f"{where} refuses: {status} {said}", next_step="see what it says, and its log"
        )

    def _of_index(self, said: str) -> OnceonlyError | None:
        """Return what it means where an index takes no writes at all; None where nothing says that."""
        where, index = self._options.where, self._options.index
        if _BLOCKED in said and _FLOOD.search(said):
            return UnavailableError(
                f"{where} has made an index read-only, as a disk is nearly full: {said}",
                next_step="make room; the cluster lifts it then by itself, or set "
                "index.blocks.read_only_allow_delete to null",
            )
        why, step = "", ""
        if _BLOCKED in said:
            why = "takes no writes to an index that is blocked"
            step = "lift the block: set index.blocks.write and index.blocks.read_only to null"
        elif _CLOSED in said:
            why = "takes no writes to an index that somebody has closed"
            step = f"open it: POST /{index}/_open, or that of {self._options.books}"
        elif _NO_PIPELINE.search(said):
            why = f"finds no ingest pipeline that the settings of {index} name"
            step = "bring it back, or take it out of index.default_pipeline and index.final_pipeline"
        return ConfigurationError(f"{where} {why}: {said}", next_step=step) if why else None


def _fate(result: Mapping[str, Any]) -> str:
    dropped = result.get("result") == "noop"
    return "has dropped it" if dropped else f"has sent it to the index {result['_index']}"


def _reason(answer: object) -> str:
    """Return what an error says, with the word of its kind."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error)
    cause = error.get("caused_by") or {}
    more = f": {cause['reason']}" if isinstance(cause, dict) and cause.get("reason") else ""
    return f"{error.get('type', '')}: {error.get('reason', error)}{more}"


def _parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    part: list[Item] = []
    size = 0
    for item in items:
        if part and (size + item.size > BULK_BYTES or len(part) == BULK_ROWS):
            yield part
            part, size = [], 0
        part.append(item)
        size += item.size
    if part:
        yield part
