"""The slots of a cluster: in which a key lies, and a name that lies in each. Pure."""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLOTS = 16384


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key: by the text in its first braces, if there is one, else by all of it."""
    from redis.crc import key_slot

    found: int = key_slot(key.encode() if isinstance(key, str) else key)
    return found


def by_slot(keys: Sequence[str]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the places of keys so that those of one slot stand together, in their order, and the bounds of each."""
    slots = [slot_of(key) for key in keys]
    order = sorted(range(len(keys)), key=slots.__getitem__)
    begins = [at for at, place in enumerate(order) if not at or slots[place] != slots[order[at - 1]]]
    return order, list(zip(begins, [*begins[1:], len(keys)], strict=False))


@lru_cache(maxsize=4)
def names_of(beginning: str) -> Mapping[int, str]:
    """Return a name for each slot that names with this beginning can lie in; always the same ones. Some 50 ms."""
    first = slot_of(f"{beginning}0")
    if first == slot_of(f"{beginning}1"):  # it has a hash tag
        return {first: f"{beginning}0"}
    found: dict[int, int] = {}
    begun = crc_hqx(beginning.encode(), 0)
    for number in count():
        found.setdefault(crc_hqx(b"%d" % number, begun) % SLOTS, number)
        if len(found) == SLOTS:
            break
    return {slot: f"{beginning}{number}" for slot, number in found.items()}
