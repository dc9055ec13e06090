"""A job that does not outlive who started it, even one that is killed without a chance to clean up."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT = "ONCEONLY_JOB_PARENT"
"""The environment's name for the pid of who starts a job."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Die when the parent does. The job's main thread, as early as it can; Linux only, elsewhere a no-op."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    started_by = os.environ.get(PARENT)
    if started_by and os.getppid() != int(started_by):
        # It died while this process was importing: no signal will come any more.
        os._exit(1)
