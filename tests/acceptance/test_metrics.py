"""A job's metrics, scraped while it is killed and started again; and its traces, with no collector to take them."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path

import pytest
from harness import start
from metrics_job import ROWS_PER_EPOCH

from onceonly.log.opening import look

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

JOB = str(Path(__file__).with_name("metrics_job.py"))
EVERY_S = 0.1
"""Between two scrapes: they are not to take all of the job's time."""


def scraped(folder: Path) -> dict[str, float]:
    """Scrape the job as Prometheus does; give what it says of the one query and its one sink, {} before it answers."""
    try:
        with urllib.request.urlopen((folder / "address").read_text(), timeout=10) as answer:  # noqa: S310  the job's own
            return samples(answer.read().decode())
    except OSError:
        return {}


def samples(text: str) -> dict[str, float]:
    found = re.findall(
        r'^(\w+)\{(?:outcome="committed",)?query="orders"(?:,sink="files")?\} (\S+)$', text, re.MULTILINE
    )
    return {name: float(value) for name, value in found}


def test_counters_go_on_over_a_kill_and_a_restart_and_nobody_misses_a_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
    first = start(JOB, tmp_path, str(tmp_path), "1000", failpoints="link.after_put=pause@4")
    try:
        first.wait_for("link.after_put")
        first.until(
            lambda: scraped(tmp_path).get("onceonly_epochs_total") == 3,
            "three epochs were told",
            poll_s=EVERY_S,
        )
        before = scraped(tmp_path)
    finally:
        first.kill_tree()
    assert before["onceonly_rows_total"] == 3 * ROWS_PER_EPOCH
    assert before["onceonly_pending_transactions"] == 2
    assert before["onceonly_pending_age_seconds"] > 0
    assert before["onceonly_running"] == 1
    assert before["onceonly_restarts_total"] == 0
    (tmp_path / "address").unlink()

    second = start(JOB, tmp_path, str(tmp_path), "6")
    try:
        second.until((tmp_path / "address").exists, "it serves its metrics")
        seen: list[float] = []

        def has_come_to(epochs: int) -> bool:
            seen.append(scraped(tmp_path).get("onceonly_epochs_total", 3.0))
            return seen[-1] >= epochs

        second.until(lambda: has_come_to(6), "six epochs were told", poll_s=EVERY_S)
        after = scraped(tmp_path)
        (tmp_path / "end").touch()
        assert second.wait() == 0, second.tail()
    finally:
        second.kill_tree()
    assert seen == sorted(seen)
    assert after["onceonly_rows_total"] == after["onceonly_epochs_total"] * ROWS_PER_EPOCH
    assert after["onceonly_restarts_total"] == 1
    assert after["onceonly_in_doubt_transactions"] == 0
    assert "/telemetry/" not in second.tail(1000)  # in no stack trace
    assert (
        second.tail(1000).count("does not take traces") <= 1
    )  # the library tries for a while before it says so

    # What is left for node exporter is all that was done.
    last = samples((tmp_path / "orders.prom").read_text())
    log, _ = look(str(tmp_path / "checkpoint"))
    newest = log.newest()
    assert newest is not None
    settled = newest + (log.receipt(newest) is not None)
    assert last["onceonly_epochs_total"] == settled
    assert last["onceonly_running"] == 0
    assert [path.name for path in tmp_path.glob("*.prom*")] == ["orders.prom"]
