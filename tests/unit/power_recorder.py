"""The same recording without a file system of its own: what one Python process does below a folder.

For tests where nobody may mount. While it is in use, the functions of ``os`` that change names or sync, and ``open``,
are replaced in this process. Content is looked at when its file is synced, linked or renamed, and at the end: what was
written in between is one write. Other processes, and what C code opens by itself, are not seen.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import threading
from typing import TYPE_CHECKING, Any, Self

from onceonly.sinks.files.staging import moving
from onceonly_proof.disk import StandIns
from onceonly_proof.power import recording
from onceonly_proof.power.tree import ROOT, Node, Op, Tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


class Recorder(StandIns):
    """A context that records what this process does below a folder. One at a time; any of its threads.

    ``before`` is what an earlier process did there that was killed: the folder holds all of it, and none of it is more
    durable than it was.
    """

    def __init__(self, folder: Path, before: tuple[Tree, list[Op]] | None = None) -> None:
        super().__init__()
        self._folder = os.path.realpath(folder)
        self._lock = threading.RLock()
        self.base, ops = before or (read_tree(folder), [])
        self.tree = self.base.copy()
        self.ops: list[Op] = []
        for op in ops:
            self._do(op)
        self._inos = {
            os.lstat(os.path.join(self._folder, path)).st_ino: ino  # noqa: PTH118  with its slash
            for path, ino in self.tree.paths().items()
        } | {os.lstat(self._folder).st_ino: ROOT}

    def __enter__(self) -> Self:
        for name in ("fsync", "fdatasync"):
            self._replace(os, name, self._syncing(getattr(os, name)))
        acts: dict[str, tuple[Callable[..., None], int]] = {
            "link": (self._link, 2), "rename": (self._rename, 2), "replace": (self._rename, 2),
            "unlink": (self._unlink, 1), "remove": (self._unlink, 1), "rmdir": (self._unlink, 1),
            "mkdir": (self._made, 1),
        }  # fmt: skip
        for name, (act, paths) in acts.items():
            self._replace(os, name, self._naming(getattr(os, name), act, paths))
        self._replace(moving, "rename_noreplace", self._naming(moving.rename_noreplace, self._rename, 2))
        self._replace(os, "open", self._naming(os.open, self._made, 1))
        self._replace_open(self._naming(io.open, self._made, 1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for path, ino in self.tree.paths().items():
            if not path.endswith("/"):
                self._look(ino, os.path.join(self._folder, path))  # noqa: PTH118  as above

    def save(self, path: Path) -> None:
        """Write the recording, for ``recording.load``."""
        recording.save(path, self.base, self.ops)

    # --- what stands in for the functions -----------------------------------------------------------------

    def _syncing(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            with self._lock:
                ino = self._inos.get(os.fstat(descriptor).st_ino)
                if ino is not None:
                    if not self.tree.nodes[ino].is_folder:
                        self._look(ino, f"/proc/self/fd/{descriptor}")
                    real(descriptor)
                    self._do(Op("sync", ino=ino))
                    return
            real(descriptor)

        return sync

    def _naming(self, real: Callable[..., Any], act: Callable[..., None], paths: int) -> Callable[..., Any]:
        def named(*args: Any, **more: Any) -> Any:  # noqa: ANN401  os's own
            places = [self._place(each, more.get("dir_fd")) for each in args[:paths]]
            if None in places or not places:
                return real(*args, **more)
            with self._lock:
                if act != self._made:
                    self._look_by_path(str(places[0]))
                result = real(*args, **more)
                act(*places)
                return result

        return named

    def _place(self, path: object, dir_fd: int | None) -> str | None:
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        # shutil.rmtree goes by the descriptors of folders.
        base = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")  # noqa: PTH109, PTH115
        place = os.path.normpath(os.path.join(base, os.fsdecode(path)))  # noqa: PTH118  links are not followed
        return place if place.startswith(self._folder + "/") else None

    def _split(self, path: str) -> tuple[int, str]:
        folder, name = os.path.split(path)
        return self._inos[os.lstat(folder).st_ino], name

    # --- operations ---------------------------------------------------------------------------------------

    def _do(self, op: Op) -> None:
        self.tree.apply(op)
        self.ops.append(op)

    def _made(self, path: str) -> None:
        """Note a file or folder that was not there before; what was there is as it was."""
        folder, name = self._split(path)
        if name in self.tree.nodes[folder].names:
            return
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        ino = self.tree.next_ino
        self._inos[found.st_ino] = ino
        self._do(Op("create", ino=ino, folder=folder, name=name, mode=found.st_mode))

    def _link(self, old: str, new: str) -> None:
        source, name = self._split(old)
        folder, new_name = self._split(new)
        self._do(Op("link", ino=self.tree.nodes[source].names[name], folder=folder, name=new_name))

    def _rename(self, old: str, new: str) -> None:
        (source, name), (folder, new_name) = self._split(old), self._split(new)
        self._do(Op("rename", folder=source, name=name, to_folder=folder, to_name=new_name))

    def _unlink(self, path: str) -> None:
        folder, name = self._split(path)
        self._do(Op("unlink", folder=folder, name=name))

    def _look_by_path(self, path: str) -> None:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        ino = self._inos.get(found.st_ino)
        if ino is not None and stat.S_ISREG(found.st_mode):
            self._look(ino, path)

    def _look(self, ino: int, path: str) -> None:
        """Note what was written into a file since it was looked at last."""
        real_open = next(
            (real for module, name, real in self._replaced if (module, name) == (io, "open")), io.open
        )
        with real_open(path, "rb") as file:
            data = file.read()
        known = bytes(self.tree.nodes[ino].data)
        if data == known:
            return
        if not data.startswith(known):
            self._do(Op("truncate", ino=ino))
            known = b""
        self._do(Op("write", ino=ino, offset=len(known), data=data[len(known) :]))


def read_tree(folder: Path) -> Tree:
    """Read a folder as a tree that is durable. Links of one file stay links."""
    tree = Tree()
    inos: dict[int, int] = {}

    def read(path: str, ino: int) -> None:
        for entry in sorted(os.scandir(path), key=lambda each: each.name):
            found = entry.stat(follow_symlinks=False)
            child = inos.get(found.st_ino)
            if child is None:
                child = tree.next_ino
                inos[found.st_ino] = child
                tree.nodes[child] = Node(found.st_mode)
                tree.next_ino += 1
                if stat.S_ISREG(found.st_mode):
                    with open(entry.path, "rb") as file:  # noqa: PTH123  a path of scandir's
                        tree.nodes[child].data = bytearray(file.read())
            tree.nodes[ino].names[entry.name] = child
            if entry.is_dir(follow_symlinks=False):
                read(entry.path, child)

    read(os.fspath(folder), ROOT)
    return tree


def write_tree(tree: Tree, folder: Path) -> None:
    """Make a folder hold just this tree; what is in it is removed."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    written: dict[int, Path] = {}
    for name, ino in tree.paths().items():
        path = folder / name
        if tree.nodes[ino].is_folder:
            path.mkdir()
        elif ino in written:
            path.hardlink_to(written[ino])
        else:
            path.write_bytes(tree.nodes[ino].data)
            written[ino] = path
