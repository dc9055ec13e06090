"""The decision log: what was decided, durable, in the folder ``onceonly`` of the query's checkpoint.

::

    onceonly/identity.json                    whose log this is, and where it was made
    onceonly/links/{epoch:020d}.{index}.json  the chains of the newest epochs
    onceonly/receipts/{epoch:020d}.json       "every handle is committed"
    onceonly/history/{first}-{last}.json      one line for each earlier epoch

Each file is written once, whole, and never changed; put-if-absent is all the coordination there is between
planner, commit process and a second driver. docs/reference/log-format.md gives the format.
"""

from onceonly.log.decision_log import FileDecisionLog
from onceonly.log.history import Summary
from onceonly.log.identity import identity_token
from onceonly.log.opening import look, open_log, owners
from onceonly.stores.folder import LocalStore
from onceonly.stores.port import PutUnknownError, Store

__all__ = [
    "FileDecisionLog",
    "LocalStore",
    "PutUnknownError",
    "Store",
    "Summary",
    "identity_token",
    "look",
    "open_log",
    "owners",
]
