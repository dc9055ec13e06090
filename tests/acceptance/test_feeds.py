"""Feeds with a journal under real Spark, while driver, receiver and server are killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import feed_job
import pytest
from harness import Run, start

from onceonly import failpoints
from onceonly_proof.embedded.feeds import EmbeddedFeed
from onceonly_proof.embedded.s3 import EmbeddedS3
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

SMALL = {"segmentBytes": "1k", "maxRowsPerTrigger": "100"}
"""So that each life has epochs to be killed in, though the feed has said all."""
EXACTLY = {"id": "id", "resume": "header:Last-Event-ID"}


class Stage:
    """A job, its target and its journal. ``hadoop`` tells how stores are reached."""

    def __init__(
        self, folder: Path, feed: str, options: dict[str, str], hadoop: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.feed = feed
        self.hadoop = hadoop or {}
        self.options = {"journal": str(folder / "journal"), "linger": "10 ms", **options}

    def start(self, count: int, armed: str = "") -> Run:
        """Start a life of the job."""
        told = [self.feed, str(self.folder), str(count), json.dumps(self.options), json.dumps(self.hadoop)]
        return start(feed_job.__file__, self.folder, *told, failpoints=armed)

    def end(self, count: int) -> list[str]:
        """Run to the end, and give what is visible."""
        run = self.start(count)
        try:
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        return self.values()

    def values(self) -> list[str]:
        """Return the values that a reader sees."""
        return [
            json.loads(line)["value"]
            for path in feed_job.visible(self.folder)
            for line in path.open(encoding="utf-8")
        ]

    def killed_at(self, armed: str, point: str) -> None:
        """Run a life that is killed with all its processes as it passes a crash point."""
        run = self.start(10**9, armed)
        try:
            run.wait_for(point)
        finally:
            run.kill_tree()

    def receiver(self) -> subprocess.Popen[bytes]:
        """Start a receiver beside the job."""
        command = [sys.executable, "-m", "onceonly", "journal", "run", self.feed]
        for name, value in self.options.items():
            if name != "receiver":
                command += ["-o", f"{name}={value}"]
        return subprocess.Popen(command, cwd=self.folder)


def numbers(values: list[str]) -> Counter[int]:
    """Return how often each row is there."""
    return Counter(json.loads(value)["id"] if value.startswith("{") else int(value) for value in values)


def each_once(values: list[str], total: int) -> None:
    """See that each row is there, and once."""
    found = numbers(values)
    assert [row for row, times in found.items() if times > 1] == []
    assert sorted(found) == list(range(total))


def test_lines_over_http_are_read_exactly_once_with_a_kill_before_the_feed_is_told(tmp_path: Path) -> None:
    """The receiver's segment is durable, the decision of its epoch is not."""
    with EmbeddedFeed("http", total=400, rate=400, seed=1) as server:
        stage = Stage(tmp_path, "http", {"url": f"http://127.0.0.1:{server.port}/", **EXACTLY})
        stage.killed_at("journal.after_put=pause@3", "journal.after_put")
        each_once(stage.end(400), 400)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["http", "events"])
def test_feeds_over_http_are_read_exactly_once_while_all_are_killed(tmp_path: Path, kind: str) -> None:
    total, draw = 6000, random.Random(kind)
    options = EXACTLY if kind == "http" else {"resume": EXACTLY["resume"]}
    # First those that need new rows, then those that need epochs.
    points = [
        *failpoints.OF_JOURNALS[:2] * 2,
        *("link.before_put", "link.after_put", "slot.after_prepare") * 2,
    ]
    with EmbeddedFeed(kind, total=total, rate=300, seed=2) as server:
        stage = Stage(tmp_path, "http", {"url": f"http://127.0.0.1:{server.port}/", **options, **SMALL})
        for number, point in enumerate(points):
            stage.killed_at(f"{point}=pause@{draw.randint(1, 4)}", point)
            if number % 3 == 0:
                server.kill()
                server.start()
        each_once(stage.end(total), total)


@pytest.mark.long
def test_a_journal_in_a_bucket_is_read_exactly_once_while_all_are_killed(tmp_path: Path) -> None:
    total, draw = 1500, random.Random(5)
    points = [*failpoints.OF_JOURNALS[:2], "link.before_put", "link.after_put", "slot.after_prepare"]
    with EmbeddedS3(tmp_path / "s3") as store, EmbeddedFeed("http", total=total, rate=100, seed=5) as server:
        store.make_bucket("journals")
        options = {"url": f"http://127.0.0.1:{server.port}/", "journal": "s3a://journals/one"}
        stage = Stage(tmp_path, "http", {**options, **EXACTLY, **SMALL}, store.hadoop())
        for number, point in enumerate(points):
            stage.killed_at(f"{point}=pause@{draw.randint(1, 4)}", point)
            if number % 2 == 0:
                store.kill()
                store.start()
        each_once(stage.end(total), total)
        assert store.names("journals", "one/segments")
        assert store.names("journals", "one/folds")


@pytest.mark.long
def test_a_socket_loses_nothing_to_kills_of_the_job_while_its_receiver_lives(tmp_path: Path) -> None:
    """What is lost is what broke off: at most one line of each connection."""
    total, draw = 4000, random.Random(3)
    with EmbeddedFeed("socket", total=total, rate=150, seed=3) as server:
        options = {"host": "127.0.0.1", "port": str(server.port), "receiver": "outside", **SMALL}
        stage = Stage(tmp_path, "socket", options)
        receiver = stage.receiver()
        try:
            assert until((tmp_path / "journal" / "journal").exists, 120)
            for _ in range(4):
                stage.killed_at(f"link.after_put=pause@{draw.randint(1, 3)}", "link.after_put")
            assert until(lambda: (server.directory / "sent").read_text() == str(total), 120)
            run = stage.start(10**9)
            try:
                run.until(lambda: numbers(stage.values())[total - 1] == 1, "the last row", 400)
                (tmp_path / "stop").touch()
                assert run.wait() == 0, run.tail()
            finally:
                run.kill_tree()
        finally:
            receiver.terminate()
            assert receiver.wait(30) == 0
    found = numbers(stage.values())
    assert max(found.values()) == 1
    lost = set(range(total)) - set(found)
    # The server breaks off after 20 rows at least, with one line in its hand.
    assert len(lost) <= total / 20


@pytest.mark.long
def test_a_socket_doubles_nothing_while_job_and_receiver_are_killed(tmp_path: Path) -> None:
    total, draw = 3000, random.Random(4)
    with EmbeddedFeed("socket", total=total, rate=15, seed=4) as server:
        stage = Stage(tmp_path, "socket", {"host": "127.0.0.1", "port": str(server.port)})
        for _ in range(4):
            point = draw.choice(["journal.before_put", "journal.after_put", "link.after_put"])
            stage.killed_at(f"{point}=pause@{draw.randint(2, 5)}", point)
        run = stage.start(10**9)
        try:
            run.until(lambda: numbers(stage.values())[total - 1] == 1, "the last row", 400)
            (tmp_path / "stop").touch()
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
    found = numbers(stage.values())
    assert max(found.values()) == 1
    assert len(found) > total / 4
