"""What a campaign's daemons import before they fork outlives a fork, and is what their workers would import."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from onceonly_proof.campaign import lives, recovery_run
from onceonly_proof.campaign.classes import ClassArchive
from onceonly_proof.campaign.lives import Lives
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

WARM = Path(lives.__file__).with_name("warm")
NEEDED: dict[str, tuple[str, ...]] = runpy.run_path(str(WARM / "sitecustomize.py"))["NEEDED"]
SCRIPT = """
import os, runpy, sys
sys.orig_argv = ["python", "-m", "pyspark.daemon", {worker!r}]
runpy.run_path({path!r})
missing = [name for name in {names!r} if name not in sys.modules]
print(len(os.listdir("/proc/self/task")), missing)
"""


@pytest.mark.parametrize("worker", [*NEEDED, "pyspark.sql.worker.lookup_data_sources"])
def test_a_daemon_imports_what_its_workers_need_and_starts_no_thread(worker: str) -> None:
    names = (worker, *NEEDED.get(worker, ()))
    code = SCRIPT.format(worker=worker, path=str(WARM / "sitecustomize.py"), names=names)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout.strip() == "1 []"


def test_any_other_process_imports_nothing() -> None:
    code = f"import runpy, sys; runpy.run_path({str(WARM / 'sitecustomize.py')!r}); print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("early", [True, False])
def test_jobs_import_early_only_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, early: bool
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    given: list[Mapping[str, str]] = []
    monkeypatch.setattr(JobProcess, "start", lambda *_, env, **__: given.append(env))
    Lives(tmp_path, {"MORE": "1"}, ClassArchive(tmp_path / "none.jsa"), early=early).warm()
    (env,) = given

    assert env.get("PYTHONPATH") == (str(WARM) if early else None)
    assert env["MORE"] == "1"


class Asked(Exception):  # noqa: N818  not an error
    """Carries what the lives of a measurement were made with."""


def test_recovery_is_measured_with_jobs_as_users_start_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broker:
        """Stands in for one."""

        def __init__(self, _folder: Path) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def kill(self) -> None: ...

    def asked(*given: Any, **more: Any) -> None:  # noqa: ANN401  any argument
        raise Asked(given, more)

    monkeypatch.setattr(recovery_run, "ensure_jars", lambda: None)
    monkeypatch.setattr(recovery_run, "EmbeddedKafka", Broker)
    monkeypatch.setattr(recovery_run, "Lives", asked)
    with pytest.raises(Asked) as found:
        recovery_run.run_recovery(recovery_run.RecoveryOptions(), lambda _: None)
    (_, _, classes), more = cast("tuple[tuple[Any, ...], dict[str, Any]]", found.value.args)

    assert more == {"early": False}
    assert classes.option(Path()) == ""
