"""The sinks for OpenSearch and Elasticsearch: a document for each row, whose version the cluster compares itself."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from onceonly.errors import ConfigurationError
from onceonly.families.keyed import BookedSink, Newer
from onceonly.families.keyed.reading_back import Sum, by_version
from onceonly.families.keyed.rows import larger
from onceonly.ports import Refused
from onceonly.sinks.opensearch import types
from onceonly.sinks.opensearch.books import Books
from onceonly.sinks.opensearch.clients import ElasticsearchClient, OpenSearchClient
from onceonly.sinks.opensearch.options import DECLARED, OF_HADOOP, SearchOptions
from onceonly.sinks.opensearch.target import DROPPED, Item, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.keyed import KeyedRows
    from onceonly.families.keyed.attempt import KeyedAttempt
    from onceonly.families.staged.area import Names
    from onceonly.options import Option
    from onceonly.ports import QueryContext, WriteContext
    from onceonly.ports.standing import Held
    from onceonly.sinks.opensearch.clients import Client

log = logging.getLogger("onceonly")

KEY_BYTES_MAX = 512
TIDY_S = 600.0
"""How often a running query removes names of old epochs, and keys that were deleted long ago."""
_FIELD = "onceonly"
_PIPELINES = ("default_pipeline", "final_pipeline")
_LIMITS = "limits"
"""The fact that says which columns may have values that their fields refuse."""
_CONTENT_MAX = "content_max"
"""The fact how many bytes a request may have."""
_BESIDE, _GROWTH = 2048, 32
"""What a request has beside a document, and how much longer JSON is than a value of Arrow's, at most: a number."""
_MISSING = 404
_ROWS = {"bool": {"must_not": {"term": {f"{_FIELD}.deleted": True}}}}
"""The query that finds all rows, and no key that is deleted."""
_CODES: Mapping[int, str] = {413: "TOO_LARGE", DROPPED: "DROPPED"}
"""Why a row is refused, by the status of its document."""


class OpenSearchSink(BookedSink):
    """Rows into an index of OpenSearch, exactly once by key."""

    name: ClassVar[str] = "opensearch"
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    instead: ClassVar[Mapping[str, str]] = OF_HADOOP
    client: ClassVar[Callable[[SearchOptions], Client]] = OpenSearchClient
    books: Books

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._search = SearchOptions.of(self.options, f"the sink {self.name}")
        self._target = Target(self._search, type(self).client)
        self.books = Books(self._target, index=self._search.books, of=self._search.index)
        self._limits: dict[str, str] = {}
        self._content_max = sys.maxsize
        self._owner, self._tidied_s = ("", ""), 0.0

    def identity(self) -> Mapping[str, str | int]:
        return {"cluster": ",".join(sorted(self._search.urls)), "index": self._search.index}

    # --- rows -----------------------------------------------------------------------------------------------

    def put(self, rows: KeyedRows, version: int) -> tuple[Sequence[Refused], Newer | None]:
        deleted = msgspec.json.encode({_FIELD: {"deleted": True, "at": round(time.time() * 1000)}})
        documents = types.documents(rows.rows)
        items = []
        for place, (key, is_deleted) in enumerate(zip(rows.keys, rows.deleted, strict=True)):
            action = {"index": {"_id": key, "version": version, "version_type": "external_gte"}}
            document = deleted if is_deleted else msgspec.json.encode(documents[place])
            items.append(Item(place, msgspec.json.encode(action), document))
        newer: Newer | None = None
        refused: list[Refused] = []
        for told in self._target.bulk(self._search.index, items):
            if told.held is not None:
                newer = newer or Newer(rows.keys[told.place], told.held)
            else:
                code = _CODES.get(told.status, "MAPPING")
                refused.append(Refused(row=told.place, code=code, why=f"the index refuses it: {told.reason}"))
        return sorted(refused, key=lambda each: each.row), newer

    def begin_transaction(self, context: WriteContext) -> KeyedAttempt:
        limits: dict[str, str] = msgspec.json.decode(str(context.facts.get(_LIMITS, "{}")))
        self._limits = limits
        self._content_max = int(context.facts.get(_CONTENT_MAX, sys.maxsize))
        return super().begin_transaction(context)

    def unfit(self, rows: KeyedRows) -> Iterator[Refused]:
        yield from rows.too_long(KEY_BYTES_MAX, "an id")
        for name, column in zip(rows.rows.schema.names, rows.rows.columns, strict=True):
            yield from types.gaps(name, column, self._limits)
        yield from self._too_large(rows.rows)

    def _too_large(self, rows: pa.RecordBatch) -> Iterator[Refused]:
        """Yield the rows whose documents are more than a request may have."""
        most = self._content_max - _BESIDE
        names = sum(len(name.encode()) for name in rows.schema.names)
        for row, _ in larger(rows, most // _GROWTH - names):
            size = len(msgspec.json.encode(types.documents(rows.slice(row, 1))[0]))
            if size > most:
                why = f"its document has {size} bytes, and a request at most {most} (http.max_content_length)"
                yield Refused(row=row, code="TOO_LARGE", why=why)

    def versions(self) -> Mapping[int, int]:
        counts: Counter[int] = Counter()
        for some in self._target.read(self._search.index, _ROWS, whole=False):
            counts.update(each["_version"] for each in some)
        return counts

    def read_by_version(self, columns: Sequence[tuple[str, str]]) -> Mapping[int, Held]:
        sums: dict[int, Sum] = {}
        unread, names = self._kept_otherwise(), [name for name, _ in columns]

        def made() -> Sum:
            return Sum(columns, types.back, unread=unread)

        for some in self._target.read(self._search.index, _ROWS, whole=True):
            sources = [(each["_version"], each.get("_source", {})) for each in some]
            rows = [(version, [source.get(name) for name in names]) for version, source in sources]
            by_version(rows, sums, made)
        return {version: each.held() for version, each in sums.items()}

    def _kept_otherwise(self) -> str:
        """Say why documents may not be read as they were written; empty where they are."""
        _, found = self._target.ask("GET", f"/{self._search.index}")
        mapping, settings = (found[self._search.index][each] for each in ("mappings", "settings"))
        pipelines = _pipelines(settings["index"])
        if pipelines:
            return f"the ingest pipeline {', '.join(pipelines)} may have changed what was written"
        mode = settings["index"].get("mapping", {}).get("source", {}).get("mode", "stored")
        if (
            mapping.get("_source")
            or mode != "stored"
            or settings["index"].get("mode", "standard") != "standard"
        ):
            return "the index does not keep documents as they were written (_source)"
        return ""

    def examine(self, rows: KeyedRows, version: int) -> Newer | None:
        held = self._target.versions(self._search.index, rows.keys)
        return next((Newer(key, each) for key, each in held.items() if each > version), None)

    # --- the index ------------------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        return f"the index {self._search.index} on {self._search.where}"

    def id_now(self) -> str:
        """Return its id: whoever writes to an index that is deleted makes it anew, with fields that are guessed."""
        return self._target.uuid(self._search.index)

    def lost(self, keys: Sequence[str], version: int) -> str | None:
        held = self._target.versions(self._search.index, keys)
        return next((key for key in keys if held.get(key, -1) < version), None)

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:  # noqa: ARG002  the cluster's users
        """Ask the cluster what its user may do, as far as it tells."""
        return self._target.require_rights()

    # --- the cluster ----------------------------------------------------------------------------------------

    def look(self, context: QueryContext) -> Mapping[str, str | int]:
        given, who = self._search, f"the sink {self.name}"
        status, found = self._target.ask("GET", f"/{given.index}", fine=(_MISSING,))
        if status == _MISSING:
            raise ConfigurationError(
                f"{given.where} has no index {given.index}.",
                next_step=f"make it: PUT /{given.index}; fields that it lacks are added for the query's columns",
            )
        if given.index not in found:
            names = sorted(found)
            kind = "a data stream, which takes no rows by key" if names[0].startswith(".ds-") else "an alias"
            raise ConfigurationError(
                f"{given.index} is {kind}, of {', '.join(names)}: a key would be there once in each of its indices.",
                next_step="name an index itself",
            )
        mapping, settings = found[given.index]["mappings"], found[given.index]["settings"]["index"]
        self.looked_at = settings["uuid"]
        if mapping.get("_routing", {}).get("required"):
            raise ConfigurationError(
                f"The index {given.index} asks for a routing, and the same key would be there once for each.",
                next_step="write to an index without _routing.required",
            )
        if settings.get("translog", {}).get("durability", "request").lower() == "async":
            log.warning(
                "The index %s makes rows durable some seconds late (index.translog.durability async): a crash of the "
                "cluster may take what was committed. Set it to request.", given.index,
            )  # fmt: skip
        pipelines = _pipelines(settings)
        if pipelines:
            log.warning(
                "The index %s has the ingest pipeline %s: a row that it drops or sends elsewhere is refused; one of a "
                "decided epoch keeps that pending until the pipeline takes it.", given.index, ", ".join(pipelines),
            )  # fmt: skip
        self._add_fields(context, mapping.get("properties", {}), str(mapping.get("dynamic", "true")), who)
        self.books.open()
        self._owner = (context.query, context.sink)
        self._tidy()
        limits = types.limits(context.columns, mapping.get("properties", {}))
        return {
            _LIMITS: msgspec.json.encode(limits).decode(),
            _CONTENT_MAX: self._target.content_max(),
        }

    def refresh(self, facts: Mapping[str, str | int]) -> Mapping[str, str | int]:
        if time.monotonic() - self._tidied_s > TIDY_S:
            self._tidy()
        return facts

    def _tidy(self) -> None:
        """Remove what nobody asks for any more; does not insist."""
        self._tidied_s = time.monotonic()
        self.books.forget(*self._owner)
        if self.columns.op is not None:
            self._bury()

    def _add_fields(
        self, context: QueryContext, properties: Mapping[str, Any], dynamic: str, who: str
    ) -> None:
        """Give the index the fields that it lacks: what it would guess from a first row may refuse another."""
        columns = [each for each in context.columns if each[0] != self.columns.op]
        wanted = types.missing(columns, properties, who)
        if self.columns.op is not None and _FIELD not in properties:
            wanted[_FIELD] = types.DELETED
        if not wanted:
            return
        body = {"properties": wanted}
        if dynamic.lower() in {"strict", "strict_allow_templates"}:
            raise ConfigurationError(
                f"The index {self._search.index} is strict and has no field {next(iter(wanted))}.",
                next_step=f"add it: PUT /{self._search.index}/_mapping {msgspec.json.encode(body).decode()}",
            )
        self._target.ask("PUT", f"/{self._search.index}/_mapping", body)

    def _bury(self) -> None:
        """Remove documents of keys that were deleted long ago."""
        before = round((time.time() - self._search.tombstones_s) * 1000)
        gone = {"term": {f"{_FIELD}.deleted": True}}
        old = {"bool": {"filter": [gone, {"range": {f"{_FIELD}.at": {"lt": before}}}]}}
        self._target.remove(self._search.index, old)

    # --- books ----------------------------------------------------------------------------------------------

    def void(self, names: Names) -> Collection[str]:
        self.books.open()
        return self.books.void(names)

    def close(self) -> None:
        self._target.close()


def _pipelines(settings: Mapping[str, Any]) -> list[str]:
    return sorted({settings.get(each, "_none") for each in _PIPELINES} - {"_none"})


class ElasticsearchSink(OpenSearchSink):
    """Rows into an index of Elasticsearch, exactly once by key."""

    name: ClassVar[str] = "elasticsearch"
    client: ClassVar[Callable[[SearchOptions], Client]] = ElasticsearchClient
