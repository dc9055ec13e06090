"""The kernel's protocol for file systems in user space, as far as a tree in memory needs it: requests in, replies out.

After ``<linux/fuse.h>``, protocol 7.31; all numbers are in the machine's own order. Nothing is cached by the kernel
between two calls, so that every operation arrives, in its order, and a tree can be exchanged under a mount.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import time
from typing import TYPE_CHECKING

from onceonly_proof.power.tree import ROOT, Node, Op, Tree

if TYPE_CHECKING:
    from collections.abc import Callable

_IN = struct.Struct("=IIQQIIII")
_OUT = struct.Struct("=IiQ")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("=QQQQII")
_MAX_WRITE = 128 * 1024
BUFFER = _MAX_WRITE + 64 * 1024
"""How many bytes one read of the device needs room for."""
_BIG_WRITES = 1 << 5
_RENAME_NOREPLACE = 1
_SETATTR_SIZE, _SETATTR_MODE = 1 << 3, 1 << 0
_NO_REPLY = frozenset({2, 42})  # FORGET, BATCH_FORGET
_BLOCK = 4096
# A node's number, as the kernel has it, says which tree it is of.
_TREES = 40


class RefusedError(Exception):
    """A request is answered by this ``errno``."""

    def __init__(self, code: int) -> None:
        super().__init__(os.strerror(code))
        self.code = code


class Requests:
    """Answers the kernel's requests from a tree. ``before`` is called with every operation, before it is carried out.

    One thread. ``before`` may raise :class:`RefusedError`: then nothing is done. ``ops`` are the operations since the
    tree was put in, which is durable as it came.
    """

    def __init__(self, tree: Tree, before: Callable[[Op], None]) -> None:
        self._before = before
        self._count = 0
        self._times: dict[int, float] = {}
        self.put_in(tree)

    def put_in(self, tree: Tree) -> None:
        """Serve another tree from now on: what is open of the one before is stale."""
        self._count += 1
        self.base = tree
        self.tree = tree.copy()
        self.ops: list[Op] = []
        self._links = self.tree.links()
        self._born = time.time()

    def answer(self, request: bytes) -> bytes | None:
        """Return the reply to a request, None where the kernel expects none."""
        _, opcode, unique, nodeid, *_ = _IN.unpack_from(request)
        if opcode in _NO_REPLY:
            return None
        try:
            handler = _HANDLERS.get(opcode, _unknown)
            node = 0 if opcode in _WITHOUT_NODE else self._ino(nodeid)
            body = handler(self, node, memoryview(request)[_IN.size :])
        except RefusedError as refused:
            return _OUT.pack(_OUT.size, -refused.code, unique)
        return _OUT.pack(_OUT.size + len(body), 0, unique) + body

    # --- nodes --------------------------------------------------------------------------------------------

    def _ino(self, nodeid: int) -> int:
        if nodeid == ROOT:
            return ROOT
        if nodeid >> _TREES != self._count:
            raise RefusedError(errno.ESTALE)
        ino = nodeid & ((1 << _TREES) - 1)
        if ino not in self.tree.nodes:
            raise RefusedError(errno.ESTALE)
        return ino

    def _nodeid(self, ino: int) -> int:
        return ROOT if ino == ROOT else self._count << _TREES | ino

    def _folder(self, ino: int) -> Node:
        node = self.tree.nodes[ino]
        if not node.is_folder:
            raise RefusedError(errno.ENOTDIR)
        return node

    def _child(self, folder: int, name: str) -> int:
        ino = self._folder(folder).names.get(name)
        if ino is None:
            raise RefusedError(errno.ENOENT)
        return ino

    def _do(self, op: Op) -> None:
        self._before(op)
        replaced = self.tree.nodes[op.to_folder].names.get(op.to_name) if op.kind == "rename" else None
        gone = self.tree.nodes[op.folder].names.get(op.name) if op.kind == "unlink" else replaced
        self.tree.apply(op)
        self.ops.append(op)
        if gone is not None and not (
            op.kind == "rename" and (op.folder, op.name) == (op.to_folder, op.to_name)
        ):
            self._links[gone] = self._links.get(gone, 1) - 1
        if op.kind in {"create", "link"}:
            self._links[op.ino] = self._links.get(op.ino, 0) + 1
        now = time.time()
        for each in (op.ino, op.folder, op.to_folder):
            if each and op.kind != "sync":
                self._times[each] = now

    def _attr(self, ino: int) -> bytes:
        node = self.tree.nodes[ino]
        size = len(node.data)
        moment = self._times.get(ino, self._born)
        seconds, nano = int(moment), int(moment % 1 * 1e9)
        links = self._links.get(ino, 0) + node.is_folder
        times = (seconds,) * 3, (nano,) * 3
        return _ATTR.pack(
            ino, size, -(-size // 512), *times[0], *times[1],
            node.mode, links, os.getuid(), os.getgid(), 0, _BLOCK, 0,
        )  # fmt: skip

    def _entry(self, ino: int) -> bytes:
        return _ENTRY.pack(self._nodeid(ino), 0, 0, 0, 0, 0) + self._attr(ino)

    # --- requests, by their numbers -------------------------------------------------------------------------

    def init(self, _node: int, body: memoryview) -> bytes:
        _major, _minor, readahead, flags = struct.unpack_from("=IIII", body)
        return struct.pack(
            "=IIIIHHIIHHI28x", 7, 31, readahead, flags & _BIG_WRITES, 12, 9, _MAX_WRITE, 1, 0, 0, 0
        )

    def lookup(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._child(node, _text(body)))

    def getattr(self, node: int, _body: memoryview) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + self._attr(node)

    def setattr(self, node: int, body: memoryview) -> bytes:
        (valid,) = struct.unpack_from("=I", body)
        if valid & _SETATTR_SIZE:
            (size,) = struct.unpack_from("=Q", body, 16)
            self._do(Op("truncate", ino=node, offset=size))
        if valid & _SETATTR_MODE:
            (mode,) = struct.unpack_from("=I", body, 68)
            kind = stat.S_IFMT(self.tree.nodes[node].mode)
            self.tree.nodes[node].mode = kind | stat.S_IMODE(mode)
        return self.getattr(node, body)

    def readlink(self, node: int, _body: memoryview) -> bytes:
        return bytes(self.tree.nodes[node].data)

    def symlink(self, node: int, body: memoryview) -> bytes:
        name, target, *_ = bytes(body).split(b"\0")
        ino = self._create(node, name.decode(errors="surrogateescape"), stat.S_IFLNK | 0o777)
        self._do(Op("write", ino=ino, data=target))
        return self._entry(ino)

    def _create(self, folder: int, name: str, mode: int) -> int:
        if name in self._folder(folder).names:
            raise RefusedError(errno.EEXIST)
        ino = self.tree.next_ino
        self._do(Op("create", ino=ino, folder=folder, name=name, mode=mode))
        return ino

    def mknod(self, node: int, body: memoryview) -> bytes:
        mode, _rdev, mask, _ = struct.unpack_from("=IIII", body)
        if not stat.S_ISREG(mode):
            raise RefusedError(errno.EPERM)
        return self._entry(self._create(node, _text(body[16:]), mode & ~mask))

    def mkdir(self, node: int, body: memoryview) -> bytes:
        mode, mask = struct.unpack_from("=II", body)
        mode = stat.S_IFDIR | stat.S_IMODE(mode & ~mask)
        return self._entry(self._create(node, _text(body[8:]), mode))

    def create_open(self, node: int, body: memoryview) -> bytes:
        flags, mode, mask, _ = struct.unpack_from("=IIII", body)
        name = _text(body[16:])
        there = self._folder(node).names.get(name)
        if there is None:
            there = self._create(node, name, stat.S_IFREG | stat.S_IMODE(mode & ~mask))
        elif flags & os.O_EXCL:
            raise RefusedError(errno.EEXIST)
        return self._entry(there) + struct.pack("=QII", 0, 0, 0)

    def unlink(self, node: int, body: memoryview) -> bytes:
        name = _text(body)
        if self.tree.nodes[self._child(node, name)].is_folder:
            raise RefusedError(errno.EISDIR)
        self._do(Op("unlink", folder=node, name=name))
        return b""

    def rmdir(self, node: int, body: memoryview) -> bytes:
        name = _text(body)
        if self._folder(self._child(node, name)).names:
            raise RefusedError(errno.ENOTEMPTY)
        self._do(Op("unlink", folder=node, name=name))
        return b""

    def rename(self, node: int, body: memoryview) -> bytes:
        (target,) = struct.unpack_from("=Q", body)
        return self._move(node, self._ino(target), body[8:], 0)

    def rename2(self, node: int, body: memoryview) -> bytes:
        target, flags, _ = struct.unpack_from("=QII", body)
        return self._move(node, self._ino(target), body[16:], flags)

    def _move(self, folder: int, to_folder: int, names: memoryview, flags: int) -> bytes:
        if flags & ~_RENAME_NOREPLACE:
            raise RefusedError(errno.EINVAL)
        old, new = (each.decode(errors="surrogateescape") for each in bytes(names).split(b"\0")[:2])
        moved, there = self._child(folder, old), self._folder(to_folder).names.get(new)
        if there is not None:
            if flags & _RENAME_NOREPLACE:
                raise RefusedError(errno.EEXIST)
            if there == moved:
                return b""
            self._see_replaceable(self.tree.nodes[moved], self.tree.nodes[there])
        self._do(Op("rename", folder=folder, name=old, to_folder=to_folder, to_name=new))
        return b""

    @staticmethod
    def _see_replaceable(moved: Node, there: Node) -> None:
        if moved.is_folder != there.is_folder:
            raise RefusedError(errno.EISDIR if there.is_folder else errno.ENOTDIR)
        if there.names:
            raise RefusedError(errno.ENOTEMPTY)

    def link(self, node: int, body: memoryview) -> bytes:
        (old,) = struct.unpack_from("=Q", body)
        ino, name = self._ino(old), _text(body[8:])
        if name in self._folder(node).names:
            raise RefusedError(errno.EEXIST)
        self._do(Op("link", ino=ino, folder=node, name=name))
        return self._entry(ino)

    def open(self, _node: int, _body: memoryview) -> bytes:
        return struct.pack("=QII", 0, 0, 0)

    def read(self, node: int, body: memoryview) -> bytes:
        _fh, offset, size = struct.unpack_from("=QQI", body)
        return bytes(self.tree.nodes[node].data[offset : offset + size])

    def write(self, node: int, body: memoryview) -> bytes:
        _fh, offset, size, _how, _owner, flags, _ = struct.unpack_from("=QQIIQII", body)
        self._do(Op("write", ino=node, offset=offset, data=bytes(body[40 : 40 + size])))
        if flags & os.O_DSYNC:
            self._do(Op("sync", ino=node))
        return struct.pack("=II", size, 0)

    def statfs(self, _node: int, _body: memoryview) -> bytes:
        return struct.pack(
            "=QQQQQIIII24x", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, _BLOCK, 255, _BLOCK, 0
        )

    def nothing(self, _node: int, _body: memoryview) -> bytes:
        return b""

    def fsync(self, node: int, _body: memoryview) -> bytes:
        self._do(Op("sync", ino=node))
        return b""

    def readdir(self, node: int, body: memoryview) -> bytes:
        _fh, offset, size = struct.unpack_from("=QQI", body)
        listed = [(".", node), ("..", node), *self._folder(node).names.items()]
        out = bytearray()
        for position, (name, ino) in enumerate(listed[offset:], offset + 1):
            text = name.encode(errors="surrogateescape")
            kind = stat.S_IFMT(self.tree.nodes[ino].mode) >> 12
            entry = struct.pack("=QQII", ino, position, len(text), kind) + text
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return bytes(out)


def _unknown(_requests: Requests, _node: int, _body: memoryview) -> bytes:
    raise RefusedError(errno.ENOSYS)


def _text(body: memoryview) -> str:
    return bytes(body).split(b"\0", 1)[0].decode(errors="surrogateescape")


_HANDLERS: dict[int, Callable[[Requests, int, memoryview], bytes]] = {
    1: Requests.lookup, 3: Requests.getattr, 4: Requests.setattr, 5: Requests.readlink, 6: Requests.symlink,
    8: Requests.mknod, 9: Requests.mkdir, 10: Requests.unlink, 11: Requests.rmdir, 12: Requests.rename,
    13: Requests.link, 14: Requests.open, 15: Requests.read, 16: Requests.write, 17: Requests.statfs,
    18: Requests.nothing, 20: Requests.fsync, 25: Requests.nothing, 26: Requests.init, 27: Requests.open,
    28: Requests.readdir, 29: Requests.nothing, 30: Requests.fsync, 35: Requests.create_open, 38: Requests.nothing,
    45: Requests.rename2,
}  # fmt: skip
_WITHOUT_NODE = frozenset({17, 18, 25, 26, 29, 36, 38})
