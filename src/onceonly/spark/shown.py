"""What Spark shows of an error that a user is to mend: its sentence, and not how onceonly came to it.

Spark prints the trace of a Python process three times, in the driver's log, in the exception and in its text. Of an
error whose cause is proven the sentence says all; the frames of onceonly would only hide it.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from onceonly.errors import OnceonlyError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("onceonly")
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def without_frames(method: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Let typed errors out of a method that Spark calls without the frames below it. Any process; pure.

    A defect of onceonly's, and what is no error of onceonly's, keeps them; those of others are logged at debug level.
    """

    @wraps(method)
    def shown(*args: _Given.args, **more: _Given.kwargs) -> _Made:
        try:
            return method(*args, **more)
        except ProtocolError:
            raise
        except OnceonlyError as error:
            log.debug("Where it came from:", exc_info=True)
            raise error.with_traceback(None) from None

    return shown
