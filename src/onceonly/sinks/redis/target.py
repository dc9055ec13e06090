"""One server: what it is asked, and what each of its answers means. Threads may share it."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from onceonly.errors import ConfigurationError, SetupError, UnavailableError
from onceonly.sinks.redis import scripts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import redis

    from onceonly.errors import OnceonlyError
    from onceonly.sinks.redis.columns import Column
    from onceonly.sinks.redis.options import RedisOptions

    _Call: TypeAlias = tuple[Sequence[str], Sequence[str | bytes | int]]

log = logging.getLogger("onceonly")

KEYS_MAX = 500
"""Keys that a script looks at: the server does nothing else while it runs (less than 1 ms)."""
ROWS_MAX, BYTES_MAX = 50, 1 << 20
"""Rows that a script puts, and bytes of them, if it is not one row. What it writes stays in memory until it ends: ten
times as many rows would cost the server twice as much each, as they do not fit its processor's cache."""
VERSION_MIN = (6, 2)
# What Redis 6.2 writes before whatever a script was refused; later ones leave the refusal as it is.
_IN_SCRIPT = re.compile(r"^Error running script \(.*?\): (?:@user_script: ?\d+: )*-?")
# How many of one batch are on their way at a time; the client holds their bytes.
_SCRIPTS_MAX = 100


class Target:
    """A connection pool to one server; connects when it is first asked."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._client: redis.Redis | None = None
        self._shas: dict[str, str] = {}

    def close(self) -> None:
        """Give back the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- rows -----------------------------------------------------------------------------------------------

    def put(
        self, keys: Sequence[str], deleted: bytes, columns: Sequence[Column], version: str
    ) -> tuple[str, str] | None:
        """Put rows, or delete those that have a 1 in ``deleted``; return a key that has a greater version, and that.

        Raises a typed error; then a part of them is put, and the same again changes nothing.
        """
        calls: list[_Call] = []
        for first, last in _spans(0, len(keys), columns):
            arguments: list[str | bytes | int] = [version, self._options.tombstones_ms, deleted[first:last]]
            for column in columns:
                arguments += column.arguments(first, last)
            calls.append((keys[first:last], arguments))
        return self._first(scripts.PUT, calls)

    def examine(self, keys: Sequence[str], version: str) -> tuple[str, str] | None:
        """Return a key that is no hash, and what it is, or one that has a greater version, and that."""
        return self._first(scripts.EXAMINE, [(part, (version,)) for part in _parts(keys, KEYS_MAX)])

    def lost(self, keys: Sequence[str], version: str) -> str | None:
        """Return a key that has neither this version nor a greater one."""
        found = self._first(scripts.LOST, [(part, (version,)) for part in _parts(keys, KEYS_MAX)])
        return None if found is None else found[0].removeprefix(self._options.prefix)

    def versions(self) -> Counter[str]:
        """Count the rows by their versions, those left out that are deleted. Reads all keys, some at a time."""

        def ask(client: redis.Redis) -> Counter[str]:
            counts: Counter[str] = Counter()
            found = client.scan_iter(match=f"{_literally(self._options.prefix)}*", count=KEYS_MAX)
            for keys in _parts(list(dict.fromkeys(found)), KEYS_MAX):
                pipeline = client.pipeline(transaction=False)
                for key in keys:
                    pipeline.hmget(key, scripts.VERSION, scripts.DELETED)
                # What is no hash is somebody else's.
                for answer in pipeline.execute(raise_on_error=False):
                    if not isinstance(answer, Exception) and answer[0] is not None and answer[1] is None:
                        counts[answer[0].decode()] += 1
            return counts

        found: Counter[str] = self._asked(ask)
        return found

    def _first(self, script: str, calls: Sequence[_Call]) -> tuple[str, str] | None:
        """Run all calls; return the first thing that they have found."""
        first: tuple[str, str] | None = None
        for some in _parts(calls, _SCRIPTS_MAX):
            for found in self._run(script, some):
                if found and first is None:
                    first = (found[0].decode(), found[1].decode())
        return first

    # --- books ----------------------------------------------------------------------------------------------

    def note(
        self, who: str, epoch: int, names: Sequence[str], *, since: int, keep: int, life: str
    ) -> Sequence[Any]:
        """Run the script that notes names; see there."""
        found: Sequence[Any] = self._book(scripts.NOTE, who, epoch, since, keep, life, *names)
        return found

    def void(self, names: Sequence[str]) -> set[str]:
        """Note as void those of the names that the books do not have; return all that are void."""
        return {name.decode() for name in self._book(scripts.VOIDED, *names)}

    def generation(self, who: str, above: int) -> int:
        """Return the generation of a query's sink; drawn at the first call, and where it is not ``above`` a number."""
        found: int = self._book(scripts.GENERATION, who, above)
        return found

    def noted(self, names: Sequence[str]) -> list[str | None]:
        """Return what the books have under these names."""
        found: list[bytes | None] = self._asked(lambda client: client.hmget(self._options.books, list(names)))
        return [None if each is None else each.decode() for each in found]

    # --- the server -----------------------------------------------------------------------------------------

    def life(self) -> str:
        """Return a text that is another one when the server may lack what it had; see the script."""
        found: bytes = self._asked(lambda client: client.eval(scripts.LIFE, 0))
        return found.decode()

    def look(self) -> None:
        """See that the server can be written to, and tell what it may lose. Raises a typed error."""
        where = f"The server {self._options.where}"
        info: Mapping[str, Any] = self._asked(lambda client: client.info("everything"))
        if _numbers(info["redis_version"]) < VERSION_MIN:
            raise ConfigurationError(
                f"{where} is Redis {info['redis_version']}, and the sink redis needs {_dotted(VERSION_MIN)}.",
                next_step="update the server",
            )
        if info.get("cluster_enabled"):
            raise ConfigurationError(
                f"{where} is a node of a cluster, and the sink redis writes to one server: keys of a cluster lie on "
                "several, and what one script writes must lie on one.",
                next_step="name a server, or a replicated pair behind one address",
            )
        if info.get("role") == "slave":
            raise ConfigurationError(
                f"{where} is a replica, which takes no writes.",
                next_step="name its primary in the option url",
            )
        policy = str(info.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction" and info.get("maxmemory"):
            log.warning(
                "%s throws keys away when its memory is full (maxmemory-policy %s): rows, versions of deleted keys and "
                "the books of what was committed may go. Set it to noeviction.", where, policy,
            )  # fmt: skip
        if not info.get("aof_enabled") and not self._saves():
            log.warning(
                "%s keeps nothing through a restart (neither appendonly nor save is set): the query would stop then "
                "and say which epochs are missing. Set appendonly to yes.", where,
            )  # fmt: skip

    def _saves(self) -> bool:
        """Say whether the server saves itself now and then, as far as it tells."""
        from redis.exceptions import ResponseError

        try:
            return bool(self._connected().config_get("save").get("save"))
        except ResponseError:  # many that are rented tell nobody
            return True

    # --- calls ----------------------------------------------------------------------------------------------

    def _book(self, script: str, *arguments: str | int) -> Any:  # noqa: ANN401  what the script gives
        return self._run(script, [([self._options.books], arguments)])[0]

    def _run(self, script: str, calls: Sequence[_Call]) -> list[Any]:
        """Run a script some times in one round trip; what it gives, in order."""
        from redis.exceptions import NoScriptError

        def ask(client: redis.Redis) -> list[Any]:
            sha = self._shas.get(script)
            if sha is None:
                sha = self._shas[script] = client.script_load(script)
            pipeline = client.pipeline(transaction=False)
            for keys, arguments in calls:
                pipeline.evalsha(sha, len(keys), *keys, *arguments)
            answers = pipeline.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return answers

        def patiently(client: redis.Redis) -> list[Any]:
            try:
                return ask(client)
            except NoScriptError:  # it was started anew
                self._shas.pop(script, None)
                return ask(client)

        found: list[Any] = self._asked(patiently)
        return found

    def _asked(self, ask: Callable[[redis.Redis], Any]) -> Any:  # noqa: ANN401  whatever ``ask`` gives
        """Ask the server. Raises a typed error for whatever it or the network answers."""
        client = self._connected()
        from redis.exceptions import RedisError

        try:
            return ask(client)
        except (RedisError, OSError) as error:
            raise meaning(error, self._options) from error

    def _connected(self) -> redis.Redis:
        if self._client is None:
            try:
                import redis
                from redis.backoff import ExponentialBackoff
                from redis.retry import Retry
            except ImportError as error:
                raise SetupError(
                    f"the sink redis needs a package that is missing here: {error}",
                    next_step="pip install 'onceonly[redis]' on driver and executors",
                ) from error
            given = self._options
            tls: dict[str, Any] = {}
            if given.tls:
                tls = {
                    "ssl": True,
                    "ssl_cert_reqs": "required",
                    "ssl_check_hostname": True,
                    "ssl_ca_certs": given.ca,
                }
            self._client = redis.Redis(
                host=given.host,
                port=given.port,
                db=given.database,
                username=given.user,
                password=given.password.read(),
                socket_timeout=given.timeout_s,
                socket_connect_timeout=min(given.timeout_s, 10),
                # Whoever calls us tries again; a connection that was closed while it was idle needs no more than this.
                retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=2),
                protocol=2,
                **tls,
            )
        return self._client


def meaning(error: Exception, options: RedisOptions) -> OnceonlyError:
    """Return what an answer of the server, or of the network, means for the query. Pure."""
    from redis import exceptions as e

    where, said = f"the server {options.where}", _IN_SCRIPT.sub("", str(error))
    if isinstance(error, e.AuthenticationError | e.AuthenticationWrongNumberOfArgsError):
        found: OnceonlyError = ConfigurationError(
            f"{where} does not let the user {options.user or 'default'} in: {said}",
            next_step="see to the options user and password",
        )
    elif isinstance(error, e.NoPermissionError) or "ACL failure" in said or "can't run this" in said:
        found = ConfigurationError(
            f"{where} does not permit the user {options.user or 'default'} what the sink does: {said}",
            next_step=f"grant it: ACL SETUSER {options.user or 'default'} ~{options.prefix}* +@read +@write "
            "+@scripting +info +ping",
        )
    elif isinstance(error, e.MovedError | e.AskError | e.ClusterCrossSlotError):
        found = ConfigurationError(
            f"{where} is a node of a cluster, and the sink redis writes to one server",
            next_step="name a server, or a replicated pair behind one address",
        )
    elif isinstance(error, e.OutOfMemoryError) or said.startswith("OOM"):
        found = UnavailableError(
            f"{where} has used up its maxmemory and throws nothing away, so that it takes no rows",
            next_step="give it more memory, or remove what nobody needs; the query goes on by itself then",
        )
    elif isinstance(error, e.ReadOnlyError) or said.startswith("READONLY"):
        found = UnavailableError(
            f"{where} has become a replica, which takes no writes",
            next_step="name its primary in the option url, if it stays one",
        )
    elif "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        found = ConfigurationError(
            f"the certificate of {where} is not trusted: {said}",
            next_step="name the file of its authority in the option tls.ca",
        )
    elif said.startswith("WRONGTYPE"):
        found = ConfigurationError(
            f"{where} has something else under the key of a row than a hash, which is somebody else's",
            next_step="remove or rename it, or set the option prefix",
        )
    elif isinstance(error, e.ResponseError) and not _passes(error, said):
        found = ConfigurationError(f"{where} refuses: {said}", next_step="see what it says, and its log")
    else:
        found = UnavailableError(
            f"{where} does not answer: {type(error).__name__}: {said}",
            next_step="see whether it runs and can be reached; rows that it has are not written twice",
        )
    return found


def _literally(text: str) -> str:
    """Write a text so that a pattern of the server's means it alone."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)


def _passes(error: Exception, said: str) -> bool:
    """Say whether a refusal may pass by itself. The client takes its word away where it has a class for it."""
    from redis import exceptions as e

    return isinstance(
        error, e.ClusterDownError | e.MasterDownError | e.TryAgainError | e.NoScriptError
    ) or said.startswith(("BUSY", "LOADING", "MASTERDOWN", "NOREPLICAS", "MISCONF"))


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
