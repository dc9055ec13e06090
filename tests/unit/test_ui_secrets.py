"""No page, event, report, export, notebook or JSON shows a secret, wherever the user or a client has put it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from rich.console import Console
from tests.unit import ui_bench
from tests.unit.operator_bench import QUERY, QueryCoordinator, run
from tests.unit.test_ui_pages import PAGES

import onceonly
from onceonly import events
from onceonly.errors import UnavailableError
from onceonly.log.actions import Action, ActionFiles
from onceonly.operations.find import open_checkpoint
from onceonly.settings.query import SinkSettings
from onceonly.settings.registry import BUILT_IN, load, use_of
from onceonly.ui import watcher
from onceonly.ui.watcher import Watcher
from onceonly.view import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceonly.model import SinkUse

CANARY: Final = "hunter2-canary"
GIVEN: Final = {
    "url": f"postgresql://bob:{CANARY}@db/bank",
    "kafka.sasl.jaas.config": f'org.x.PlainLoginModule required username="bob" password="{CANARY}";',
    "path": f"s3a://key:{CANARY}@bucket/table",
    "fs.s3a.secret.key": CANARY,
}
"""What people give beside the options that are secret."""
SAID: Final = f"ConnectionError: no answer of https://bob:{CANARY}@db:9200/_bulk (sasl.password='{CANARY}')"


def use(name: str) -> SinkUse:
    """Give a sink a secret wherever one can be, and return what the log would have of its options."""
    sink = BUILT_IN[name]
    secret = {each.name: CANARY for each in load(sink).declared if each.secret}
    return use_of(SinkSettings(name=name, options={**GIVEN, **secret}), sink)


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    """A checkpoint with an epoch in doubt, where clients and people have left texts with a secret in them."""
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0)
    query.set_barrier(1)
    query.claim(1, reason=SAID)
    link = query.link(1, 1, votes=[query.vote(1)])
    query.log.put_link(replace(link, uses={**link.uses, **{name: use(name) for name in BUILT_IN}}))
    ActionFiles(open_checkpoint(query.path).store).put(
        Action(command="abort", epoch=0, who="me", stamp=events.stamp(), because=SAID, before="open")
    )
    return query


def hold_none(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        assert text, name
        assert CANARY not in text, name


def test_no_option_of_a_sink_brings_a_secret_into_the_log() -> None:
    hold_none({name: repr(use(name)) for name in BUILT_IN})


def test_no_page_and_no_event_shows_a_secret(query: QueryCoordinator) -> None:
    with ui_bench.serve([open_checkpoint(query.path)] * 2) as page:
        texts = {path: page.get(path).text for path in (*PAGES, f"/{QUERY}/epoch/0", "/")}
        with page.following(f"/{QUERY}/events?after=0.receipt") as stream:
            texts["events"] = next(stream)["data"]
    hold_none(texts)
    assert "ABORT: ConnectionError: no answer of https://[redacted]@db:9200" in texts["events"]
    assert "no answer of https://[redacted]@db:9200" in texts[f"/{QUERY}/epoch/1"]


def test_why_a_checkpoint_cannot_be_read_is_shown_without_a_secret(
    query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object) -> None:
        raise UnavailableError(SAID, next_step=SAID)

    monkeypatch.setattr(watcher, "EVERY_S", 0.0)
    with ui_bench.serve([open_checkpoint(query.path)] * 2) as page:
        page.get(f"/{QUERY}/now")  # the second one was never seen
        monkeypatch.setattr(Watcher, "_look", away)
        texts = {path: page.get(path).text for path in ("/", f"/{QUERY}/now", f"/{QUERY}-2/now")}
        for key in (QUERY, f"{QUERY}-2"):
            with page.following(f"/{key}/events") as stream:
                texts[f"events of {key}"] = next(stream)["data"]
    hold_none(texts)
    assert all("no answer of https://[redacted]@db" in text for text in texts.values())


def test_no_report_export_notebook_terminal_or_json_shows_a_secret(
    query: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_EVENTS", str(tmp_path / "events"))
    for kind in ("handle.committed", "lag.failed"):
        events.record(kind, actor="committer", query=QUERY, epoch=1, sink="box", reason=SAID, message=SAID)
    files = {name: tmp_path / name for name in ("run.html", "perfetto", "shiviz", "shiviz-of-the-log")}
    arguments = ("report", query.path, "--export", "perfetto", files["perfetto"])
    assert run(*arguments, "--events", tmp_path / "events", "--export", "shiviz", files["shiviz"]).returncode
    run("report", query.path, "--out", files["run.html"], "--export", "shiviz", files["shiviz-of-the-log"])
    texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    assert (
        "no answer of https://[redacted]@db"
        in json.loads(texts["perfetto"])["traceEvents"][-1]["args"]["reason"]
    )
    looked = onceonly.look(query.path)
    texts |= {"notebook": looked._repr_html_(), "words": str(looked), "epoch": looked.epoch(1)._repr_html_()}
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(terminal.screen(looked.view))
    texts["watch"] = console.export_text()
    for command in (
        ("checkpoints", "list"), ("checkpoints", "show", "chk-1"), ("transactions", "list", "--all"),
        ("transactions", "explain", "t1-0"), ("metrics", "show"),
    ):  # fmt: skip
        for form in ([], ["--json"]):
            texts[f"{command} {form}"] = run(*command, query.path, *form).stdout
    hold_none(texts)
