"""An HTTP server on loopback for the doubles of stores."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # many come at the same time


def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve until the generator is closed; give the address, ``host:port``, once."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
