"""The process that serves a power-loss file system: ``python -m onceonly_proof.power.server FOLDER``.

It is told what to do by lines of JSON on its standard input, and answers each by one; where the input ends, it unmounts
and ends, so that nothing is left behind of whoever is killed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

from onceonly_proof.power import recording
from onceonly_proof.power.fuse import BUFFER, RefusedError, Requests
from onceonly_proof.power.mounting import mount, unmount
from onceonly_proof.power.tree import Keep, Op, Tree, cut
from onceonly_proof.process import kill_session

_GONE = frozenset({errno.ENODEV, errno.ECONNABORTED})
# A request was interrupted, or the reader was woken for nothing.
_AGAIN = frozenset({errno.ENOENT, errno.EINTR, errno.EAGAIN})


class Server:
    """Serves one mount, and the commands about it. One thread."""

    def __init__(self, point: Path) -> None:
        self._point = point
        self._requests = Requests(Tree(), self._before)
        self._device = mount(point)
        os.set_blocking(self._device, False)
        self._strike: tuple[int, int] | None = None
        self._is_off = False
        self._rest = b""

    def run(self) -> None:
        """Serve until the input ends or the mount is gone."""
        try:
            while self._turn():
                pass
        finally:
            unmount(self._point)

    def _turn(self) -> bool:
        ready, _, _ = select.select([self._device, 0], [], [])
        if self._device in ready and not self._serve():
            return False
        return 0 not in ready or self._listen()

    def _serve(self) -> bool:
        try:
            request = os.read(self._device, BUFFER)
        except OSError as error:
            if error.errno in _GONE:
                return False
            if error.errno in _AGAIN:
                return True
            raise
        reply = self._requests.answer(request)
        if reply is not None:
            # Who asked may have been killed meanwhile.
            with contextlib.suppress(OSError):
                os.write(self._device, reply)
        return True

    def _before(self, op: Op) -> None:  # noqa: ARG002  as Requests calls it
        if not self._is_off and self._strike is not None and len(self._requests.ops) >= self._strike[0]:
            self._is_off = True
            kill_session(self._strike[1])
        if self._is_off:
            raise RefusedError(errno.EIO)

    def _listen(self) -> bool:
        data = os.read(0, 1 << 16)
        if not data:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                answer = self._command(json.loads(line))
            except (OSError, ValueError, KeyError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)  # noqa: T201  its answer
        return True

    def _command(self, told: dict[str, Any]) -> dict[str, Any]:
        requests = self._requests
        match told["do"]:
            case "look":
                pass
            case "save":
                recording.save(Path(told["path"]), requests.base, requests.ops)
            case "restore":
                base, ops = recording.load(Path(told["path"]))
                self._put_in(cut(base, ops[: told["at"]], Keep(told["style"], told["seed"])))
            case "cut":
                self._put_in(cut(requests.base, requests.ops, Keep(told["style"], told["seed"])))
            case "clear":
                self._put_in(Tree())
            case "strike":
                self._strike = (told["at"], told["session"])
            case unknown:
                raise ValueError(f"no command is called {unknown}")
        return {"count": len(requests.ops), "off": self._is_off}

    def _put_in(self, tree: Tree) -> None:
        self._requests.put_in(tree)
        self._strike, self._is_off = None, False


if __name__ == "__main__":
    served = Server(Path(sys.argv[1]))
    print(json.dumps({"count": 0}), flush=True)  # noqa: T201  it is mounted
    served.run()
