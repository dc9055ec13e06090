"""Loops over rows that numba compiles, where it is installed (``pip install 'onceonly[fast]'``). Any process.

numpy and Arrow do the same without it, in passes over the memory of which a loop has one (ADR 12). It is for attempts
with many rows: the import takes more than half a second and some 100 MB of memory, once for the process (measured),
which a job whose epochs are short must not meet.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import numpy as np
    import numpy.typing as npt

log = logging.getLogger("onceonly")

F = TypeVar("F", bound="Callable[..., Any]")

MODE_ENV = "ONCEONLY_COMPILED"
"""``auto``, the default; ``always``, from the first row on; ``never``."""
ROWS_MIN = 50_000
"""Of an attempt, from which on its process compiles: such an epoch is none of the short ones."""

WORD = 8

_rows_min = {"auto": ROWS_MIN, "always": 0, "never": None}


class _State:
    """Of this process: whether loops are asked for, which never goes back, and whether one was loaded."""

    is_on = False
    is_used = False


def expect(rows: int) -> None:
    """Say how many rows an attempt has had so far. Executor, once a batch; cheap.

    Raises ``ConfigurationError`` where ``ONCEONLY_COMPILED`` says what is not known.
    """
    if not _State.is_on:
        enough = _enough(os.environ.get(MODE_ENV, "auto"))
        _State.is_on = enough is not None and rows >= enough


def loops(module: str) -> Any:  # noqa: ANN401  a module whose functions numba has made
    """Give a module of loops; None where it is not the time for them, or where they cannot be had."""
    return _load(module) if _State.is_on else None


def is_used() -> bool:
    """Say whether this process has loops that are compiled."""
    return _State.is_used


def jit(result: str, *arguments: str) -> Callable[[F], F]:
    """Compile a loop now, or take it from numba's cache; it does without the interpreter's lock.

    The kinds of what it gives and takes are those of ``_types``. Where nothing can be kept in the cache, each process
    compiles anew.
    """
    numba = _numba()
    known = _types(numba.types)
    signature = known[result](*(known[kind] for kind in arguments))

    def compiled(loop: F) -> F:
        made: F
        try:
            made = numba.njit(signature, nogil=True, cache=True)(loop)
        except Exception:  # noqa: BLE001  numba's own, and the system's; a loop that is wrong is so the second time
            made = numba.njit(signature, nogil=True)(loop)
        return made

    return compiled


def words(data: npt.NDArray[np.uint8], width: int = WORD) -> npt.NDArray[Any]:
    """Give the eight bytes, or the four, at each offset, aligned or not, as a number. Nothing is copied. Pure."""
    import numpy as np

    return np.ndarray((max(len(data) - width + 1, 0),), f"<u{width}", data, strides=(1,))


@functools.cache
def _enough(mode: str) -> int | None:
    if mode not in _rows_min:
        raise ConfigurationError(
            f"{MODE_ENV} is {mode!r}, in the environment of an executor.",
            next_step=f"set it to one of {', '.join(_rows_min)}, or not at all",
        )
    return _rows_min[mode]


@functools.cache
def _load(module: str) -> ModuleType | None:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        log.debug("Loops are not compiled: %s.", error)
    except Exception as error:  # noqa: BLE001  a compiler has many ways to fail, and nothing depends on it
        log.warning(
            "numba is installed and does not work here, so rows are taken by numpy: %s: %s.",
            type(error).__name__,
            error,
        )
    else:
        _State.is_used = True
        return found
    return None


def _numba() -> Any:  # noqa: ANN401  its types are for a part of it only
    numba: Any = importlib.import_module("numba")
    if numba.config.DISABLE_JIT:
        raise ImportError("NUMBA_DISABLE_JIT is set")
    return numba


def _types(types: Any) -> dict[str, Any]:  # noqa: ANN401  numba's, which has no types
    def array(kind: Any, order: str, *, read: bool, aligned: bool = True) -> Any:  # noqa: ANN401  as above
        return types.Array(kind, 1, order, readonly=read, aligned=aligned)

    return {
        "bytes": array(types.uint8, "C", read=True),
        "words": array(types.uint64, "A", read=True, aligned=False),
        "words of 4": array(types.uint32, "A", read=True, aligned=False),
        "numbers": array(types.int64, "A", read=True),
        "hashes": array(types.uint64, "A", read=True),
        "to bytes": array(types.uint8, "C", read=False),
        "to words": array(types.uint64, "A", read=False, aligned=False),
        "to numbers": array(types.int64, "C", read=False),
        "to hashes": array(types.uint64, "C", read=False),
        "number": types.int64,
        "word": types.uint64,
        "nothing": types.void,
    }
