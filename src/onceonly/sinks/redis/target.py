"""One server, or a cluster: what it is asked, and what each of its answers means. Threads may share it."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.families.keyed.books import who
from onceonly.sinks.redis import scripts
from onceonly.sinks.redis.connections import Connections
from onceonly.sinks.redis.slots import by_slot, names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import redis

    from onceonly.sinks.redis.columns import Column
    from onceonly.sinks.redis.connections import Call

log = logging.getLogger("onceonly")

KEYS_MAX = 500
"""Keys that a script looks at: the server does nothing else while it runs (less than 1 ms)."""
ROWS_MAX, BYTES_MAX = 50, 1 << 20
"""Rows that a script puts, and bytes of them, if it is not one row. What it writes stays in memory until it ends: ten
times as many rows would cost the server twice as much each, as they do not fit its processor's cache."""
VALUE_BYTES_MAX = 512 << 20
"""No value is longer, and as long as a server takes one where nobody says proto-max-bulk-len."""
VERSION_MIN = (6, 2)
LOOK_AGAIN_S = 600.0
"""How long a server is trusted to be configured as it was: who is short of memory changes it while the query runs."""
_ALWAYS = "always"
_VERSION_DIGITS = 19
# How many of one batch are on their way at a time; the client holds their bytes. On a cluster most have one row.
_SCRIPTS_MAX = 100
_SCRIPTS_OF_SLOTS_MAX = 1000


class Target(Connections):
    """What the sink asks of its server, or of its cluster."""

    _warned: frozenset[str] = frozenset()
    _looked_s = 0.0

    # --- rows -----------------------------------------------------------------------------------------------

    def put(
        self,
        keys: Sequence[str],
        deleted: bytes,
        columns: Sequence[Column],
        version: str,
        bounds: Sequence[tuple[int, int]] = (),
    ) -> tuple[str, str] | None:
        """Put rows, or delete those that have a 1 in ``deleted``; return a key that has a greater version, and that.

        ``bounds`` say where the rows of each slot of a cluster begin and end.
        Raises a typed error; then a part of them is put, and the same again changes nothing.
        """
        calls: list[Call] = []
        for begin, end in bounds or [(0, len(keys))]:
            for first, last in _spans(begin, end, columns):
                arguments: list[str | bytes | int] = [
                    version,
                    self._options.tombstones_ms,
                    deleted[first:last],
                ]
                for column in columns:
                    arguments += column.arguments(first, last)
                calls.append((keys[first:last], arguments))
        return self._first(scripts.PUT, calls)

    def examine(self, keys: Sequence[str], version: str) -> tuple[str, str] | None:
        """Return a key that is no hash, and what it is, or one that has a greater version, and that."""
        return self._first(scripts.EXAMINE, [(part, (version,)) for part in self._keys(keys)])

    def lost(self, keys: Sequence[str], version: str) -> str | None:
        """Return a key that has neither this version nor a greater one."""
        found = self._first(scripts.LOST, [(part, (version,)) for part in self._keys(keys)])
        return None if found is None else found[0].removeprefix(self._options.prefix)

    def versions(self) -> Counter[str]:
        """Count the rows by their versions, those left out that are deleted. Reads all keys, some at a time."""
        counts: Counter[str] = Counter()
        for some in self.read(()):
            counts.update(version for version, _ in some)
        return counts

    def read(self, fields: Sequence[str]) -> Iterator[list[tuple[str, list[bytes | None]]]]:
        """Yield the versions of rows that are not deleted, each with what it has in these fields, some at a time."""
        found: dict[bytes, None] = {}

        def ask(client: redis.Redis) -> None:
            # What is no hash is somebody else's. A scan may give a key twice, as may a slot that moves meanwhile.
            pattern = f"{_literally(self._options.prefix)}*"
            found.update(dict.fromkeys(client.scan_iter(match=pattern, count=KEYS_MAX, _type="HASH")))

        self._everywhere(ask)
        for keys in _parts(list(found), KEYS_MAX):
            held = self._send([("HMGET", key, scripts.VERSION, scripts.DELETED, *fields) for key in keys])
            yield [
                (version.decode(), values)
                for version, deleted, *values in held
                if version is not None and deleted is None
            ]

    def _keys(self, keys: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield keys, as many as one script looks at; on a cluster only those of one slot."""
        if not self.is_cluster:
            yield from _parts(keys, KEYS_MAX)
            return
        order, bounds = by_slot(keys)
        for first, last in bounds:
            yield from _parts([keys[at] for at in order[first:last]], KEYS_MAX)

    def _first(self, script: str, calls: Sequence[Call]) -> tuple[str, str] | None:
        """Run all calls; return the first thing that they have found."""
        first: tuple[str, str] | None = None
        for some in _parts(calls, _SCRIPTS_OF_SLOTS_MAX if self.is_cluster else _SCRIPTS_MAX):
            for found in self._run(script, some):
                if found and first is None:
                    first = (found[0].decode(), found[1].decode())
        return first

    # --- books ----------------------------------------------------------------------------------------------

    # Each query has a hash of its own: what is noted of a batch stays for good. An older version had all in that of
    # all, where what stands of a query counts as well.

    def draw(self, above: int) -> int:
        """Return a generation that nobody has, of the books of all."""
        found: int = self._run(scripts.DRAW, [([self._options.books], (above,))])[0]
        return found

    def drawn(self) -> int:
        """Return the greatest generation that was drawn."""
        [[held]] = self._send([("HMGET", self._options.books, "generation")])
        return int(held or 0)

    def book(self, query: str, script: str, *arguments: str | int) -> Any:  # noqa: ANN401  what it gives
        """Run a script on a query's books; see there."""
        return self._run(script, [([self._options.books_of(query)], arguments)])[0]

    def noted(self, query: str, names: Sequence[str]) -> list[tuple[str | None, str | None]]:
        """Return what a query's books have under these names, and what an older version has noted."""
        keys = (self._options.books_of(query), self._options.books)
        found = self._send([("HMGET", key, *names) for key in keys])
        own, older = ([None if each is None else each.decode() for each in held] for held in found)
        return list(zip(own, older, strict=True))

    # --- witnesses ------------------------------------------------------------------------------------------

    def witnessed(self, query: str, sink: str) -> tuple[str, str]:
        """Return what a query's books have of the witnesses of a sink, and what an older version has noted."""
        [(own, older)] = self.noted(query, [scripts.WITNESSED + who(query, sink)])
        return own or "", older or ""

    def seal(self, whose: str, versions: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Let the witnesses of slots have versions; return those slots where they lack one, and what they have.

        ``versions`` are the one that each shall have, and the one that it must have before, each 0 for none.
        """
        names = names_of(self._options.witnesses)
        slots = {names[slot]: slot for slot in versions}
        calls = [
            ((names[slot],), (whose, *(digits(each) if each else "" for each in both)))
            for slot, both in versions.items()
        ]
        found = [
            each for some in _parts(calls, _SCRIPTS_OF_SLOTS_MAX) for each in self._run(scripts.SEAL, some)
        ]
        return {slots[each[0].decode()]: int(each[1] or 0) for each in found if each}

    # --- the server -----------------------------------------------------------------------------------------

    def life(self) -> str:
        """Return a text that is another one when the server may lack what it had; see the script."""
        lives: list[bytes] = self._everywhere(lambda client: client.eval(scripts.LIFE, 0))
        return ",".join(sorted(life.decode() for life in lives))

    def look(self) -> int:
        """See that the server can be written to, and tell what it may lose; return how long a value may be.

        Raises a typed error.
        """
        self._require_one_or_cluster()
        told = self._everywhere(self._told)
        for info in told:
            if _numbers(info["redis_version"]) < VERSION_MIN:
                raise ConfigurationError(
                    f"{self._where} is Redis {info['redis_version']}, and the sink redis needs {_dotted(VERSION_MIN)}.",
                    next_step="update the server",
                )
            if info.get("role") == "slave" and not self.is_cluster:
                raise ConfigurationError(
                    f"{self._where} is a replica, which takes no writes.",
                    next_step="name its primary in the option url",
                )
        self._warn(told)
        beginning = f"{self._options.tried}{uuid.uuid4().hex}"
        names = self._nodes().names_in_each(beginning) if self.is_cluster else [beginning]
        self._run(scripts.TRY, [([name], ()) for name in names])
        value_max: int = min(info["value_max"] for info in told)
        return value_max

    def look_again(self) -> None:
        """Tell what the server may lose by now, if that is new; not at each epoch. Raises a typed error."""
        if time.monotonic() - self._looked_s > LOOK_AGAIN_S:
            self._warn(self._everywhere(self._told))

    def _warn(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Tell what servers may lose, each thing once."""
        lacking = {what for info in told for what in _lacking(info)}
        for what in sorted(lacking - self._warned):
            log.warning("%s %s", self._where, what)
        self._warned, self._looked_s = frozenset(lacking), time.monotonic()

    def require_rights(self) -> None:
        """See that this user may do what scripts do, without doing it. Raises a typed error."""
        beginning = f"{self._options.tried}{uuid.uuid4().hex}"
        names = self._nodes().names_in_each(beginning) if self.is_cluster else [beginning]
        self._run(scripts.ALLOWED, [([name], ()) for name in names])
        self.life()

    def _require_one_or_cluster(self) -> None:
        """See that the options fit: of one server, or of a cluster. Raises a typed error."""
        given = self._options
        if given.database and self.is_cluster:
            raise ConfigurationError(
                f"{self._where} is a node of a cluster, which has the database 0 alone.",
                next_step=f"leave out /{given.database} in the option url; the option prefix keeps rows apart",
            )
        if given.others and not self.is_cluster:
            raise ConfigurationError(
                f"{self._where} is no node of a cluster, and the option url names several.",
                next_step="name one server",
            )

    @property
    def _where(self) -> str:
        return f"The server {self._options.where}"

    def _told(self, client: redis.Redis) -> Mapping[str, Any]:
        """Return what a server tells of itself, as far as it tells.

        And whether it ``saves`` itself now and then, when it ``syncs`` its log, and ``value_max``, the bytes of its
        longest value.
        """
        from redis.exceptions import ResponseError

        try:
            saves = bool(client.config_get("save").get("save"))
            syncs = str(client.config_get("appendfsync").get("appendfsync", _ALWAYS))
            longest = client.config_get("proto-max-bulk-len").get("proto-max-bulk-len")
        except ResponseError:  # many that are rented tell nobody
            saves, syncs, longest = True, _ALWAYS, None
        value_max = min(int(longest or VALUE_BYTES_MAX), VALUE_BYTES_MAX)
        return {**client.info("everything"), "saves": saves, "syncs": syncs, "value_max": value_max}


def _lacking(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a server may lose of what it said it had, by what it tells of itself. Pure."""
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and info.get("maxmemory"):
        yield (
            f"throws keys away when its memory is full (maxmemory-policy {policy}): rows, versions of deleted keys and "
            "the books of what was committed may go. Set it to noeviction."
        )
    stops = "the query would stop then and say which epochs are missing"
    if not info.get("aof_enabled") and info["saves"]:
        yield (
            "keeps what was written since it last saved itself in memory alone (appendonly is not set): a crash takes "
            f"that; {stops}. Set appendonly to yes."
        )
    elif not info.get("aof_enabled"):
        yield f"keeps nothing through a restart (neither appendonly nor save is set): {stops}. Set appendonly to yes."
    elif info["syncs"] != _ALWAYS:
        yield (
            f"says that it has what is not on its disk yet (appendfsync {info['syncs']}): a power cut takes the last "
            f"second or more; {stops}. Set appendfsync to always where that is too much."
        )


def digits(version: int) -> str:
    """Return a version as scripts compare it: as text. Pure."""
    return str(version).zfill(_VERSION_DIGITS)


def _literally(text: str) -> str:
    """Write a text so that a pattern of the server's means it alone."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)


def _spans(first: int, last: int, columns: Sequence[Column]) -> Iterator[tuple[int, int]]:
    """Yield where the rows of each script begin, and before which they end."""
    rows = last - first
    if rows <= 1 or (rows <= ROWS_MAX and sum(column.size(first, last) for column in columns) <= BYTES_MAX):
        if rows:
            yield first, last
        return
    middle = (first + last) // 2
    yield from _spans(first, middle, columns)
    yield from _spans(middle, last, columns)


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".")[:2] if part.isdecimal())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
