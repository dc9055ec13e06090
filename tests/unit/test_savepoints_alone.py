"""Of two commands that make a checkpoint at one place on a store, one goes on, whatever the store answers."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.unit.hostile_store import Answer, HostileStore
from tests.unit.operator_bench import QUERY, QueryCoordinator, run
from tests.unit.s3_double import BUCKET, S3Double
from tests.unit.store_bench import serving

from onceonly import savepoints
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.operations import restoring
from onceonly.operations.given import Given
from onceonly.savepoints import starting
from onceonly.savepoints.alone import Maker, alone, clear
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MARK, TO = "starting.json", f"s3a://{BUCKET}/queries/a"


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Double]:
    yield from serving(monkeypatch, tmp_path)


@pytest.mark.parametrize("answer", [Answer.HONEST, Answer.LOST, Answer.NEVER, Answer.LATE, Answer.REFUSED])
def test_whatever_the_store_answers_the_second_is_told_whose_the_place_is(answer: Answer) -> None:
    store = HostileStore([answer])
    with alone(store, None, MARK, "s3a://b/a") as require:
        with (
            pytest.raises(
                ConfigurationError, match=rf"process {os.getpid()} on .*, which began \d+ s ago"
            ) as told,
            alone(store, None, MARK, "s3a://b/a"),
        ):
            pytest.fail("both go on")
        assert "if it was killed, remove memory:/making.1.json" in told.value.next_step
        require()
    clear(store)
    assert store.files == {}


def test_a_store_that_takes_no_claim_keeps_everybody_out() -> None:
    store = HostileStore([Answer.BUSY])
    with pytest.raises(UnavailableError, match="slow down"), alone(store, None, MARK, "s3a://b/a"):
        pytest.fail("it goes on")


def test_of_eight_at_once_one_goes_on() -> None:
    store, together, over = (
        HostileStore([Answer.LATE, Answer.LOST, Answer.REFUSED]),
        threading.Barrier(8),
        threading.Barrier(8),
    )
    inside: list[int] = []

    def make(number: int) -> None:
        with ExitStack() as stack:
            together.wait()
            try:
                stack.enter_context(alone(store, None, MARK, "s3a://b/a"))
                inside.append(number)
            except ConfigurationError:
                pass
            over.wait()

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(inside) == 1


def gone() -> bytes:
    """Return the claim of a process of this machine that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    maker = Maker()
    return msgspec.json.encode(replace(maker, stamp=replace(maker.stamp, pid=int(done.stdout))))


def test_who_is_known_to_have_ended_is_gone_on_for_and_a_stranger_is_not() -> None:
    store = HostileStore()
    store.files["making.1.json"] = gone()
    with alone(store, None, MARK, "s3a://b/a") as require:
        require()
        assert sorted(store.files) == ["making.1.json", "making.2.json"]
    elsewhere = msgspec.json.encode(
        replace(msgspec.json.decode(gone(), type=Maker), room="of another machine")
    )
    store.files = {"making.1.json": elsewhere}
    with (
        pytest.raises(ConfigurationError, match="another process is making a checkpoint"),
        alone(store, None, MARK, "s3a://b/a"),
    ):
        pytest.fail("both go on")


@pytest.mark.parametrize("happens", ["its claim is removed", "another one goes on"])
def test_who_is_taken_for_gone_and_is_not_stops(happens: str) -> None:
    store = HostileStore()
    with alone(store, None, MARK, "s3a://b/a") as require:
        require()
        if happens == "its claim is removed":
            del store.files["making.1.json"]
        else:
            store.files["making.2.json"] = b"{}"
        with pytest.raises(ConfigurationError, match="this one has stopped"):
            require()


def test_one_that_was_refused_leaves_no_claim_behind() -> None:
    store = HostileStore()
    with pytest.raises(InterruptedError), alone(store, None, MARK, "s3a://b/a"):
        raise InterruptedError
    assert store.files == {}


def test_a_folder_without_locks_is_claimed_as_a_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / MARK).touch()
    store = open_store(address_of(str(tmp_path)))
    monkeypatch.setattr(fcntl, "flock", unknown)
    with (
        alone(store, tmp_path, MARK, str(tmp_path)),
        pytest.raises(ConfigurationError, match="another process is making a checkpoint"),
        alone(store, tmp_path, MARK, str(tmp_path)),
    ):
        pytest.fail("both go on")


def test_of_two_that_restore_into_one_place_on_a_store_one_does_and_takes_nothing_back_from_the_other(
    double: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0, 1)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    build, others = starting.build, []

    def while_another_does(*arguments: Any, **named: Any) -> None:  # noqa: ANN401  as they come
        others.append(run("savepoint", "restore", tmp_path / "place", "--to", TO))
        build(*arguments, **named)

    monkeypatch.setattr(starting, "build", while_another_does)
    made = restoring.restore(str(tmp_path / "place"), TO, Given())
    assert made.query == QUERY
    assert [each.returncode for each in others] == [64]
    assert (
        f"another process is making a checkpoint at {TO} at this moment: process {os.getpid()}"
        in others[0].stderr
    )
    assert not [
        name for name in open_store(address_of(TO)).tree("") if name.startswith(("making", "starting"))
    ]
