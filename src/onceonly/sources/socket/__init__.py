"""Lines from a TCP server: at most once up to the journal, exactly once from there."""

from onceonly.sources.socket.feed import SocketFeed

__all__ = ["SocketFeed"]
