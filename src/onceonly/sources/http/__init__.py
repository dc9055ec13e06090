"""Rows from one long HTTP response: lines of JSON, or server-sent events."""

from onceonly.sources.http.feed import HttpFeed

__all__ = ["HttpFeed"]
