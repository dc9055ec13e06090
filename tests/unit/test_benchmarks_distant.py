"""Epochs on a distant store: what is counted and drawn, and that the way there takes as long as it is said to."""

from __future__ import annotations

import io
import socket
import threading
import time

from rich.console import Console

from benchmarks import distant
from benchmarks.distant import Epochs, Slowed
from benchmarks.values import ONCEONLY_EO, SPARK_TUNED


def test_epochs_without_rows_and_the_first_ones_are_not_counted() -> None:
    progress = [{"rows": number % 2, "triggerExecution": number} for number in range(20)]
    assert distant.counted(progress) == [11.0, 13.0, 15.0, 17.0, 19.0]


def test_a_line_says_how_much_longer_an_epoch_takes_than_by_sparks_own_sink() -> None:
    found = [
        Epochs(contender=contender, delay_ms=20, epochs=9, median_ms=took, worst_ms=999.0)
        for contender, took in ((SPARK_TUNED, 400.0), (ONCEONLY_EO, 512.4))
    ]
    text = io.StringIO()
    Console(file=text, width=80).print(distant.table(found))
    assert [part.strip() for part in text.getvalue().splitlines()[-2].strip("│").split("│")] == [
        "20", "400", "512", "+112",
    ]  # fmt: skip


def test_a_call_takes_the_delay_longer_and_both_ends_hear_that_it_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data.upper())

        server = threading.Thread(target=answer)
        server.start()
        with (
            Slowed(listener.getsockname()[1], 60) as slowed,
            socket.create_connection(("127.0.0.1", slowed.port)) as client,
        ):
            begun = time.monotonic()
            client.sendall(b"asked")
            assert client.recv(100) == b"ASKED"
            assert time.monotonic() - begun >= 0.06
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
            server.join(30)
            assert not server.is_alive()
