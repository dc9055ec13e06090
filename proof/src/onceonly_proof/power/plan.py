"""Which cuts are made of a recorded run. Pure.

A cut is an operation's number, a style and a seed. Two cuts that leave the same files are one state, and a state is
tried once; where nothing was unsynced, all styles leave the same.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly_proof.power.tree import STYLES, Keep, Op, Tree, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SEEDED = frozenset({"random", "prefix", "all-but-one", "one"})


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the power is cut, and what is kept."""

    at: int
    keep: Keep


@dataclass(frozen=True, slots=True)
class State:
    """What one or more cuts leave: tried by the first of them."""

    cuts: tuple[Cut, ...]

    @property
    def first(self) -> Cut:
        return self.cuts[0]


def states(base: Tree, ops: Sequence[Op], *, seed: int, seeds: int = 2, begin: int = 0) -> list[State]:
    """Return every state that a cut at each ordinal from ``begin`` on leaves, of every style.

    First come those that hit all ordinals in few states, then the others, in a drawn order.
    """
    found: dict[str, list[Cut]] = {}
    for at in range(begin, len(ops) + 1):
        for style in STYLES:
            for number in range(seeds if style in _SEEDED else 1):
                keep = Keep(style, seed * 1_000 + number)
                digest = fingerprint(cut(base, ops[:at], keep))
                found.setdefault(digest, []).append(Cut(at, keep))
    draw = random.Random(seed)  # noqa: S311  a seeded order
    every = [State(tuple(cuts)) for cuts in found.values()]
    draw.shuffle(every)
    return list(spread(every))


def spread(every: list[State]) -> Iterator[State]:
    """Yield them so that all ordinals are hit early: the next is always one that hits most of those left.

    A greedy set cover (Chvátal 1979). What a state would hit only falls, so a stale count is counted again when it is
    the largest.
    """
    left = {one.at for state in every for one in state.cuts}
    waiting = [(-len({one.at for one in state.cuts}), number) for number, state in enumerate(every)]
    heapq.heapify(waiting)
    later: list[int] = []
    while waiting:
        count, number = heapq.heappop(waiting)
        fresh = {one.at for one in every[number].cuts} & left
        if not fresh:
            later.append(number)
        elif len(fresh) < -count:
            heapq.heappush(waiting, (-len(fresh), number))
        else:
            left -= fresh
            yield every[number]
    for number in sorted(later):
        yield every[number]


def fingerprint(tree: Tree) -> str:
    """Return the digest of all that a program can see: paths, contents, which names are links of one file."""
    digest = hashlib.sha256()
    numbers: dict[int, int] = {}
    for path, ino in tree.paths().items():
        number = numbers.setdefault(ino, len(numbers))
        digest.update(f"{path}\0{number}\0{len(tree.nodes[ino].data)}\0".encode(errors="surrogateescape"))
        digest.update(tree.nodes[ino].data)
    return digest.hexdigest()


def words(base: Tree, ops: Sequence[Op]) -> list[str]:
    """Say what each operation does, with numbers and ids taken out: ``sync onceonly/links``, ``rename offsets/# …``."""
    tree = base.copy()
    places = {ino: path for path, ino in tree.paths().items()}
    said: list[str] = []
    for op in ops:
        if op.kind == "create":
            places[op.ino] = places.get(op.folder, "") + op.name + ("/" if op.mode & 0o040000 else "")
        if op.kind == "rename":
            moved = tree.nodes[op.folder].names.get(op.name, 0)
            target = places.get(op.to_folder, "") + op.to_name
            said.append(_plain(f"rename to {target}"))
            places[moved] = target + ("/" if places.get(moved, "").endswith("/") else "")
        elif op.kind in {"create", "link", "unlink"}:
            said.append(_plain(f"{op.kind} {places.get(op.folder, '')}{op.name}"))
        else:
            said.append(_plain(f"{op.kind} {places.get(op.ino, '.')}"))
        tree.apply(op)
    return said


def _plain(text: str) -> str:
    text = re.sub(
        r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|[0-9a-f]{16}|\b[0-9a-f]{8}(?:[0-9a-f]{4})?\b", "*", text
    )
    return re.sub(r"\d+", "#", text)
