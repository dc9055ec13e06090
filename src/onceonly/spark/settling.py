"""Sparing the garbage collector what stays for the life of one of Spark's Python processes.

Spark collects after every task, every plan and every commit; with all that PySpark, Arrow and the sinks import, a
collection takes 20 to 50 ms of a processor.
"""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Leave what lives now out of all later collections. Any process of Spark's; once, idempotent."""
    global _settled  # noqa: PLW0603  once a process
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled = True
