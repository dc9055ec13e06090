"""The socket sink: rows as lines to whoever listens on a port, at least once."""

from onceonly.sinks.socket.sink import SocketSink

__all__ = ["SocketSink"]
