"""The conformance suite itself: each test passes a good sink, and fails one that breaks what it is named after."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.conformance_doctored import BROKEN, FolderSuite

from onceonly_proof.conformance import world
from onceonly_proof.conformance.forker import Forker
from onceonly_proof.conformance.lives import Lives
from onceonly_proof.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = sorted({test.partition("[")[0] for _, test, _ in BROKEN})
TESTS = {name for name in dir(FolderSuite) if name.startswith("test_")}
PARAMETERS = ("ended", "point", "slots", "sink", "paused", "sample")


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with Forker(FolderSuite) as forker:
        yield forker


def run(suite: type[FolderSuite], test: str, forker: Forker) -> None:
    """Run one test of a suite, as pytest would with that parameter."""
    name, _, values = test.rstrip("]").partition("[")
    method = getattr(suite(), name)
    wanted = [
        each for each in method.__code__.co_varnames[: method.__code__.co_argcount] if each in PARAMETERS
    ]
    given: dict[str, Any] = dict(zip(wanted, _split(values, wanted), strict=True))
    memory = Path("/dev/shm")  # noqa: S108  made below it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        place = Path(folder)
        with World(suite(), place / "world") as made:
            others = {"world": made, "forker": forker, "place": place, **given}
            names = method.__code__.co_varnames[1 : method.__code__.co_argcount]
            keywords = method.__code__.co_varnames[
                method.__code__.co_argcount : method.__code__.co_argcount + method.__code__.co_kwonlyargcount
            ]
            method(**{each: others[each] for each in (*names, *keywords)})


def _split(values: str, wanted: list[str]) -> list[object]:
    if len(wanted) < 2:
        return [values] if wanted else []
    first, _, second = values.partition("-")
    return [first, int(second) if second.isdigit() else second]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What a broken sink never shows is not waited for long."""
    if request.node.originalname == "test_each_broken_sink_is_named_by_its_test":
        monkeypatch.setattr(world, "PATIENCE_S", 1.0)


@pytest.mark.parametrize("test", sorted({test for _, test, _ in BROKEN}))
def test_a_good_sink_passes(forker: Forker, test: str) -> None:
    run(FolderSuite, test, forker)


@pytest.mark.parametrize(
    ("suite", "test", "saying"), BROKEN, ids=[f"{each.sink.__name__}-{test}" for each, test, _ in BROKEN]
)
def test_each_broken_sink_is_named_by_its_test(
    forker: Forker, suite: type[FolderSuite], test: str, saying: str
) -> None:
    with pytest.raises(AssertionError, match=saying):
        run(suite, test, forker)


def test_every_test_of_the_suite_has_been_seen_to_fail() -> None:
    assert set(NAMES) == TESTS


def test_a_crash_point_that_is_armed_and_does_not_fire_fails_the_test(forker: Forker, tmp_path: Path) -> None:
    with World(FolderSuite(), tmp_path) as made, Lives(made, forker) as lives:
        with pytest.raises(AssertionError, match=r"the crash point plan\.after_recommit fires"):
            lives.killed_at("plan.after_recommit")
        lives.check()
        with pytest.raises(AssertionError, match=r"the crash point slot\.during_write fires"):
            lives.killed_at("slot.during_write", 99)


def test_the_page_says_what_each_test_proves() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "prove-a-sink.md"
    said = re.findall(r"`(\w+)`", page.read_text(encoding="utf-8").partition("## What each test proves")[2])
    assert {f"test_{name}" for name in said if f"test_{name}" in TESTS} == TESTS


AUTHOR = """
from conformance_author import AtLeast
from onceonly_proof.conformance import SinkConformance

class TestAtLeast(SinkConformance):
    sink = AtLeast
    outlives_processes = False
    def options(self, folder):
        return {"store": str(folder)}
    def visible(self, options):
        return AtLeast.stores[options["store"]].visible().elements()
"""
SINK = """
from onceonly import Capabilities, Guarantee
from onceonly_proof.memory_sink import MemorySink

class AtLeast(MemorySink):
    capabilities = Capabilities(guarantees=frozenset({Guarantee.AT_LEAST_ONCE}))
"""


@pytest.mark.parametrize("mode", ["importlib", "prepend"])
def test_a_sink_that_is_at_least_once_gets_its_part_and_the_header_says_why(
    tmp_path: Path, mode: str
) -> None:
    (tmp_path / "conformance_author.py").write_text(SINK, encoding="utf-8")
    (tmp_path / "test_author.py").write_text(AUTHOR, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        f"--import-mode={mode}",
        "--rootdir=.",
    ]
    done = subprocess.run(
        [*command, "-o", "pythonpath=.", "test_author.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.search(r"conformance of AtLeast \(TestAtLeast\): 5 tests", done.stdout), done.stdout
    assert "left out: AtLeast neither prepares nor stages: it is at-least-once only" in done.stdout
    assert re.search(r"5 passed, \d+ deselected", done.stdout), done.stdout


def test_without_pytest_the_suite_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None; import onceonly_proof; import onceonly_proof.conformance"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "pip install onceonly-proof" in done.stderr
