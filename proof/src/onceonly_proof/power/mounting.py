"""Mounting a file system of user space, without a library: mount(2) as root, ``fusermount3`` as anybody else."""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from onceonly.errors import SetupError

_DEVICE = Path("/dev/fuse")
_NOSUID, _NODEV = 2, 4
_DETACH = 2
_OPTIONS = "default_permissions,allow_other"
NEEDS = (
    "the power-loss file system needs Linux with /dev/fuse, and to be root or to have fusermount3"
    " (Debian, Ubuntu: apt install fuse3)"
)


def may_mount() -> bool:
    """Say whether this process has what mounting needs."""
    is_root = os.geteuid() == 0
    usable = sys.platform == "linux" and os.access(_DEVICE, os.R_OK | os.W_OK)
    return usable and (is_root or shutil.which("fusermount3") is not None)


def mount(point: Path) -> int:
    """Mount at an empty folder, and return the descriptor over which the kernel asks.

    Raises:
        SetupError: this process may not, in one sentence.
    """
    if not may_mount():
        raise SetupError(NEEDS, next_step="run it as root on a Linux machine, or install fusermount3")
    unmount(point)
    try:
        return _mount_as_root(point) if os.geteuid() == 0 else _mount_by_helper(point)
    except OSError as error:
        raise SetupError(
            f"the kernel refused to mount a file system of user space: {error}",
            next_step="run it where mounting is allowed: as root, and in a container with CAP_SYS_ADMIN and /dev/fuse",
        ) from error


def unmount(point: Path) -> None:
    """Take the mount away, whoever still uses it. Idempotent."""
    if os.geteuid() == 0:
        ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(point), _DETACH)
    elif os.path.ismount(point):
        subprocess.run(["fusermount3", "-u", "-z", "--", str(point)], check=False, capture_output=True)


def _mount_as_root(point: Path) -> int:
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,{_OPTIONS}"
    library = ctypes.CDLL(None, use_errno=True)
    result = library.mount(
        b"onceonly-power",
        os.fsencode(point),
        b"fuse.onceonly",
        ctypes.c_ulong(_NOSUID | _NODEV),
        options.encode(),
    )
    if result:
        code = ctypes.get_errno()
        os.close(device)
        raise OSError(code, os.strerror(code))
    return device


def _mount_by_helper(point: Path) -> int:
    """Let fusermount3, which is setuid, mount it, and take the descriptor that it sends over a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(ours), contextlib.closing(theirs):
        done = subprocess.run(
            ["fusermount3", "-o", "default_permissions,fsname=onceonly-power", "--", str(point)],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise OSError(done.stderr.strip())
        descriptors = array.array("i")
        _, ancillary, *_ = ours.recvmsg(1, socket.CMSG_LEN(descriptors.itemsize))
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: descriptors.itemsize])
        if not descriptors:
            raise OSError("fusermount3 sent no descriptor")
        return descriptors[0]
