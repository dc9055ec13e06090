"""Alert rules and the dashboard's queries on a real Prometheus: each rule fires for its fault, each panel has data."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceonly.log.history import Summary
from onceonly.model import Handle, Link, LinkKind, Vote
from onceonly.telemetry.exposition import Endpoint, Registry
from onceonly.telemetry.figures import Observed, Operator
from onceonly.telemetry.lag import Lag, Position
from onceonly.telemetry.totals import Totals
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
# What is JSON is YAML, too.
RULES = resources.files("onceonly.telemetry") / "alerts.yml"
DASHBOARD = json.loads((resources.files("onceonly.telemetry") / "dashboard.json").read_text(encoding="utf-8"))
ALERTS = dict(
    re.findall(
        r"- alert: (\w+)\n(?:(?!.*- alert).*\n)*?.*runbook_url: (\S+)", RULES.read_text(encoding="utf-8")
    )
)
"""The page of each."""
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def tool(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not here: apt-get install prometheus brings it"
    return found


def promtool(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("promtool"), *arguments], input=given, capture_output=True, text=True, check=False, timeout=60
    )


# ---------------------------------------------------------------------------------------- alert rules
FIRES = {
    "OnceonlyInDoubt": ([("onceonly_in_doubt_transactions", "0 2x9")], "5m"),
    "OnceonlyStandsStill": ([("onceonly_settled_timestamp_seconds", "0x60")], "40m"),
    "OnceonlyKeepsRestarting": ([("onceonly_run_started_timestamp_seconds", "0+60x9")], "9m"),
    "OnceonlyFallsBehind": (
        [("onceonly_lag_seconds", "700+60x60"), ("onceonly_lag_rows", "100+50x60")],
        "40m",
    ),
    "OnceonlyDeadLetters": ([("onceonly_dead_letters_total", "0x5 3x9")], "10m"),
}
"""The series that must make each alert fire, by a minute, and when it does."""
QUIET = [
    ("onceonly_in_doubt_transactions", "0x60"),
    ("onceonly_settled_timestamp_seconds", "0+60x60"),
    ("onceonly_run_started_timestamp_seconds", "0x30 1800x30"),
    ("onceonly_lag_seconds", "700-5x60"),
    ("onceonly_lag_rows", "9000-50x60"),
    ("onceonly_dead_letters_total", "5x60"),
]
"""Those of a query that is well, though it was behind and has started once."""


def series(found: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"series": f'{name}{{query="q"}}', "values": values} for name, values in found]


def promtool_tests(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    path = folder / "tests.yml"
    (folder / "alerts.yml").write_text(RULES.read_text(encoding="utf-8"), encoding="utf-8")
    path.write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": tests}), encoding="utf-8")
    return promtool("test", "rules", str(path))


def test_the_rules_are_valid_and_each_fires_for_its_fault_and_none_for_a_query_that_is_well(
    tmp_path: Path,
) -> None:
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stderr
    assert FIRES.keys() == ALERTS.keys()
    quiet = {
        "interval": "1m",
        "input_series": series(QUIET),
        "alert_rule_test": [{"eval_time": "55m", "alertname": name, "exp_alerts": []} for name in ALERTS],
    }
    done = promtool_tests(tmp_path, [quiet])
    assert done.returncode == 0, done.stderr
    for name, (given, at) in FIRES.items():
        # That it does not stay quiet is what is asked: how its text comes out is not told twice.
        silent = {
            "interval": "1m",
            "input_series": series(given),
            "alert_rule_test": [{"eval_time": at, "alertname": name, "exp_alerts": []}],
        }
        done = promtool_tests(tmp_path, [silent])
        assert done.returncode != 0, name
        assert f'alertname="{name}"' in done.stdout + done.stderr, done.stdout + done.stderr


def test_every_runbook_is_a_page() -> None:
    assert len(ALERTS) == 5
    for name, runbook in ALERTS.items():
        page, _, heading = runbook.partition("#")
        text = (ROOT / page).read_text(encoding="utf-8")
        headings = [
            line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line[:2] == "##"
        ]
        assert not heading or heading in headings, name


# ------------------------------------------------------------------------------------------ dashboard
def moving() -> list[Observed]:
    """Give what a query tells that has come a bit further with each scrape."""
    vote = Vote(
        sink="kafka", epoch=10**6, slot=0, plan="p", run="r", attempt="1", rows=5, checksum="0" * 16,
        handle=Handle(transaction="t"),
    )  # fmt: skip
    link = Link(epoch=10**6, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=(vote,))
    count = int(10 * (time.time() - STARTED))
    totals = Totals()
    for epoch in range(count):
        totals.add(
            Summary(
                epoch=epoch, kind=LinkKind.COMMIT, links=2, sinks={"kafka": (10, 2), "kafka.letters": (1, 1)},
                outcomes={"committed": 2}, seconds=0.02, aborts=epoch % 2, at=time.time(), planned_s=0.2, settled_s=0.1,
            )
        )  # fmt: skip
    lag = Lag()
    lag.report(time.time() - 60, Position(read=0, there=count))
    known = Observed(
        name="orders", now=time.time(), totals=totals, chain=(link,), limit_s=60.0, is_running=True,
        began=time.time(), starts=3, lags={"0": lag}, operators={"0": Operator(rows=7, memory_bytes=4096)},
        spark_s={"addBatch": 0.2}, savepoint_at=time.time() - 60, savepoint_every_s=3600.0,
    )  # fmt: skip
    return [known, replace(known, name="clicks")]


STARTED = time.time()


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """Run a server that scrapes an endpoint of ours each second; give its address."""
    endpoint = Endpoint(Registry(moving))
    endpoint.open("127.0.0.1", 0)
    (tmp_path / "alerts.yml").write_text(RULES.read_text(encoding="utf-8"), encoding="utf-8")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            {"job_name": "spark", "static_configs": [{"targets": [f"127.0.0.1:{endpoint.port}"]}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                tool("prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def ask(address: str, path: str, **query: str) -> Any:  # noqa: ANN401  any JSON
    try:
        url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  our server
            return json.loads(answer.read())["data"]
    except OSError:
        return None


def test_every_panel_has_data_on_a_real_server_and_no_rule_fails(prometheus: str) -> None:
    def results(expression: str) -> list[Any]:
        filled = expression.replace("$__rate_interval", "10s").replace("$query", ".*")
        data = ask(prometheus, "query", query=filled)
        return [each for each in data["result"] if each["value"][1] != "NaN"] if data else []

    missing = list(EXPRESSIONS)

    def all_there() -> bool:
        missing[:] = [expression for expression in missing if not results(expression)]
        return not missing

    assert until(all_there, 90, poll_s=1.0), missing
    for expression in EXPRESSIONS:
        if "by (query" in expression:
            assert {each["metric"]["query"] for each in results(expression)} == {"orders", "clicks"}, (
                expression
            )
    rules = ask(prometheus, "rules")["groups"][0]["rules"]
    assert {rule["name"] for rule in rules} == ALERTS.keys()
    assert until(lambda: all(r["health"] == "ok" for r in ask(prometheus, "rules")["groups"][0]["rules"]), 30)
    metrics = {name for name in ask(prometheus, "label/__name__/values") if name.startswith("onceonly_")}
    used = {name for name in metrics if any(name in expression for expression in EXPRESSIONS)}
    assert used >= {name for name in metrics if name.endswith("_total")} - {
        "onceonly_transactions_total", "onceonly_restarts_total",
    }  # fmt: skip


def test_a_scrape_passes_prometheus_own_lint() -> None:
    done = promtool("check", "metrics", given=Registry(moving).text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
