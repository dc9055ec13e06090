"""Reading a table of Cassandra as any program would, by its own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly_proof.auditor.world import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.auditor.world import Orphan

_TIMEOUT_S = 10.0


class CassandraReader:
    """Reads the rows of a table on this machine, page by page; fulfils ``Reader``.

    ``query`` gives the columns ``key`` and ``value``. Where its session fails, as the server has died, it makes one
    anew, once; what the client raises then is not changed.
    """

    def __init__(self, sink: str, port: int, query: str) -> None:
        self._sink = sink
        self._port = port
        self._query = query
        self._session: Any = None

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of the table, as a quorum of its replicas has them."""
        try:
            found = self._fetch()
        except Exception:  # noqa: BLE001  the client's errors have no root of their own
            self.close()
            found = self._fetch()
        for row in found:
            yield Seen(self._sink, _bytes(row.key), _bytes(row.value), "", -1, "")

    def orphans(self) -> list[Orphan]:
        """Return nothing: what waits for a decision waits in the checkpoint."""
        return []

    def close(self) -> None:
        """Give back the connections."""
        session, self._session = self._session, None
        if session is not None:
            session.cluster.shutdown()

    def _fetch(self) -> list[Any]:
        return list(self._connected().execute(self._query, timeout=_TIMEOUT_S))

    def _connected(self) -> Any:  # noqa: ANN401  the client's own
        if self._session is None:
            from cassandra import ConsistencyLevel
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
            from cassandra.policies import RoundRobinPolicy

            profile = ExecutionProfile(RoundRobinPolicy(), consistency_level=ConsistencyLevel.LOCAL_QUORUM)
            cluster = Cluster(
                [("127.0.0.1", self._port)],
                port=self._port,
                protocol_version=4,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            )
            try:
                self._session = cluster.connect()
            except BaseException:
                cluster.shutdown()
                raise
        return self._session


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
