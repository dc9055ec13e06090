"""Loops over rows that numba compiles, where it is installed (``pip install 'onceonly[fast]'``). Any process.

numpy and Arrow do the same without it, in passes over the memory of which a loop has one (ADR 12). It is for attempts
with many rows: numba takes about a second to load and some 160 MB, once for the process (``benchmarks.costs``), which
a job whose epochs are short must not meet.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

log = logging.getLogger("onceonly")

F = TypeVar("F", bound="Callable[..., Any]")

MODE_ENV = "ONCEONLY_COMPILED"
"""``auto``, the default; ``always``, from the first row on; ``never``."""
ROWS_MIN = 50_000
"""Of an attempt, from which on its process compiles: such an epoch is none of the short ones."""

_rows_min = {"auto": ROWS_MIN, "always": 0, "never": None}


class NotHereError(ImportError):
    """What a module of loops needs is not on this machine, and nothing is wrong with that."""


class _State:
    """Of this process: whether loops are asked for, which never goes back; which were loaded; what has been told."""

    is_on = False
    is_told = False
    used: ClassVar[set[str]] = set()


def expect(rows: int) -> None:
    """Say how many rows an attempt has had so far, with those that it has now. Executor, once a batch; cheap.

    Raises ``ConfigurationError`` where ``ONCEONLY_COMPILED`` says what is not known.
    """
    if not _State.is_on:
        enough = _enough(os.environ.get(MODE_ENV, "auto"))
        _State.is_on = enough is not None and rows >= enough


def loops(module: str) -> Any:  # noqa: ANN401  a module whose functions numba has made
    """Return a module of loops; None where it is not the time for them, or where they cannot be had."""
    return _load(module) if _State.is_on else None


def used() -> list[str]:
    """Name the modules of loops that this process has."""
    return sorted(_State.used)


def check(found: object, expected: object) -> None:
    """Refuse a module of loops, at its import, that does not do what it must.

    numba's cache is of this code and this processor by its own account; a folder that several machines share, or a
    process that was killed while it wrote there, shall not be able to change what is written of rows.
    """
    if found != expected:
        raise ImportError(f"a loop gives {found!r}, and {expected!r} is right")


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
    except Exception as error:  # noqa: BLE001  a compiler has many ways to fail, and nothing depends on it
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "numba"
        if not is_missing and not isinstance(error, NotHereError) and not _State.is_told:
            _State.is_told = True
            log.warning(
                "numba is installed and does not work here, so rows are taken by numpy: %s: %s.",
                type(error).__name__,
                error,
            )
        return None
    _State.used.add(module.rpartition(".")[2])
    return found


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
