"""Tools for the tests of onceonly and of everybody who builds on it."""

from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.stores.memory import MemoryStore

__all__ = ["MemoryDisk", "MemoryLog", "MemoryStore"]
