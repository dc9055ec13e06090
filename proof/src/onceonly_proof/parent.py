"""A job that does not outlive who started it, even one that is killed without a chance to clean up."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.errors import OnceonlyError

PARENT = "ONCEONLY_JOB_PARENT"
"""The environment's name for the pid of who starts a job."""
_EXIT_TYPED_ERROR = 3
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


def end_with(error: OnceonlyError, path: Path) -> NoReturn:
    """Leave a typed error as a JSON file, and end: Spark's threads would keep the process alive."""
    logging.getLogger("onceonly").error("%s", error)
    failure = {"code": error.code, "what": error.what, "next_step": error.next_step}
    path.write_text(json.dumps(failure), encoding="utf-8")
    logging.shutdown()
    os._exit(_EXIT_TYPED_ERROR)
