"""The pages: what the watcher has seen, drawn by the one renderer, in a frame of the server's own."""

from __future__ import annotations

import functools
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from onceonly.errors import OnceonlyError
from onceonly.log.dated import KEEP
from onceonly.operations import explain
from onceonly.options import without_secrets
from onceonly.ports.standing import Standing, Stands
from onceonly.ui import records
from onceonly.view import page, style, tables
from onceonly.view.markup import join, tag, text
from onceonly.view.multiples import multiples
from onceonly.view.story import view
from onceonly.view.timeline import kinds, timeline
from onceonly.view.values import Level
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.operations.checkpoint_model import CheckpointModel
    from onceonly.operations.search import Problem
    from onceonly.ui.records import Position
    from onceonly.ui.roster import Roster
    from onceonly.ui.traces import Traces
    from onceonly.ui.watcher import Watcher
    from onceonly.view.markup import Child
    from onceonly.view.values import Epoch, View

TABS: Final = (
    ("now", "Now"),
    ("timeline", "Time line"),
    ("epoch", "Epoch"),
    ("doubt", "In doubt"),
    ("latency", "Lag and latency"),
)
_TRACED: Final = frozenset({"timeline", "epoch"})
"""Those on which the event log is drawn, where there is one."""
DRAWN: Final = 60
"""How many epochs a time line has."""
MEASURED: Final = 200
"""How many epochs the figures have."""
_LISTED: Final = 20
_RECORDS_MAX: Final = 30
_EXPLAINED_MAX: Final = 50
_ORDER: Final = (Level.STUCK, Level.UNKNOWN, Level.WAITING, Level.WORKING, Level.SAFE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What every page of a checkpoint has: where its pages are, how it stands, how far the log had come.

    ``view`` has the newest epochs alone, as a page that shows more of them has a view of its own.
    """

    home: str
    view: View
    position: Position
    trouble: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The epochs of a page, both ends included, and what the links to its neighbours say; None where there is none."""

    first: int
    last: int
    older: int | None
    newer: int | None

    @classmethod
    def of(cls, known: range, to: int | None, size: int) -> Window:
        """Return the window that ends with ``to``, or with the newest epoch. Pure."""
        newest, oldest = max(known.stop - 1, known.start), known.start
        last = newest if to is None else min(max(to, oldest), newest)
        first = max(last - size + 1, oldest)
        return cls(
            first=first,
            last=last,
            older=first - 1 if first > oldest else None,
            newer=min(last + size, newest) if last < newest else None,
        )


class Pages:
    """The pages of a server: ``base`` is the path below which they are. Any thread."""

    def __init__(self, roster: Roster, *, base: str, traces: Traces) -> None:
        self._roster = roster
        self._base = base
        self._traces = traces

    def overview(self) -> str:
        """Return the list of queries, each with how it stands; those that wait for somebody stand first."""
        heads = ("query", "where", "run", "how it stands")
        # Those of a level stay in their order, so that the list does not move under a reader.
        lines = (*map(self._line, self._roster.all), *map(_unopened, self._roster.unopened))
        found = sorted(lines, key=lambda each: _ORDER.index(each[0]))
        table = tables.table(n(len(found), "query"), heads, [line for _, line in found])
        return self._fill("overview", "All queries", stream=f"{self._base}/events", table=table)

    def now(self, watcher: Watcher, runs: int | None = None) -> str:
        """Return how it stands: the verdict, the newest epochs, what has come into the log; so many ``runs``."""
        model = watcher.model() if runs is None else watcher.with_runs(runs)
        place = self._place(watcher, model)
        told = records.after(model.epochs[:_RECORDS_MAX], records.START)[: -_RECORDS_MAX - 1 : -1]
        return self._fill(
            "now", "Now", place,
            verdict=tables.verdict(place.view.verdict, is_old=bool(place.trouble)),
            epochs=tables.epochs(reversed(place.view.epochs), href=self._href(watcher), caption="The newest epochs"),
            happenings=tables.happenings(place.view, earlier=f"{place.home}/now?runs={KEEP}"),
            records=told, records_max=_RECORDS_MAX,
        )  # fmt: skip

    def timeline(self, watcher: Watcher, to: int | None) -> str:
        """Return the lanes of a window of epochs."""
        place, window = self._windowed(watcher, to, DRAWN)
        found = self._traces.added(view(watcher.window(window.first, window.last)))
        href = self._href(watcher)
        return self._fill(
            "timeline", "Time line", place, window=window, span=_span(found),
            picture=timeline(found, href=href), legend=tables.legend(found, kinds(found)),
            left_out=tables.left_out(found),
            epochs=tables.epochs(reversed(found.epochs), href=href, caption="The same as a table"),
        )  # fmt: skip

    def epoch(self, watcher: Watcher, number: int | None) -> str:
        """Return one epoch in full; the newest where none is named. Raises ``ConfigurationError``."""
        model = watcher.model()
        place = self._place(watcher, model)
        known = watcher.epochs()
        if not known:
            return self._fill("epoch", "Epoch", place, each=None)
        chosen = known[-1] if number is None else number
        found = self._traces.added(view(watcher.epoch(chosen)))
        each = found.epochs[0]
        return self._fill(
            "epoch", f"Epoch {each.name}", place, each=each, detail=page.detail(each),
            legend=tables.legend(found, {mark.what for mark in each.marks}), left_out=tables.left_out(found),
            older=chosen - 1 if chosen > known[0] else None, newer=chosen + 1 if chosen < known[-1] else None,
        )  # fmt: skip

    def doubt(self, watcher: Watcher) -> str:
        """Return the transactions that are decided and not known to be committed, each in words."""
        model = watcher.model()
        place = self._place(watcher, model)
        nobody_asked = Standing(
            stands=Stands.UNKNOWN,
            told="this page asks no target; transactions explain does",
        )
        shown = model.in_doubt[:_EXPLAINED_MAX]
        whole = {
            number: watcher.epoch(number) for number in dict.fromkeys(each.view.epoch for each, _ in shown)
        }
        explained = [
            explain.of_decided(whole[each.view.epoch], handle, nobody_asked) for each, handle in shown
        ]
        return self._fill(
            "doubt", "In doubt", place, where=shlex.quote(place.view.path),
            verdict=tables.verdict(place.view.verdict, is_old=bool(place.trouble)),
            table=tables.in_doubt(place.view, href=self._href(watcher)),
            explained=explained, more=len(model.in_doubt) - len(shown),
        )  # fmt: skip

    def latency(self, watcher: Watcher, to: int | None) -> str:
        """Return small multiples of a window of epochs."""
        place, window = self._windowed(watcher, to, MEASURED)
        found = view(watcher.reported(window.first, window.last))
        return self._fill(
            "latency", "Lag and latency", place, window=window, span=_span(found), figures=multiples(found),
            epochs=tables.epochs(reversed(found.epochs), href=self._href(watcher), caption="The same as a table"),
        )  # fmt: skip

    def failed(self, what: str, next_step: str) -> str:
        """Return a page that says what is wrong, and the next step."""
        return self._fill(
            "failed",
            "This cannot be shown",
            what=tables.capital(without_secrets(what)),
            next_step=without_secrets(next_step),
        )

    def _line(self, watcher: Watcher) -> tuple[Level, list[Child]]:
        href = f"{self._home(watcher)}/now"
        try:
            found = _short(watcher.model())
        except OnceonlyError as error:
            where = watcher.checkpoint.path
            return Level.UNKNOWN, [
                tag("a", watcher.key, href=href),
                where,
                "unknown",
                without_secrets(error.what),
            ]
        stands, trouble = found.verdict, watcher.trouble
        said = join(
            f"not new, as it cannot be read now ({without_secrets(trouble.what)}): " if trouble is not None else "",
            tag("strong", stands.level), ": ", f"{stands.stuck}; " if stands.stuck else "", stands.safe,
        )  # fmt: skip
        level = Level.UNKNOWN if trouble is not None and stands.level is not Level.STUCK else stands.level
        return level, [tag("a", found.called, href=href), found.path, found.run, said]

    def _home(self, watcher: Watcher) -> str:
        return f"{self._base}/{watcher.key}"

    def _windowed(self, watcher: Watcher, to: int | None, size: int) -> tuple[Place, Window]:
        model = watcher.model()
        place = self._place(watcher, model)
        window = Window.of(watcher.epochs(), to, size)
        return place, window

    def _place(self, watcher: Watcher, model: CheckpointModel) -> Place:
        trouble = watcher.trouble
        return Place(
            home=self._home(watcher),
            view=_short(model),
            # Of the very model that is shown: what comes after it is told by the stream.
            position=records.newest(model.epochs),
            trouble=tables.capital(without_secrets(trouble.what)) if trouble is not None else "",
            next_step=without_secrets(trouble.next_step) if trouble is not None else "",
        )

    def _href(self, watcher: Watcher) -> Callable[[Epoch], str | None]:
        home = self._home(watcher)
        return lambda each: f"{home}/epoch/{each.number}"

    def _fill(
        self, name: str, title: str, place: Place | None = None, *, stream: str = "", **values: object
    ) -> str:
        template = _templates().get_template(f"{name}.html.jinja")
        return template.render(
            base=self._base,
            several=len(self._roster.all) + len(self._roster.unopened) > 1,
            tabs=TABS,
            tab=name,
            title=title,
            place=place,
            stream=f"{place.home}/events" if place is not None else stream,
            traced=self._traces.is_there and name in _TRACED,
            **values,
        )


def _unopened(problem: Problem) -> tuple[Level, list[Child]]:
    error = problem.error
    said = join(
        without_secrets(error.what), f"; next: {without_secrets(error.next_step)}" if error.next_step else ""
    )
    return Level.UNKNOWN, ["unknown", problem.path, "unknown", said]


def _span(found: View) -> str:
    """Name the epochs that a view has."""
    names = [each.name for each in found.epochs]
    return " to ".join(dict.fromkeys((names[0], names[-1]))) if names else "no epoch yet"


def _short(model: CheckpointModel) -> View:
    """Return the view of the newest epochs: those before them would be drawn to be left out."""
    return view(replace(model, epochs=model.epochs[:_LISTED]))


@functools.cache
def _templates() -> Environment:
    """Return what fills the templates: whatever is put into one is escaped, unless the renderer has made it."""
    return Environment(
        loader=PackageLoader("onceonly.ui"),
        autoescape=True,
        # As the renderer has it: also without what would turn round the text behind it.
        finalize=lambda value: value if hasattr(value, "__html__") else text(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def sheet() -> str:
    """Return the one style sheet: the renderer's, then what the frame adds."""
    return f"{style.PAGE}\n{(Path(__file__).parent / 'static' / 'page.css').read_text(encoding='utf-8')}"
