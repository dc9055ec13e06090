"""What all tests share."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from onceonly.sinks.kafka.wire.admin import Admin

sys.path.insert(0, str(Path(__file__).parent / "integration"))  # what its tests share

from ui_browser import INSTALL, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly_proof.embedded.kafka import EmbeddedKafka
    from onceonly_proof.embedded.postgres import EmbeddedPostgres

# A busy machine is no failure, and a run on one machine must be the same on another.
settings.register_profile("everywhere", deadline=None, derandomize=True, database=None)
settings.load_profile("everywhere")

# kafka-python says many times a second that a broker is gone: a thousand lines above the failure one looks for.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


# Not every machine has a browser: without one, the one quick test that uses it is left out, and it is said.
_QUICK_WITH_BROWSER = "test_ui_one_page.py"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.name == _QUICK_WITH_BROWSER and chromium() is None else None


def pytest_report_header() -> str | None:
    return f"{_QUICK_WITH_BROWSER} is not collected: {INSTALL}" if chromium() is None else None


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """One real broker for the whole test run. Whoever stops or kills a broker starts their own."""
    from onceonly_proof.embedded.kafka import EmbeddedKafka

    # A machine that does much else takes longer than a user would wait.
    with EmbeddedKafka(ready_timeout_s=240) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """One real PostgreSQL for the whole test run. Whoever kills a server, or changes its settings, starts their own."""
    from onceonly_proof.embedded.postgres import EmbeddedPostgres

    with EmbeddedPostgres() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What killed JVMs leave lies in one folder, which ends with the tests. Its path is short, for Spark's sockets."""
    tmp_path_factory.getbasetemp()  # pytest's own are kept for who looks at a failure
    with (
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        for options in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
            patch.setenv(options, f"-Djava.io.tmpdir={folder}")
        yield


@pytest.fixture(autouse=True)
def admins_are_closed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Otherwise each goes on asking for its broker when that is gone, in a thread that all later tests pay for."""
    if request.node.get_closest_marker("integration") is None:
        yield
        return
    made = list[Admin]()
    make = Admin.__init__

    def remember(admin: Admin, options: KafkaOptions) -> None:
        make(admin, options)
        made.append(admin)

    monkeypatch.setattr(Admin, "__init__", remember)
    yield
    for admin in made:
        admin.close()
