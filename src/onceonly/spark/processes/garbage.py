"""Sparing the garbage collector what stays for the life of one of Spark's Python processes.

Spark collects after every task, every plan and every commit; with all that PySpark, Arrow and the sinks import, a
collection takes 20 to 50 ms of a processor. Not all of it is there at once: what hands a task's result back is imported
after the first one.
"""

from __future__ import annotations

import gc

_TIMES_MAX = 8
_STAYS = 500
_OLDEST = 2
_calls = _times = 0


def freeze() -> None:
    """Leave what lives now out of all later collections. Any process of Spark's; at every task, plan or commit.

    Looks at the 1st, 2nd, 4th, 8th call and so on, as to look takes as long as to collect. Does so where much has come
    since the last time, and a few times at most: a user's data may come and go.
    """
    global _calls, _times  # noqa: PLW0603  one for the process
    _calls += 1
    if _calls & (_calls - 1) or _times == _TIMES_MAX:
        return
    if not _times or len(gc.get_objects(_OLDEST)) > _STAYS:
        gc.collect()
        gc.freeze()
        _times += 1
