"""The campaign: round after round on one broker, until enough has crashed or the time is over."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.jars.locked import ensure_jars
from onceonly.model import Guarantee
from onceonly.settings.registry import find, load
from onceonly.words import n
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign import page, queries, result, speculating
from onceonly_proof.campaign.broker import Broker, BrokerKind
from onceonly_proof.campaign.classes import ClassArchive
from onceonly_proof.campaign.display import Display
from onceonly_proof.campaign.keeping import KEPT
from onceonly_proof.campaign.lives import Lives
from onceonly_proof.campaign.plan import plan_round
from onceonly_proof.campaign.points import Points
from onceonly_proof.campaign.round import run_round
from onceonly_proof.campaign.scene import Arena
from onceonly_proof.campaign.sources import SOURCES
from onceonly_proof.campaign.stores import JOURNALS, STORES, Folders
from onceonly_proof.campaign.targets import KEYED, TARGETS
from onceonly_proof.campaign.values import FOLDER
from onceonly_proof.campaign.way import JOURNALED, KAFKA, ONCE, RANGED, REPEATING, sink_of, way
from onceonly_proof.embedded.jars import checker_jar
from onceonly_proof.process import of_the_dead
from onceonly_proof.tla import formal

if TYPE_CHECKING:
    from rich.console import Console

    from onceonly_proof.campaign.result import Result
    from onceonly_proof.campaign.sources import Source
    from onceonly_proof.campaign.targets import Target

CONNECTORS = ("kafka", "files", "kafka+files")
_PREFIX = "onceonly-verify-"


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions:
    """What is asked for. ``crashes`` and ``replays`` are those of the whole report, ``minutes`` those of this call."""

    connectors: tuple[str, ...] = CONNECTORS
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    crashes: int | None = None
    replays: int | None = None
    minutes: float | None = None
    seed: int = 1
    json: Path | None = None
    html: Path | None = None
    dear: bool = True
    each: bool = False
    broker: BrokerKind = field(default_factory=BrokerKind)
    store: str = FOLDER
    """Where checkpoints are: one of ``stores.STORES``, with ``JOURNALS`` behind it if journals and ranges are, too."""
    early: bool = False
    """Whether rows by key are seen before they are decided."""
    trace: bool = False
    """Hold each round's event log against the model."""
    executors: int = 0
    """How many executors a job has in processes of their own; none for one that runs its tasks itself."""
    speculation: bool = False
    """Whether each of these has a host of its own, and Spark starts second attempts of slow tasks."""
    number: int | None = None
    """Run this round alone, again."""
    query: str = ""
    """What the queries of all rounds do; empty where it is drawn."""
    source: str = KAFKA
    """What all rounds read: Kafka, or one of ``sources.SOURCES``."""


def run_campaign(options: CampaignOptions, console: Console) -> Result:
    """Run rounds until the report holds what is asked for; it is written after each. Campaign's process.

    Blocks for minutes or hours, ends every process that it has started, and goes on where the report in ``json``
    ends. What is not clean is kept in a folder beside the report, or in a temporary one, and named.

    Raises:
        SetupError: the machine lacks something.
        ConfigurationError: the report is none, or of a newer version.
    """
    done = _report(options)
    if options.number is options.crashes is options.replays is options.minutes is None:
        raise ConfigurationError(
            "nothing is said of how long", next_step="give --crashes, --replays or --minutes"
        )
    _require_possible(options)
    if options.trace:
        _require_model(options, console)
    ends = monotonic() + 60 * options.minutes if options.minutes else None
    if _is_enough(options, done):
        return done
    ensure_jars(console)
    with ExitStack() as close:
        _tidy_after_the_dead()
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        kept: list[Path] = []
        close.callback(host.tidy, folder, kept)
        kafka = close.enter_context(Broker(folder / "kafka", options.broker))
        close.callback(kafka.kill)
        store = STORES[options.store.removesuffix(JOURNALS)](folder / "store")
        close.callback(store.close)
        names = {sink for connector in options.connectors for sink in connector.split("+")}
        targets: dict[str, Target] = {}
        makers = {**TARGETS, **store.targets()}
        for name in sorted(names & makers.keys()):
            targets[name] = makers[name](folder / name)
            close.callback(targets[name].close)
        source: Source | None = None
        if options.source != KAFKA:
            source = SOURCES[options.source](folder / "source")
            close.callback(source.close)
        points = Points(folder / "points")
        lives = Lives(
            folder / "lives",
            points.env,
            ClassArchive.of(str(done.machine["java"])),
            conf=store.conf,
            executors=options.executors,
            speculation=options.speculation,
        )
        close.callback(lives.close)
        display = close.enter_context(Display(console, options.crashes or 0, crashes=done.crashes))
        arena = Arena(
            folder,
            kafka,
            points,
            lives,
            display,
            commit=host.commit(),
            broker=str(options.broker),
            store=store,
            store_kind=options.store,
            journals=store if options.store.endswith(JOURNALS) else Folders(),
            targets=targets,
            source=source,
            source_kind=options.source,
            visible="early" if options.early else "",
            executors=options.executors,
            speculation=options.speculation,
            trace=options.trace,
            kept=kept,
        )
        where = "" if options.store == FOLDER else f", checkpoints on {options.store}"
        where += "" if source is None else f", reading {options.source}"
        display.say(f"seed {options.seed}, broker {options.broker}{where}; work in {folder}")
        if options.number is not None:
            return _one_more(arena, options, done, options.number)
        while not _is_enough(options, done) and (ends is None or monotonic() < ends):
            done = _one_more(arena, options, done, result.next_number(done, options.seed))
    return done


def _one_more(arena: Arena, options: CampaignOptions, done: Result, number: int) -> Result:
    connector = options.connectors[(number - 1) % len(options.connectors)]
    plan = plan_round(
        options.seed,
        number,
        connector,
        guarantee=options.guarantee,
        dear=options.dear,
        each=options.each,
        query=options.query,
        served=options.store != FOLDER,
        dies=arena.store.dies,
        source=options.source,
        executors=options.executors > 0,
        speculation=options.speculation,
        early=options.early,
    )
    name = way(options.source, connector)
    arena.display.begin(f"round {number}: {name}, {options.guarantee.value}, {plan.query}")
    found, kept = run_round(arena, plan, options.guarantee, crashes_max=_crashes_max(options, done))
    done = result.add(done, found)
    arena.display.crashes, arena.display.crashes_now = done.crashes, 0
    arena.display.anomalies = sum(done.anomalies.values())
    arena.display.say(
        f"round {number}, {name}, {plan.query}: {found.verdict}; {n(found.crashes, 'crash')} by "
        f"{n(sum(found.faults.values()), 'fault')}, {n(found.rows, 'row')} in {n(found.epochs, 'epoch')}, "
        f"{found.seconds:.0f} s, {n(found.replays, 'replay')}"
        + (f", {found.never_taken} never in the journal" if found.never_taken else "")
        + (f", {found.came_again} again in the journal" if found.came_again else "")
        + (f", {found.late} too late for their window" if found.late else "")
        + "".join(
            f", {sink} answered {looks:,} of {n(found.asked[sink], 'look')}"
            for sink, looks in found.looks.items()
        )
        + (f", {n(found.second_attempts, 'second attempt')}" if found.speculation else "")
        + (f"; kept in {kept}" if kept else "")
    )
    for text in (*found.doubts, *found.examples):
        arena.display.say(f"  {text}")
    _write(options, done)
    return done


def _require_possible(options: CampaignOptions) -> None:
    """See that all sinks can do what their queries are to do. Raises ``ConfigurationError``."""
    if options.speculation and options.executors < speculating.HOSTS_MIN:
        raise ConfigurationError(
            "Spark starts no second attempt of a task on the host of the first",
            next_step=f"add --executors {speculating.HOSTS_MIN}, each of which has a host of its own then",
        )
    if options.store.endswith(JOURNALS) and options.source not in JOURNALED | RANGED:
        raise ConfigurationError(
            f"{options.source} is read without a journal and without ranges, so that none can be on a store",
            next_step=f"name another --source, or leave out {JOURNALS}",
        )
    for connector in options.connectors:
        for name in connector.split("+"):
            offered = load(find(sink_of(name))[1]).capabilities.guarantees
            if options.guarantee not in offered:
                raise ConfigurationError(
                    f"the sink {name} does not offer {options.guarantee.value}",
                    next_step="add --guarantee " + " or ".join(sorted(offered)),
                )
        _require_countable(options, connector)
        if options.query and not queries.is_possible(options.query, connector, options.source):
            raise ConfigurationError(
                f"{connector} refuses none of a campaign's rows, so that there are no {options.query}"
                if options.query == queries.LETTERS
                else f"rows of {options.source} may come again, and nobody knows what a {options.query} is to count",
                next_step="name another --sink, --source or --query",
            )
        if options.early and not KEYED.issuperset(connector.split("+")):
            raise ConfigurationError(
                f"rows of {connector} cannot be shown early: only those of keyed stores can",
                next_step=f"name another --sink ({', '.join(sorted(KEYED))}), or leave out --visible",
            )


def _require_countable(options: CampaignOptions, connector: str) -> None:
    """See that somebody can count what a source beside Kafka gives to keyed stores. Raises ``ConfigurationError``."""
    sinks = set(connector.split("+"))
    if options.source == KAFKA or not sinks & KEYED:
        return
    if options.source in REPEATING or (options.early and sinks & ONCE):
        raise ConfigurationError(
            f"rows of {options.source} may come again, and {connector} would show each once, or refuse them",
            next_step="name another --source or --sink",
        )
    if sinks <= KEYED:
        raise ConfigurationError(
            f"nobody can count how much of {options.source} {connector} has, as its rows take each other's place",
            next_step=f"put a sink beside it whose rows stay: --sink files+{connector}",
        )


def _require_model(options: CampaignOptions, console: Console) -> None:
    """See before the first round that its trace can be judged. Raises ``ConfigurationError``, ``SetupError``."""
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        raise ConfigurationError(
            f"the model is of exactly-once, not of {options.guarantee.value}", next_step="leave out --trace"
        )
    formal()
    checker_jar(console)


def _report(options: CampaignOptions) -> Result:
    if options.json is not None and options.json.exists():
        found = result.read(options.json)
        return result.fold(found.rounds, seed=options.seed, machine=host.machine(), versions=host.versions())
    return result.fold([], seed=options.seed, machine=host.machine(), versions=host.versions())


def _is_enough(options: CampaignOptions, done: Result) -> bool:
    asked = [
        count >= wanted
        for wanted, count in ((options.crashes, done.crashes), (options.replays, _replays(done)))
        if wanted is not None
    ]
    return bool(asked) and all(asked)


def _crashes_max(options: CampaignOptions, done: Result) -> int | None:
    """Return after how many crashes the next round ends; None for when its plan does, as while replays are wanted."""
    if options.crashes is None or _replays(done) < (options.replays or 0):
        return None
    return options.crashes - done.crashes


def _replays(done: Result) -> int:
    return sum(each.replays for each in done.rounds)


def _write(options: CampaignOptions, done: Result) -> None:
    if options.json is not None:
        result.write(options.json, done)
    if options.html is not None:
        page.write(options.html, done)


def _tidy_after_the_dead() -> None:
    """Remove what campaigns that were killed have left; the rounds that they had kept stay."""
    for folder in of_the_dead(Path(tempfile.gettempdir()), _PREFIX):
        with suppress(OSError):  # another user's, or another campaign is just doing the same
            host.tidy(folder, [path.parent for path in folder.glob(f"round-*/{KEPT}")])
