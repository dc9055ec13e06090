"""Which cuts are made of a recorded run. Pure.

A cut is an operation's number, a style and a seed. Two cuts that leave the same files are one state, and a state is
tried once; where nothing was unsynced, all styles leave the same.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.testing.power.tree import STYLES, Keep, Op, Tree, cut

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
    """Give every state that a cut at each ordinal from ``begin`` on leaves, of every style, in a drawn order.

    The order takes an ordinal that was not hit yet before any is hit again, as far as that can be done.
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
    return list(_spread(every))


def _spread(every: list[State]) -> Iterator[State]:
    """Give them so that ordinals are hit as early as possible."""
    hit: set[int] = set()
    later: list[State] = []
    for state in sorted(every, key=lambda each: -len({one.at for one in each.cuts})):
        fresh = {one.at for one in state.cuts} - hit
        if fresh:
            hit |= fresh
            yield state
        else:
            later.append(state)
    random.Random(len(every)).shuffle(later)  # noqa: S311  a seeded order
    yield from later


def fingerprint(tree: Tree) -> str:
    """Give the digest of all that a program can see: paths, contents, which names are links of one file."""
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
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|[0-9a-f]{16}", "*", text)
    return re.sub(r"\d+", "#", text)
