"""Starting the page server and ending it: on 127.0.0.1 alone, and never for longer than its terminal."""

from __future__ import annotations

import re
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import uvicorn

from onceonly.errors import ConfigurationError
from onceonly.ui.application import application
from onceonly.ui.gate import TOKEN, Door, Gate
from onceonly.ui.stream import Streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import FrameType

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.search import Problem

HOST: Final = "127.0.0.1"
_GRACE_S: Final = 2
"""How long open requests may take when the server ends; streams end at once."""
_BACKLOG: Final = 64
_PORTS: Final = {"http": 80, "https": 443}
# As a browser has it in its address: with percent signs for all else, and without what would end a cookie's path.
_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~!$&'()*+,=:@%-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that is about to run: its socket, what lets in, and the address for a browser, token included."""

    listener: socket.socket
    door: Door
    address: str


def listen(*, port: int, prefix: str) -> Served:
    """Take a port of this machine, 0 for a free one. ``prefix`` is the path of a proxy, or its whole address.

    Raises ``ConfigurationError`` for a port that is taken, or a prefix that is none.
    """
    scheme, host, path = _proxy(prefix)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"port {port} of {HOST} cannot be taken: {error.strerror}",
            next_step="give another one with --port, or none: a free one is found",
        ) from error
    listener.listen(_BACKLOG)
    found = listener.getsockname()[1]
    # A browser does not name the port that everybody knows, and some proxies do.
    proxied = {host, f"{host}:{_PORTS[scheme]}"} if host else set()
    door = Door(
        hosts=frozenset({f"{HOST}:{found}", f"localhost:{found}", *proxied}),
        token=secrets.token_urlsafe(32),
        port=found,
        prefix=path,
        secure=scheme == "https",
    )
    base = f"{scheme}://{host}" if host else f"http://{HOST}:{found}"
    return Served(listener=listener, door=door, address=f"{base}{path}/?{TOKEN}={door.token}")


def _proxy(prefix: str) -> tuple[str, str, str]:
    """Return scheme and host of a proxy, empty where only its path is given, and the path, with no slash at its end."""
    refused = ConfigurationError(
        f"{prefix!r} is neither a path nor an address",
        next_step="write it as /proxy/8080, or as https://host/proxy/8080, with %20 for a blank",
    )
    try:
        parts = urlsplit(prefix)
        port = parts.port
    except ValueError:
        raise refused from None
    path = parts.path.rstrip("/")
    is_path = not (parts.scheme or parts.netloc)
    is_address = parts.scheme in _PORTS and bool(parts.hostname) and "@" not in parts.netloc
    is_clean = not (parts.query or parts.fragment) and _PATH.fullmatch(path) is not None
    if not is_clean or not (is_path or is_address):
        raise refused
    host = parts.netloc.lower()
    return parts.scheme, host.rpartition(":")[0] if port == _PORTS.get(parts.scheme, 0) else host, path


class _Server(uvicorn.Server):
    """Tells the streams that it ends, which would else keep it for as long as a tab is open."""

    def __init__(self, config: uvicorn.Config, *, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)


def serve(
    served: Served,
    checkpoints: Sequence[Checkpoint],
    places: Sequence[str] = (),
    *,
    events: Path | None = None,
    problems: Sequence[Problem] = (),
) -> None:
    """Serve these, and what comes below ``places``, until a signal; returns within three seconds of it.

    ``events`` is the folder of their event log, where there is one, ``problems`` are of those that could not be opened.
    In this process and thread.
    """
    streams = Streams()
    inner = application(
        checkpoints, streams, prefix=served.door.prefix, places=places, events=events, problems=problems
    )
    app = Gate(inner, served.door)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        # An access log would hold the token.
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config, ending=streams.close)
    try:
        server.run(sockets=[served.listener])
    except KeyboardInterrupt:
        return
    finally:
        served.listener.close()
