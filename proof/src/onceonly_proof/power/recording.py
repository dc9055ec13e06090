"""A tree and the operations that were done on it, in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onceonly_proof.power.tree import Node, Op, Tree

if TYPE_CHECKING:
    from pathlib import Path


class _Node(msgspec.Struct, frozen=True, array_like=True):
    ino: int
    mode: int
    names: dict[str, int]
    data: bytes


class _Recording(msgspec.Struct, frozen=True, array_like=True):
    next_ino: int
    nodes: list[_Node]
    ops: list[Op]


def save(path: Path, base: Tree, ops: list[Op]) -> None:
    """Write both."""
    nodes = [_Node(ino, node.mode, node.names, bytes(node.data)) for ino, node in base.nodes.items()]
    path.write_bytes(msgspec.msgpack.encode(_Recording(base.next_ino, nodes, ops)))


def load(path: Path) -> tuple[Tree, list[Op]]:
    """Read both."""
    found = msgspec.msgpack.decode(path.read_bytes(), type=_Recording)
    nodes = {each.ino: Node(each.mode, dict(each.names), bytearray(each.data)) for each in found.nodes}
    return Tree(nodes, found.next_ino), found.ops
