"""The class that authors derive theirs from: what they give, and every test."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from onceonly_proof.conformance.contract import ContractTests
from onceonly_proof.conformance.crashes import CrashTests
from onceonly_proof.conformance.front import FrontTests
from onceonly_proof.conformance.in_doubt import InDoubtTests
from onceonly_proof.conformance.leftovers import LeftoverTests
from onceonly_proof.conformance.plugin import Plugin
from onceonly_proof.conformance.weaker import WeakerTests
from onceonly_proof.conformance.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.conformance.forker import Forker


class SinkConformance(ContractTests, LeftoverTests, InDoubtTests, FrontTests, CrashTests, WeakerTests):
    """Every contract and crash test for the sink of a class derived from this one, whose name begins with ``Test``.

    Its module is imported by a second process, too, which makes an instance without arguments and calls ``batch``
    there; the other methods are called in the process of the tests.
    """

    @pytest.fixture
    def place(self) -> Iterator[Path]:
        """Return a folder in memory, where there is one: SIGKILL loses nothing of it, and fsync costs nothing."""
        memory = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            yield Path(folder)

    @pytest.fixture
    def world(self, place: Path) -> Iterator[World]:
        """One target, one query that writes to it."""
        with World(self, place) as world:
            yield world

    @pytest.fixture
    def forker(self, request: pytest.FixtureRequest) -> Forker:
        """Return the process that forks the lives of all tests of this class."""
        plugin = request.config.pluginmanager.get_plugin(Plugin.NAME)
        forker: Forker = plugin.forker(request.cls)  # type: ignore[union-attr]  # registered when tests were collected
        return forker

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Deal the samples, and let pytest's header say which tests are for this sink."""
        manager = metafunc.config.pluginmanager
        if not manager.has_plugin(Plugin.NAME):
            manager.register(Plugin(), Plugin.NAME)
        if "sample" in metafunc.fixturenames:
            metafunc.parametrize("sample", sorted(cls().samples()))
