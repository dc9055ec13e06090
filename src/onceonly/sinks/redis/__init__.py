"""The Redis sink: rows as hashes by key, in Redis or Valkey."""

from onceonly.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
