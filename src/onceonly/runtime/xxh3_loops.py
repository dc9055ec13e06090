"""xxh3 of many long values: xxhash's function in C, called from a loop that numba compiles (``onceonly.compiled``).

Called from Python for each value, most of the time goes into the call.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any

import numba  # before its parts: it may not be there
import numpy as np
import xxhash
from llvmlite import ir
from numba.extending import intrinsic

from onceonly.compiled import NotHereError, check, jit

if TYPE_CHECKING:
    import numpy.typing as npt

    _Words = npt.NDArray[np.uint64]
    _Numbers = npt.NDArray[np.int64]


def _address() -> int:
    try:
        function = ctypes.CDLL(importlib.import_module("xxhash._xxhash").__file__).XXH3_64bits_withSeed
    except (AttributeError, ImportError, OSError) as error:  # a build that keeps its functions to itself
        raise NotHereError(str(error)) from error
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_FUNCTION = _address()


def xxh3(
    data: npt.NDArray[np.uint8],
    starts: _Numbers,
    lengths: _Numbers,
    seeds: _Words,
    rows: _Numbers,
    hashes: _Words,
) -> None:
    """Put xxh3 of some of the rows into ``hashes``; where the function lies differs from process to process."""
    _xxh3(_FUNCTION, data.ctypes.data, starts, lengths, seeds, rows, hashes)


def _called(_context: Any, function: Any, value: Any, length: Any, seed: Any) -> Any:  # noqa: ANN401  numba's
    """Call a function in C by its address: ``XXH64_hash_t f(const void*, size_t, XXH64_hash_t)``."""

    def generate(_context: Any, builder: Any, _signature: Any, given: Any) -> Any:  # noqa: ANN401  numba's
        word, memory = ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(word, [memory, word, word]).as_pointer()
        return builder.call(
            builder.inttoptr(given[0], kind), [builder.inttoptr(given[1], memory), *given[2:]]
        )

    return numba.types.uint64(function, value, length, seed), generate


_call: Any = intrinsic(_called)


@jit("nothing", "number", "number", *["numbers"] * 2, "hashes", "numbers", "to hashes")
def _xxh3(
    function: int,
    memory: int,
    starts: _Numbers,
    lengths: _Numbers,
    seeds: _Words,
    rows: _Numbers,
    hashes: _Words,
) -> None:
    for number in range(len(rows)):
        row = rows[number]
        hashes[row] = _call(function, memory + starts[row], lengths[row], seeds[row])


def _some() -> list[int]:
    data, lengths = np.arange(1_000).astype(np.uint8), np.array([129, 240, 241, 990])
    rows, hashes = np.arange(4), np.zeros(4, np.uint64)
    xxh3(data, rows, lengths, hashes + np.uint64(1 << 63), rows, hashes)
    return hashes.tolist()


def _by_library() -> list[int]:
    data = bytes(number % 256 for number in range(1_000))
    return [
        xxhash.xxh3_64_intdigest(data[start : start + length], 1 << 63)
        for start, length in enumerate((129, 240, 241, 990))
    ]


check(_some(), _by_library())
