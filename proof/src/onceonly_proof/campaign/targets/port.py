"""What a campaign asks of a system that its sinks write to, and what those with a server have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from onceonly_proof.auditor import Orphan
from onceonly_proof.campaign.cutting import CuttingProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.auditor import Reader, Seen

S = TypeVar("S", bound="Server")
STAGED: Final = "onceonly/staged"
"""Where rows wait in a checkpoint, below it a folder for each query and one for each of its sinks."""


class Server(Protocol):
    """A server of ``onceonly_proof.embedded``, on this machine."""

    @property
    def port(self) -> int: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Target(Protocol):
    """A system that sinks write to. Campaign's process."""

    @property
    def has_server(self) -> bool:
        """Whether there is a server that can be killed, and a connection to it that can be cut."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether a row replaces what its key had."""
        ...

    @property
    def shows_whole_epochs(self) -> bool:
        """Whether a reader sees all rows of an epoch from the same moment on."""
        ...

    @property
    def shuts_out(self) -> bool:
        """Whether nobody can look while a job writes."""
        ...

    def options(self, name: str) -> dict[str, str]:
        """Make an empty place of this name for two columns of text, key and value; return a sink's options for it."""
        ...

    def reader(self, sink: str, name: str) -> Reader:
        """Return a reader of such a place, by the system's own client."""
        ...

    def waiting(self, name: str) -> list[Path]:
        """Return the files of rows that wait for their commit in such a place, beside those in a checkpoint."""
        ...

    def kill(self) -> None:
        """End its server with SIGKILL. Idempotent."""
        ...

    def start(self) -> None:
        """Start what was killed, and wait until it answers. Raises ``SetupError``."""
        ...

    def cut_next(self) -> None:
        """Cut the connection of a sink as soon as the server has answered the next commit, and keep the answer back."""
        ...

    def spare(self) -> None:
        """Cut nothing after all."""
        ...

    def cut_at(self) -> float | None:
        """Say when the connection was cut, in seconds since 1970; None while it was not."""
        ...

    def close(self) -> None:
        """End it. Idempotent."""
        ...


class Unserved:
    """A target without a server of its own. It shows whole epochs, as those do that we have."""

    has_server = False
    replaces = False
    shows_whole_epochs = True
    shuts_out = False

    def waiting(self, name: str) -> list[Path]:  # noqa: ARG002  rows wait in the checkpoint
        return []

    def kill(self) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def cut_next(self) -> None:
        """There is no connection."""

    def spare(self) -> None:
        """There is no connection."""

    def cut_at(self) -> float | None:
        return None

    def close(self) -> None:
        """There is no server."""


class Served(Generic[S]):
    """A target on a server of its own, to which sinks come through a proxy. Made by starting it.

    ``commit`` is what a client says when it commits, byte for byte.
    """

    has_server = True
    replaces = False
    shows_whole_epochs = True
    shuts_out = False

    def __init__(self, server: S, *, commit: bytes) -> None:
        self._server = server
        server.start()
        self._proxy = CuttingProxy(server.port, commit)

    def waiting(self, name: str) -> list[Path]:  # noqa: ARG002  rows wait in the checkpoint
        return []

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def cut_next(self) -> None:
        self._proxy.cut_next()

    def spare(self) -> None:
        self._proxy.spare()

    def cut_at(self) -> float | None:
        return self._proxy.cut_at

    def close(self) -> None:
        self._proxy.close()
        self._server.close()

    def through_the_proxy(self, url: str) -> str:
        """Return an address of the server as sinks are given it."""
        return url.replace(f":{self._server.port}", f":{self._proxy.port}")


class WithStaged:
    """A reader that also looks at what its sink has staged in a checkpoint; fulfils ``Reader``."""

    def __init__(self, reader: Reader, sink: str, staged: Path) -> None:
        self._reader = reader
        self._sink = sink
        self._staged = staged

    def rows(self) -> Iterator[Seen]:
        return self._reader.rows()

    def orphans(self) -> list[Orphan]:
        left = [path for path in sorted(self._staged.rglob("*")) if path.is_file()]
        return [*self._reader.orphans(), *(Orphan(self._sink, f"staged rows {path.name}") for path in left)]

    def close(self) -> None:
        self._reader.close()
