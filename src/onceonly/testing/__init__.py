"""Tools for the tests of onceonly and of everybody who builds on it."""

from onceonly.testing.memory_log import MemoryDisk, MemoryLog
from onceonly.testing.memory_store import MemoryStore

__all__ = ["MemoryDisk", "MemoryLog", "MemoryStore"]
