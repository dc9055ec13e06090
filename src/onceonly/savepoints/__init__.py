"""Savepoints: a copy of what a query needs to start again after a decided epoch, and a manifest that is put last.

``resolve`` says, purely, which of Spark's files a start after an epoch needs; ``manifest`` what a savepoint says of
itself; ``making`` makes one, beside a running job or with it down; ``place`` lists, verifies and drops; without its
manifest a savepoint is not there. It holds paths relative to itself alone, so that it may be copied and moved.
"""

from onceonly.savepoints.making import address_in, create
from onceonly.savepoints.manifest import Savepoint

__all__ = ["Savepoint", "address_in", "create"]
