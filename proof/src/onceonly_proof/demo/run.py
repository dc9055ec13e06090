"""The whole demo: a broker, the feed, the job under kills, the audit, the report."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.jars.locked import ensure_jars
from onceonly_proof.demo import data, picture
from onceonly_proof.demo.audit import audit
from onceonly_proof.demo.follow import count_epochs, count_transactions, query_ids
from onceonly_proof.demo.job import CLEAN, EVENTS, FILES, QUERIES, RESULTS
from onceonly_proof.demo.lives import Lives
from onceonly_proof.demo.report import Display, Result
from onceonly_proof.demo.watch import Watch
from onceonly_proof.embedded.feeding import feed
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from onceonly_proof.demo.options import DemoOptions


def run_demo(options: DemoOptions, console: Console) -> Result:
    """Run the demo; progress goes to ``console``. Parent process; blocks for minutes; cleans up always.

    Raises:
        DemoError: the kills asked for could not be done, or the job hung.
        OnceonlyError: the job failed by itself, with the error that it gave; or the machine lacks something.
    """
    started = time.monotonic()
    rows = data.read_flights(options.events)
    late = data.checked(rows)
    with _folder(options.keep) as folder, _events_to(folder / "events"):
        ensure_jars(console)
        with _broker(folder / "kafka", keep=options.keep is not None) as kafka:
            for topic, partitions in ((EVENTS, data.PARTITIONS), (CLEAN, 2), (RESULTS, 2)):
                kafka.create_topic(topic, partitions=partitions)
            servers = kafka.bootstrap_servers
            with (
                Display(
                    console, events=options.events, epochs=2 * options.epochs, kills=options.kills
                ) as display,
                Watch(servers, CLEAN) as watch,
                Watch(servers, RESULTS),
            ):
                feed(servers, EVENTS, data.placed(rows), on_progress=display.fed)
                run = Lives(options, folder, servers, display, watch, started)
                run.to_the_end()
            found = audit(servers, rows, clean=CLEAN, results=RESULTS, files=folder / FILES)
        lines = run.lines + run.log.fresh()
        result = Result(
            guarantee=options.guarantee,
            seed=options.seed,
            audit=found,
            kills=run.kills,
            epochs=count_epochs(folder / "checkpoints", QUERIES),
            transactions=count_transactions(lines),
            late=late,
            seconds=time.monotonic() - started,
            failures=run.failures,
            picture=options.picture,
            kept=options.keep,
        )
        if options.picture is not None:
            names = query_ids(folder / "checkpoints", QUERIES)
            picture.write(options.picture, lines, names=names, result=result)
        if options.keep is not None:
            (folder / "result.json").write_text(json.dumps(result.to_json(), indent=2), encoding="utf-8")
    return result


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Return the demo's folder: the one to keep, or a temporary one that is removed in the end."""
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix="onceonly-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    if keep.exists() and any(keep.iterdir()):
        raise ConfigurationError(f"--keep {keep}: the folder is not empty", next_step="name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


@contextlib.contextmanager
def _broker(folder: Path, *, keep: bool) -> Iterator[EmbeddedKafka]:
    """Return a broker; only where its data are kept does it shut down in order."""
    with EmbeddedKafka(folder) as kafka:
        try:
            yield kafka
        finally:
            if not keep:
                kafka.kill()


@contextlib.contextmanager
def _events_to(folder: Path) -> Iterator[None]:
    """Let this process and its children write the event log."""
    folder.mkdir()
    before = os.environ.get("ONCEONLY_EVENTS")
    os.environ["ONCEONLY_EVENTS"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ONCEONLY_EVENTS"]
        else:
            os.environ["ONCEONLY_EVENTS"] = before
