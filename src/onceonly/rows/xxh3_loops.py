"""xxh3 of many long values: xxhash's function in C, called from a loop that numba compiles (``rows.compiled``).

Called from Python for each value, most of the time goes into the call.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import TYPE_CHECKING, Any

import numba  # before its parts: it may not be there
import numpy as np
import xxhash
from llvmlite import ir
from numba.extending import intrinsic

from onceonly.rows.compiled import NotHereError, check, jit

if TYPE_CHECKING:
    import numpy.typing as npt

    _Words = npt.NDArray[np.uint64]
    _Numbers = npt.NDArray[np.int64]


def _address() -> int:
    try:
        function = ctypes.CDLL(importlib.import_module("xxhash._xxhash").__file__).XXH3_64bits_withSeed
    except (AttributeError, ImportError, OSError) as error:  # a build that keeps its functions to itself
        raise NotHereError(str(error)) from error
    address: Any = ctypes.cast(function, ctypes.c_void_p).value
    return int(address)


_FUNCTION = _address()


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


@jit("nothing", "number", "bytes", *["numbers"] * 2, "hashes", "numbers", "to hashes")
def _xxh3(
    function: int,
    data: npt.NDArray[np.uint8],
    starts: _Numbers,
    lengths: _Numbers,
    seeds: _Words,
    rows: _Numbers,
    hashes: _Words,
) -> None:
    memory = np.int64(data.ctypes.data)
    for number in range(len(rows)):
        row = rows[number]
        hashes[row] = _call(function, memory + starts[row], lengths[row], seeds[row])


# The function's address is an argument, as numba's cache keeps the loop for other processes.
xxh3 = functools.partial(_xxh3, _FUNCTION)
"""Put xxh3 of some of the rows into ``hashes``: data, starts, lengths, seeds, rows, hashes."""


# Around the lengths at which xxh3 goes another way: it takes 240 bytes at once, and more in blocks of 1,024.
_LENGTHS = (129, 240, 241, 1_024, 1_025, 3_000)
_DATA = bytes(number % 251 for number in range(max(_LENGTHS) + len(_LENGTHS)))
_SEED = 1 << 63


def _some() -> list[int]:
    starts, lengths = np.arange(len(_LENGTHS), dtype=np.int64), np.array(_LENGTHS, np.int64)
    hashes = np.zeros(len(_LENGTHS), np.uint64)
    xxh3(np.frombuffer(_DATA, np.uint8), starts, lengths, hashes + np.uint64(_SEED), starts, hashes)
    return hashes.tolist()


check(
    _some(),
    [xxhash.xxh3_64_intdigest(_DATA[start : start + length], _SEED) for start, length in enumerate(_LENGTHS)],
)
