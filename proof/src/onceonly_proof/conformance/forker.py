"""A process clean of clients and threads that forks a child for each life, so that a crash costs milliseconds.

The process of the tests is no place to fork from: its clients have threads, which do not survive a fork.
``Forker`` starts a fresh interpreter, which imports the test's module and pyarrow, and then only forks. Linux.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onceonly.errors import ConfigurationError
from onceonly.stores.opened import tell, told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from onceonly_proof.conformance.subject import Subject

LIFE_TIMEOUT_S = 120.0
_START_TIMEOUT_S = 60.0
_PR_SET_PDEATHSIG = 1
_PROGRAM = "import json, sys; given = json.loads(sys.argv[1]); sys.path[:] = given['path']; "
_PROGRAM += "from onceonly_proof.conformance import forker; forker.serve(given)"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a life ended: by which signal, with which error (its class's name and text), with which result."""

    signal: int = 0
    error: str = ""
    text: str = ""
    result: Any = None

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL

    def __str__(self) -> str:
        if self.signal:
            return f"ended by signal {self.signal}"
        return f"{self.error}: {self.text}" if self.error else "ended well"


class Child:
    """A life that has begun, in a process of its own."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(LIFE_TIMEOUT_S)
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")
        self.pid = int(self._read()["pid"])

    def wait(self) -> Ending:
        """Wait for its end. Raises ``TimeoutError`` after two minutes, and kills it."""
        answer: dict[str, Any] = {}
        try:
            while "status" not in answer:
                answer |= self._read()
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            self._lines.close()
            self._connection.close()
        status = int(answer["status"])
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return Ending(by, answer.get("error", ""), answer.get("text", ""), answer.get("result"))

    def kill(self) -> Ending:
        """End it with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise EOFError("the process that forks the lives has died")
        read: dict[str, Any] = json.loads(line)
        return read


class Forker:
    """The process that forks lives of the suites of one module. One thread; ends with the process that made it."""

    def __init__(self, suite: type[Subject]) -> None:
        self.module = suite.__module__
        self._folder = Path(tempfile.mkdtemp(prefix="onceonly-"))
        self._address = str(self._folder / "socket")
        given = {
            "path": [os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100  an empty entry is this folder
            "file": inspect.getfile(suite),
            "module": suite.__module__,
            "address": self._address,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PROGRAM, json.dumps(given)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None,
        )  # fmt: skip
        assert self._process.stdout  # noqa: S101  for the type checker
        ready, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)
        if not ready or self._process.stdout.readline() != b"ready\n":
            self.close()
            raise ConfigurationError(
                f"A fresh process could not import {suite.__module__} from {given['file']}.",
                next_step="see what it wrote to standard error; the module must not need a conftest to be imported",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and with it every life that is left."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(
        self, suite: Subject, job: str, work: Mapping[str, Any], *, env: Mapping[str, str], log: Path
    ) -> Child:
        """Begin a life: ``job`` is a function of ``onceonly_proof.conformance.jobs``."""
        name = type(suite).__qualname__
        if "<locals>" in name:
            raise ConfigurationError(
                f"The class {name} is defined inside a function: another process cannot import it.",
                next_step="define it at the top of its module",
            )
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        # Spark's processes, too, are handed what the job gave to Hadoop.
        hadoop = pickle.dumps(told()).hex()
        request = {
            "suite": name, "job": job, "work": dict(work), "env": dict(env), "log": str(log), "hadoop": hadoop,
        }  # fmt: skip
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Child(connection)


# --- in the other process -----------------------------------------------------------------------------------


def serve(given: Mapping[str, Any]) -> None:
    """Fork a child for each connection until standard input is closed. Runs in the forker's own process."""
    _die_with_parent()
    module = _load(given)
    _warm_up()
    importlib.import_module("onceonly_proof.conformance.jobs")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(given["address"])
    listener.listen()
    os.write(1, b"ready\n")
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(connection, module)
            os._exit(0)
        connection.close()


def _attend(connection: socket.socket, module: ModuleType) -> None:
    """Fork the life itself, and say how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with_parent()
    with connection.makefile("r", encoding="utf-8") as lines:
        request = json.loads(lines.readline())
    pid = os.fork()
    if pid == 0:
        _die_with_parent()
        _live(connection, module, request)
    _, status = os.waitpid(pid, 0)
    _send(connection, {"status": status})


def _live(connection: socket.socket, module: ModuleType, request: Mapping[str, Any]) -> None:
    from onceonly_proof.conformance import jobs

    _send(connection, {"pid": os.getpid()})
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request["env"])
    tell(pickle.loads(bytes.fromhex(request["hadoop"])))  # noqa: S301  of the process that made this one
    try:
        suite: Any = module
        for name in request["suite"].split("."):
            suite = getattr(suite, name)
        result = getattr(jobs, request["job"])(suite(), **request["work"])
        answer = {"result": result}
    except BaseException as error:  # noqa: BLE001  this process ends here, and the test is told why
        answer = {"error": type(error).__name__, "text": str(error)}
    _send(connection, answer)
    os._exit(0)


def _send(connection: socket.socket, answer: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _load(given: Mapping[str, Any]) -> ModuleType:
    """Import the test's module from its file, as pytest's import mode ``importlib`` does."""
    spec = importlib.util.spec_from_file_location(given["module"], given["file"])
    assert spec is not None  # noqa: S101  the file is Python: it was imported before
    assert spec.loader is not None  # noqa: S101  as above
    module = importlib.util.module_from_spec(spec)
    sys.modules[given["module"]] = module
    spec.loader.exec_module(module)
    return module


def _warm_up() -> None:
    """Import now what each life would import for itself: pyarrow imports pandas when it makes its first batch."""
    import pyarrow as pa

    pa.RecordBatch.from_pydict({"a": ["b"]}).to_pylist()
    importlib.import_module("onceonly.sinks.files")
