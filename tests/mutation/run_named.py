"""Runs named tests against the package in a folder, in a process of its own: ``mutate`` starts it.

Gives a JSON text in a file: which tests failed and with what words, which passed, what could not be run at all, and
from where the package was really imported, as an editable install could get in between.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TEST_SECONDS_MAX = 180  # a defect may well be a hang; a busy machine is none


class Listener:
    """A pytest plug-in that notes how each test ended."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.passed: list[str] = []
        self.broken: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when == "call":
            self.failed[report.nodeid] = report.longreprtext
        elif report.failed:
            self.broken.append(f"{report.nodeid}, {report.when}: {report.longreprtext}")
        elif report.when == "call":
            self.passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid}: {report.longreprtext}")


def main(source: str, answer: str, *tests: str) -> None:
    """Run the tests. ``source`` is the folder in which the package ``onceonly`` lies."""
    spec = find_spec("onceonly")
    if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(source):
        raise SystemExit(f"onceonly would be imported from {spec and spec.origin}, not from {source}")
    listener = Listener()
    # One red test is enough for a defect; where several are named, each must have its turn.
    first = ["-x"] if len(tests) == 1 else []
    options = ["-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS_MAX}", *first]
    code = pytest.main([*options, *tests], plugins=[listener])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} and not listener.broken:
        listener.broken.append(f"pytest ended with {code}")
    modules = [getattr(module, "__file__", None) for name, module in sys.modules.items() if _is_ours(name)]
    told = {
        "failed": listener.failed,
        "passed": listener.passed,
        "broken": listener.broken,
        "elsewhere": [file for file in modules if file and not Path(file).is_relative_to(source)],
    }
    Path(answer).write_text(json.dumps(told), encoding="utf-8")


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == "onceonly"


if __name__ == "__main__":
    main(*sys.argv[1:])
