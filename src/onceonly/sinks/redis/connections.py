"""Connections to one server, or to the nodes of a cluster, and whatever is sent by them. Threads may share them."""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onceonly.errors import OnceonlyError, required
from onceonly.sinks.redis.answers import meaning
from onceonly.sinks.redis.cluster import Cluster
from onceonly.sinks.redis.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import redis

    from onceonly.sinks.redis.options import RedisOptions

    Call: TypeAlias = tuple[Sequence[str], Sequence[str | bytes | int]]

T = TypeVar("T")


class Connections:
    """A connection pool to one server, or to each node of a cluster; connects when it is first asked."""

    def __init__(self, options: RedisOptions) -> None:
        self._options = options
        self._client: redis.Redis | None = None
        self._shas: dict[str, str] = {}
        self._cluster: Cluster | None = None
        self._is_cluster: bool | None = None

    def close(self) -> None:
        """Give back the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    @property
    def is_cluster(self) -> bool:
        """Whether it is a cluster; asked once, if nobody has told it. Raises a typed error."""
        if self._is_cluster is None:
            self._is_cluster = self._understood(self._tell_cluster)
        return self._is_cluster

    @is_cluster.setter
    def is_cluster(self, told: bool) -> None:
        self._is_cluster = told

    def _tell_cluster(self) -> bool:
        """Ask the first that answers of those that the address names; in database 0, as a cluster has no other one."""
        from redis.exceptions import ConnectionError as Gone
        from redis.exceptions import TimeoutError as Silent

        why: Exception | None = None
        for address in self._options.nodes:
            try:
                with closing(self._connection(*address, database=0)) as client:
                    return bool(client.info("cluster").get("cluster_enabled"))
            except (Gone, Silent) as error:
                why = error
        assert why is not None  # noqa: S101  there is a first address
        raise why

    def _run(self, script: str, calls: Sequence[Call]) -> list[Any]:
        """Run a script for each call, in one round trip; return what it gives, in order."""
        if self.is_cluster:
            sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
            commands = [("EVALSHA", sha, len(keys), *keys, *arguments) for keys, arguments in calls]
            return self._send_to_slots([keys[0] for keys, _ in calls], commands, {sha: script})

        def ask(client: redis.Redis) -> list[Any]:
            sha = self._shas.get(script)
            if sha is None:
                sha = self._shas[script] = client.script_load(script)
            return _sent(
                client, [("EVALSHA", sha, len(keys), *keys, *arguments) for keys, arguments in calls]
            )

        def patiently(client: redis.Redis) -> list[Any]:
            from redis.exceptions import NoScriptError

            try:
                return ask(client)
            except NoScriptError:  # it was started anew
                self._shas.pop(script, None)
                return ask(client)

        found: list[Any] = self._asked(patiently)
        return found

    def _send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send commands of one key each, which comes first, in one round trip; return what they give, in order."""
        if self.is_cluster:
            return self._send_to_slots([command[1] for command in commands], commands, {})
        found: list[Any] = self._asked(lambda client: _sent(client, commands))
        return found

    def _send_to_slots(
        self, keys: Sequence[str | bytes], commands: Sequence[tuple[Any, ...]], texts: Mapping[str, str]
    ) -> list[Any]:
        slotted = [(slot_of(key), command) for key, command in zip(keys, commands, strict=True)]
        found: list[Any] = self._understood(lambda: self._nodes().run(slotted, texts))
        return found

    def _everywhere(self, ask: Callable[[redis.Redis], T]) -> list[T]:
        """Ask the server, or each primary of a cluster; return the answers."""
        if not self.is_cluster:
            return [self._asked(ask)]
        found: list[T] = self._understood(lambda: [ask(client) for client in self._nodes().primaries()])
        return found

    def _asked(self, ask: Callable[[redis.Redis], Any]) -> Any:  # noqa: ANN401  whatever ``ask`` gives
        """Ask the server. Raises a typed error for whatever it or the network answers."""
        client = self._connected()
        return self._understood(lambda: ask(client))

    def _understood(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  as above
        _require_package()
        from redis.exceptions import RedisError

        try:
            return ask()
        except (RedisError, OSError) as error:
            if self._cluster is not None:
                self._cluster.forget()
            if isinstance(error.__cause__, OnceonlyError):  # of the password
                raise error.__cause__ from error
            raise meaning(error, self._options) from error

    def _nodes(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._connection, self._options.nodes)
        return self._cluster

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = self._connection(self._options.host, self._options.port)
        return self._client

    def _connection(self, host: str, port: int, *, database: int | None = None) -> redis.Redis:
        _require_package()
        import redis
        from redis.backoff import ExponentialBackoff
        from redis.retry import Retry

        given = self._options
        tls: dict[str, Any] = {}
        if given.tls:
            tls = {
                "ssl": True,
                "ssl_cert_reqs": "required",
                "ssl_check_hostname": True,
                "ssl_ca_certs": given.ca,
            }
        return redis.Redis(
            host=host,
            port=port,
            db=given.database if database is None else database,
            socket_timeout=given.timeout_s,
            socket_connect_timeout=min(given.timeout_s, 10),
            # Whoever calls us tries again; a connection that was closed while it was idle needs no more than this.
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=2),
            protocol=2,
            **_login(given),
            **tls,
        )


def _require_package() -> None:
    """See that the client can be imported. Raises ``SetupError``."""
    with required("the sink redis needs the package redis", extra="redis"):
        import redis  # noqa: F401


def _login(options: RedisOptions) -> dict[str, Any]:
    """Return who comes. A file is read at each connect, as it may have another password by then."""
    if options.password.file is None:
        return {"username": options.user, "password": options.password.read()}
    from redis.credentials import CredentialProvider
    from redis.exceptions import RedisError

    class Login(CredentialProvider):
        def get_credentials(self) -> tuple[str] | tuple[str, str]:
            try:
                password = options.password.read() or ""
            except OnceonlyError as error:
                # For another error, the client would keep the connection, on which nobody is logged in.
                raise RedisError(error.what) from error
            return (options.user, password) if options.user else (password,)

    return {"credential_provider": Login()}


def _sent(client: redis.Redis, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands in one round trip; return the answers, or raise the first that is an error."""
    pipeline: Any = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    answers: list[Any] = pipeline.execute(raise_on_error=False)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers
