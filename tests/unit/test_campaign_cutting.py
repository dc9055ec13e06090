"""A proxy that cuts the connection of a commit once it is carried out, before its answer is heard."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from onceonly_proof.campaign.cutting import CuttingProxy
from onceonly_proof.embedded.lines import EmbeddedLines
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Server:
    """Answers each line with itself, and keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while data := client.recv(1000):
                self.told.append(data)
                client.sendall(data)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.listener.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server.port, b"COMMIT")
    yield proxy
    proxy.close()


def connect(proxy: CuttingProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60)


def say(client: socket.socket, word: bytes) -> bytes:
    """Say a word; return what is heard, nothing where the connection is cut."""
    try:
        client.sendall(word)
        return client.recv(1000)
    except ConnectionError:
        return b""


def test_until_it_is_armed_all_is_passed_on(proxy: CuttingProxy) -> None:
    with connect(proxy) as client:
        assert say(client, b"COMMIT") == b"COMMIT"
    assert proxy.cut_at is None


def test_the_next_commit_is_carried_out_and_its_answer_is_lost(server: Server, proxy: CuttingProxy) -> None:
    with connect(proxy) as client, connect(proxy) as other:
        assert say(other, b"SELECT") == b"SELECT"
        proxy.cut_next()
        assert say(client, b"SELECT") == b"SELECT"
        assert proxy.cut_at is None
        assert say(client, b"; COMMIT") == b""
        assert proxy.cut_at is not None
        assert server.told[-1] == b"; COMMIT"
        assert say(other, b"COMMIT") == b"COMMIT"  # one is cut, and no more
    with connect(proxy) as again:
        assert say(again, b"COMMIT") == b"COMMIT"


def test_what_is_spared_is_not_cut(proxy: CuttingProxy) -> None:
    proxy.cut_next()
    proxy.spare()
    with connect(proxy) as client:
        assert say(client, b"COMMIT") == b"COMMIT"
    assert proxy.cut_at is None


def test_who_has_said_all_still_hears_what_the_server_says_then(tmp_path: Path) -> None:
    with EmbeddedLines(tmp_path) as lines:
        proxy = CuttingProxy(lines.port, b"{")
        with connect(proxy) as client:
            client.sendall(b"one\ntwo\nhal")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1000) == b"read\n"
            assert client.recv(1000) == b""
        assert lines.kept() == [b"one", b"two"]
        proxy.cut_next()
        with connect(proxy) as client:
            client.sendall(b"{3}\n")
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                assert client.recv(1000) == b""  # it was read, and the answer is lost
        lines.kill()
        lines.start()
        assert lines.kept() == [b"one", b"two", b"{3}"]
        proxy.close()


def test_a_server_that_is_down_is_down_behind_the_proxy(server: Server, proxy: CuttingProxy) -> None:
    with connect(proxy) as client:
        assert say(client, b"SELECT") == b"SELECT"
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    with connect(proxy) as client:
        assert say(client, b"SELECT") == b""


def test_who_is_connected_hears_of_the_end_and_nobody_comes_any_more(proxy: CuttingProxy) -> None:
    with connect(proxy) as client:
        assert say(client, b"SELECT") == b"SELECT"
        proxy.close()
        assert until(lambda: say(client, b"SELECT") == b"", 60)
    with pytest.raises(OSError, match=r"refused|closed|Bad file"):
        connect(proxy)
