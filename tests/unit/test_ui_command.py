"""``onceonly ui`` as it is typed: its address, its end, and how little it takes."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil
import pytest
from tests.unit.long_log import long_log
from tests.unit.operator_bench import QueryCoordinator, run
from tests.unit.ui_bench import events_of

import onceonly
from onceonly.log.presence import Presence
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EPOCHS = 100_000


MOUNTED = 'mount --bind "$0" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" && shift && exec "$@"'


@contextmanager
def ui(
    *arguments: str | Path, within: Sequence[str | Path] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command, ``within`` another one; give its process and the line that it has written."""
    process = subprocess.Popen(
        [*map(str, within), sys.executable, "-m", "onceonly", "ui", "--no-browser", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().rstrip("\n")
    finally:
        process.kill()
        process.communicate()


class Browser:
    """Keeps a cookie and follows where it is led."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.port = str(parts.hostname), parts.port
        self.cookie = self.text = ""
        self.home = self.open(f"{parts.path}?{parts.query}").rpartition("/")[0]

    def ask(self, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
        return connection, connection.getresponse()

    @contextmanager
    def events(self) -> Iterator[Iterator[dict[str, str]]]:
        """Follow the stream from now on."""
        connection, answer = self.ask(f"{self.home}/events")
        try:
            yield events_of(answer)
        finally:
            connection.close()

    def open(self, path: str) -> str:
        """Open a page; give where it led."""
        connection, answer = self.ask(path)
        self.text = answer.read().decode()
        connection.close()
        self.cookie = answer.headers.get("set-cookie", self.cookie).partition(";")[0]
        if answer.status == 303:
            return self.open(answer.headers["location"])
        assert answer.status == 200, path
        return path


def test_its_address_stands_alone_on_a_line_of_standard_output(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    with ui(tmp_path) as (process, line):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{40,}", line)
        Browser(line)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (0, "", "this page only reads; Ctrl-C ends it\n")


BROWSER = """#!{python}
import json, os, sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
file = Path(unquote(urlsplit(sys.argv[-1]).path))
modes = [each.stat().st_mode for each in (file.parent, file)]
told = {{"typed": sys.argv[1:], "file": str(file), "modes": modes, "text": file.read_text()}}
Path("{told}.part").write_text(json.dumps(told))
os.rename("{told}.part", "{told}")
"""


@contextmanager
def ui_on_a_desktop(tmp_path: Path, **env: str) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """Run the command at a terminal with a screen, where the browser writes down what it is given; say where."""
    told, program = tmp_path / "told.json", tmp_path / "browser"
    program.write_text(BROWSER.format(python=sys.executable, told=told))
    program.chmod(0o700)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "onceonly", "ui", str(tmp_path / "cp")],
        stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env={**os.environ, "DISPLAY": ":0", "BROWSER": str(program), "TMPDIR": str(tmp_path), **env},
    )  # fmt: skip
    os.close(theirs)
    try:
        with os.fdopen(ours, encoding="utf-8") as terminal:
            yield process, terminal.readline().rstrip("\n"), told
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def as_from_a_terminal() -> Iterator[None]:
    """Let what is started hear of a terminal that is closed, though these tests may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("as_from_a_terminal")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_browser_is_given_a_file_of_ones_own_and_no_token_and_it_ends_with_the_page(
    tmp_path: Path, ending: signal.Signals
) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    with ui_on_a_desktop(tmp_path) as (process, line, told):
        assert until(told.exists, seconds=20)
        given = json.loads(told.read_text())
        assert given["typed"] == [Path(given["file"]).as_uri()]
        assert line.partition("token=")[2] not in " ".join(given["typed"])
        assert [stat.S_IMODE(each) for each in given["modes"]] == [0o700, 0o600]
        [leads] = re.findall('http-equiv="refresh" content="0; url=([^"]*)"', given["text"])
        assert unescape(leads) == line
        Browser(line)
        process.send_signal(ending)
        assert process.wait(10) == (0 if ending is signal.SIGINT else 128 + signal.SIGTERM)
        assert not Path(given["file"]).parent.exists()
        assert process.stderr is not None
        assert process.stderr.read() == "this page only reads; Ctrl-C ends it\n"


@pytest.mark.parametrize(
    ("env", "words"),
    [({"BROWSER": "/no/browser", "PATH": "/no"}, "no browser was found here"), ({}, "no file for a browser")],
)
def test_where_no_browser_can_be_opened_the_address_is_enough(
    tmp_path: Path, env: dict[str, str], words: str
) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    if not env:  # a full disk
        full = tmp_path / "sitecustomize.py"
        full.write_text("import tempfile\ndef no(*a, **k): raise OSError(28, 'No space left')\n")
        full.write_text(full.read_text() + "tempfile.mkdtemp = no\n")
        env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with ui_on_a_desktop(tmp_path, **env) as (process, line, _):
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(2)]
        assert any(each.startswith(words) and each.endswith("open the address in one\n") for each in said)
        Browser(line)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_ctrl_c_ends_it_within_three_seconds_with_open_tabs(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    with ui(tmp_path) as (process, line):
        browser = Browser(line)
        tabs = [browser.ask(f"{browser.home}/events") for _ in range(4)]
        for _, answer in tabs:
            assert answer.readline()
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 3
        for connection, answer in tabs:
            assert b"event: ended" in answer.read()
            connection.close()


def test_a_hundred_thousand_epochs_open_in_two_seconds_and_little_memory(tmp_path: Path) -> None:
    """In seconds of the processor, its start included: the machine may be busy otherwise."""
    long_log(tmp_path / "cp", EPOCHS)
    began = time.monotonic()
    with ui(tmp_path / "cp") as (process, line):
        browser = Browser(line)
        opened = time.monotonic() - began
        busy = sum(psutil.Process(process.pid).cpu_times()[:2])
        for page in ("timeline", "epoch/50000", "timeline?to=50", "timeline?to=45678", "latency?to=9999"):
            browser.open(f"{browser.home}/{page}")
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:  # noqa: PTH123  a file of the kernel's
            most = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    told = f"opened in {opened:.2f} s, {busy:.2f} s of the processor; {most / 1024:.0f} MiB at most"
    sys.stdout.write(f"{told}\n")
    assert busy < 2.0, told
    assert most < 150 * 1024, told


@pytest.mark.long
def test_a_mount_that_can_only_be_read_is_enough(tmp_path: Path) -> None:
    query, mount = QueryCoordinator(tmp_path / "cp"), tmp_path / "mount"
    query.complete(0, 1)
    mount.mkdir()
    presence = Presence.hold(str(query.path))
    within = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNTED, query.path, mount)
    with ui(mount, within=within) as (_, line):
        browser = Browser(line)
        assert f"run alive (host {socket.gethostname()}, process {os.getpid()} (driver))" in browser.text
        with browser.events() as events:
            query.complete(2)
            assert next(each["id"] for each in events if each["event"] == "record") == "2.0"
    presence.close()


def test_without_its_packages_it_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    monkeypatch.delattr(onceonly, "ui", raising=False)  # so that the one of before is there again afterwards
    for name in [name for name in sys.modules if name.startswith("onceonly.ui")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = run("ui", tmp_path, "--no-browser")
    assert done.returncode == 2
    assert "onceonly ui needs the package uvicorn" in done.stderr
    assert "pip install 'onceonly[ui]'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/no/such/folder"], "there is no folder /no/such/folder"),
        ([], "Missing argument"),
        (["{}", "--prefix", "proxy"], "neither a path nor an address"),
        (["{}", "--prefix", "ftp://lab/proxy"], "neither a path nor an address"),
        (["{}", "--prefix", "https://lab.example/p?token=x"], "neither a path nor an address"),
        (["{}", "--prefix", "https://lab.example:port/p"], "neither a path nor an address"),
        (["{}", "--prefix", "https://me:word@lab.example/p"], "neither a path nor an address"),
    ],
)
def test_a_wrong_call_is_said(tmp_path: Path, arguments: list[str], words: str) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    done = run("ui", *(each.format(tmp_path) for each in arguments), "--no-browser")
    assert (done.returncode, done.stdout) == (64, "")
    assert words in done.stderr


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    QueryCoordinator(tmp_path / "cp").complete(0)
    with ui(tmp_path) as (_, line):
        port = str(urlsplit(line).port)
        done = run("ui", tmp_path, "--port", port, "--no-browser")
    assert done.returncode == 64
    assert f"port {port} of 127.0.0.1 cannot be taken" in done.stderr
