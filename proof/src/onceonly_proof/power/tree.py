"""A file tree as a list of operations, and what a power cut leaves of it. Pure: no file is touched.

What is durable: the content of a file that was synced, as it was then; of a folder that was synced, the names that it
had then. A name is not made durable by syncing the file that it names. A rename is one operation, kept or forgotten as
a whole, and durable once the folder that it goes *to* was synced; so is a link; a removal once its folder was.

What is not durable is kept or forgotten at the cut, by a seeded choice (:class:`Keep`): any set of operations on names
in which those on one name stay in their order; of each file's content a beginning, whole or torn, or its length with
zeros in place of what was written. That is as harsh as POSIX allows but for one thing, the rename that is one: ext4,
XFS and Btrfs keep more, in the order of their journal.
"""

from __future__ import annotations

import random
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = 1
_NAMING = frozenset({"create", "link", "unlink", "rename"})
_FILE_MODE, _FOLDER_MODE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755

STYLES = ("nothing", "all", "random", "names", "zeros", "prefix", "all-but-one", "one")
"""What a cut keeps of what was not synced: nothing; all (a crash of the processes alone); each by a coin; names without
content; names, and lengths without content; names up to a moment; all but one thing; one thing."""


class Op(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One operation, in the order in which the kernel asked for it.

    ``kind`` is ``create`` (of a file, folder or symbolic link, by ``mode``), ``link``, ``unlink`` (of a folder, too),
    ``rename`` from ``folder``/``name`` to ``to_folder``/``to_name``, ``write`` of ``data`` at ``offset``, ``truncate``
    to ``offset``, or ``sync`` of a file's content or a folder's names. Inodes are numbers.
    """

    kind: str
    ino: int = 0
    folder: int = 0
    name: str = ""
    to_folder: int = 0
    to_name: str = ""
    offset: int = 0
    data: bytes = b""
    mode: int = 0

    @property
    def entries(self) -> tuple[tuple[int, str], ...]:
        """Return the names that it changes, each with its folder."""
        if self.kind == "rename":
            return ((self.folder, self.name), (self.to_folder, self.to_name))
        return ((self.folder, self.name),) if self.kind in _NAMING else ()


@dataclass(slots=True)
class Node:
    """A file, a folder or a symbolic link."""

    mode: int
    names: dict[str, int] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


@dataclass(slots=True)
class Tree:
    """Inodes by number, and the next free one. Changed by :meth:`apply` alone."""

    nodes: dict[int, Node] = field(default_factory=lambda: {ROOT: Node(_FOLDER_MODE)})
    next_ino: int = ROOT + 1

    def apply(self, op: Op) -> None:
        """Carry out one operation. What it names must be there; what it makes may be there and is replaced."""
        nodes = self.nodes
        match op.kind:
            case "create":
                nodes.setdefault(op.ino, Node(op.mode))
                self.next_ino = max(self.next_ino, op.ino + 1)
                nodes[op.folder].names[op.name] = op.ino
            case "link":
                nodes[op.folder].names[op.name] = op.ino
            case "unlink":
                nodes[op.folder].names.pop(op.name, None)
            case "rename":
                moved = nodes[op.folder].names.pop(op.name, None)
                if moved is not None:
                    nodes[op.to_folder].names[op.to_name] = moved
            case "write":
                data = nodes[op.ino].data
                if len(data) < op.offset:
                    data.extend(bytes(op.offset - len(data)))
                data[op.offset : op.offset + len(op.data)] = op.data
            case "truncate":
                data = nodes[op.ino].data
                del data[op.offset :]
                data.extend(bytes(op.offset - len(data)))
            case "sync":
                pass
            case _:
                raise ValueError(f"no operation is called {op.kind}")

    def copy(self) -> Tree:
        """Return a tree of its own."""
        nodes = {
            ino: Node(node.mode, dict(node.names), bytearray(node.data)) for ino, node in self.nodes.items()
        }
        return Tree(nodes, self.next_ino)

    def links(self) -> dict[int, int]:
        """Count the names of each inode that has one."""
        found: dict[int, int] = {ROOT: 2}
        for node in self.nodes.values():
            for ino in node.names.values():
                found[ino] = found.get(ino, 0) + 1
        return found

    def paths(self) -> dict[str, int]:
        """Return every path below the root, with its inode; a folder's ends with a slash."""
        return dict(self._walk(ROOT, ""))

    def _walk(self, ino: int, prefix: str) -> Iterator[tuple[str, int]]:
        for name, child in sorted(self.nodes[ino].names.items()):
            if self.nodes[child].is_folder:
                yield f"{prefix}{name}/", child
                yield from self._walk(child, f"{prefix}{name}/")
            else:
                yield f"{prefix}{name}", child

    def prune(self) -> None:
        """Forget what no path leads to."""
        reached = {ROOT, *self.paths().values()}
        self.nodes = {ino: node for ino, node in self.nodes.items() if ino in reached}


@dataclass(frozen=True, slots=True)
class Keep:
    """What a cut keeps of what was not synced: one of :data:`STYLES`, and the seed of its choices."""

    style: str = "nothing"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"{self.style} is none of {', '.join(STYLES)}")


def cut(base: Tree, ops: Sequence[Op], keep: Keep) -> Tree:
    """Return what is there after the power was cut behind these operations. ``base`` is durable, and left as it is."""
    names, contents = _unsynced(ops)
    draw = random.Random(keep.seed)  # noqa: S311  a seeded choice
    kept_names, kept_contents = _choose(keep.style, draw, names, contents)
    lost = set(names) - kept_names
    _close(ops, lost)
    tree = base.copy()
    left = {ino: list(indices) for ino, indices in contents.items()}
    for index, op in enumerate(ops):
        if op.kind in _NAMING:
            if op.kind == "create":
                # An inode may be reached by another name than its first.
                tree.nodes.setdefault(op.ino, Node(op.mode))
                tree.next_ino = max(tree.next_ino, op.ino + 1)
            if index not in lost:
                tree.apply(op)
        elif op.ino not in left or index < left[op.ino][0]:
            tree.apply(op)
    for ino, indices in contents.items():
        _write_some(tree, ino, [ops[index] for index in indices], kept_contents[ino], draw)
    tree.prune()
    return tree


def unsynced(ops: Sequence[Op]) -> int:
    """Count what a cut behind these operations may choose about: names, and files with content."""
    names, contents = _unsynced(ops)
    return len(names) + len(contents)


def _unsynced(ops: Sequence[Op]) -> tuple[list[int], dict[int, list[int]]]:
    """Return the operations on names that are not durable, and those on content, by file. By their place, in order."""
    names: list[int] = []
    contents: dict[int, list[int]] = {}
    synced: set[int] = set()
    for index in range(len(ops) - 1, -1, -1):
        op = ops[index]
        if op.kind == "sync":
            synced.add(op.ino)
        elif op.kind in _NAMING:
            if (op.to_folder if op.kind == "rename" else op.folder) not in synced:
                names.append(index)
        elif op.ino not in synced:
            contents.setdefault(op.ino, []).append(index)
    return names[::-1], {ino: indices[::-1] for ino, indices in sorted(contents.items())}


def _choose(
    style: str, draw: random.Random, names: list[int], contents: dict[int, list[int]]
) -> tuple[set[int], dict[int, str]]:
    """Choose which operations on names are kept, and of each content ``all``, ``none``, ``zeros`` or ``torn``."""
    every, none = dict.fromkeys(contents, "all"), dict.fromkeys(contents, "none")
    things: list[tuple[str, int]] = [("name", each) for each in names] + [("content", i) for i in contents]
    match style:
        case "all" | "names" | "zeros":
            return set(names), {"all": every, "names": none, "zeros": dict.fromkeys(contents, "zeros")}[style]
        case "prefix":
            return set(names[: draw.randint(0, len(names))]), _by_coin(draw, contents)
        case "random":
            return {each for each in names if draw.random() < 0.5}, _by_coin(draw, contents)  # noqa: PLR2004  a coin
        case "all-but-one" | "one" if things:
            kind, chosen = draw.choice(things)
            if style == "one":
                return ({chosen}, none) if kind == "name" else (set(), {**none, chosen: "all"})
            if kind == "name":
                return set(names) - {chosen}, every
            return set(names), {**every, chosen: draw.choice(("none", "zeros", "torn"))}
        case _:
            return set(), none


def _by_coin(draw: random.Random, contents: dict[int, list[int]]) -> dict[int, str]:
    return {ino: draw.choice(("all", "none", "zeros", "torn")) for ino in contents}


def _close(ops: Sequence[Op], lost: set[int]) -> None:
    """Keep what must have come before something that is kept: operations on one name stay in their order."""
    needed: set[tuple[int, str]] = set()
    for index in range(len(ops) - 1, -1, -1):
        entries = ops[index].entries
        if index in lost and needed.isdisjoint(entries):
            continue
        lost.discard(index)
        needed.update(entries)


def _write_some(tree: Tree, ino: int, ops: list[Op], how: str, draw: random.Random) -> None:
    if ino not in tree.nodes or how == "none":
        return
    if how == "torn":
        last = draw.randrange(len(ops))
        for op in ops[:last]:
            tree.apply(op)
        torn = ops[last]
        tree.apply(msgspec.structs.replace(torn, data=torn.data[: draw.randint(0, len(torn.data))]))
        return
    for op in ops:
        tree.apply(msgspec.structs.replace(op, data=bytes(len(op.data))) if how == "zeros" else op)
