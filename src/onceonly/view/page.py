"""A report: one HTML file that needs nothing else. Pure.

Without a script, without an address to fetch anything from, and with a policy that forbids both. It stays below a size
at which a browser opens it at once: what does not fit is left out, oldest first, and is said.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from onceonly.view import style, tables
from onceonly.view.epoch import epoch as epoch_picture
from onceonly.view.markup import Child, Markup, join, tag, verbatim
from onceonly.view.multiples import multiples
from onceonly.view.story import cut
from onceonly.view.timeline import kinds, timeline
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.view.values import Epoch, View

BYTES_MAX: Final = 1_000_000
_ROOM: Final = 60_000
"""What is kept for what comes after tables and details, so that the whole stays below."""
_DRAWN_MAX: Final = 30
"""How many of the newest epochs the time line shows."""
_DETAILS_MAX: Final = 40
_LINE_MIN: Final = 100
"""How many bytes the line of an epoch has at least."""
_LISTED_MAX: Final = 10
"""How many of the newest epochs a notebook lists."""


def report(view: View, *, bytes_max: int = BYTES_MAX) -> str:
    """Return the page: the verdict, a time line, figures, what is in doubt, the epochs and the newest in detail."""
    detailed = _detailed(view)
    numbers = {each.number for each in detailed}

    def href(each: Epoch) -> str | None:
        return f"#{each.name}" if each.number in numbers else None

    top: list[Child] = [
        tag("header", tag("h1", f"Query {view.called}"), tag("p", _where(view), class_="oo-note")),
        tables.verdict(view.verdict),
        _section("Time line", *_short_time_line(view, href, bytes_max // 3)),
        _section("Figures", _figures(view)),
        _section("In doubt", tables.in_doubt(view)),
        _section("Runs", tables.happenings(view)),
    ]  # fmt: skip
    spent = _size(top) + _ROOM
    details: list[Markup] = []
    for each in detailed:
        detail = _detail(each)
        # The newest one may take more than its half of the page, but never the page.
        if spent + _size(detail) > (bytes_max // 2 if details else bytes_max):
            break
        details.append(detail)
        spent += _size(detail)
    numbers &= {each.number for each in detailed[: len(details)]}
    lines, dropped = _list(view, href, bytes_max - spent)
    said = (f"{dropped} older epochs are in the figures alone: their lines would not fit",) if dropped else ()
    bare = sum(not each.folded for each in view.epochs) - len(details)
    less = (
        tag("p", f"{n(bare, 'more epoch')} in the list above without details.", class_="oo-note")
        if bare
        else None
    )
    body = [
        *top,
        _section(
            "Epochs, newest first",
            _scroll("Epochs", lines),
            *(tag("p", f"{each}.", class_="oo-note") for each in said),
        ),
        _section("The newest epochs, and those that were not as always", *details, less),
    ]
    return whole(f"onceonly: query {view.called}", join(*body))


def whole(title: str, body: Markup, *, css: str = style.PAGE, script: str = "") -> str:
    """Return a page around its body, with a policy that lets it fetch nothing, and run nothing but ``script``."""
    policy = f"default-src 'none'; style-src {_digest(css)}; base-uri 'none'; form-action 'none'"
    if script:
        policy += f"; script-src {_digest(script)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        style.sheet(css),
    )
    code = tag("script", verbatim(script)) if script else None
    inside = tag("body", tag("main", body), code, class_="oo-page")
    return f"<!doctype html>\n{tag('html', head, inside, lang='en')}\n"


def _digest(own: str) -> str:
    """Name a style sheet or a script of a page for its policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'"


def summary(view: View) -> str:
    """Return in plain sentences how a checkpoint stands."""
    found = view.verdict
    todo = ": ".join(filter(None, (found.next_step, found.command)))
    parts = [found.stuck, found.safe, todo]
    return f"query {view.called}, run {view.run}; {found.level}: " + "; ".join(filter(None, parts))


def fragment(body: Markup) -> str:
    """Return a piece of a page that brings its style: for a notebook, which has its own page around it."""
    return tag("div", style.sheet(style.PAGE), body, class_="oo-page")


def progress(view: View) -> Markup:
    """Return a query's progress in short: how it stands, its time line, its figures, its newest epochs."""
    drawn = cut(view, _DRAWN_MAX)
    return join(
        tag("p", _where(view), class_="oo-note"),
        tables.verdict(view.verdict),
        *_time_line(drawn, lambda _: None),
        _figures(view),
        tables.epochs(list(reversed(view.epochs))[:_LISTED_MAX], caption="The newest epochs"),
    )


def detail(each: Epoch) -> Markup:
    """Return everything that is known of an epoch: its picture, where its time went, its steps, what it read."""
    return join(
        tag("p", tables.state(each), f". {each.note}." if each.note else "."),
        tag("p", f"{tables.capital(each.once)}.") if each.once else None,
        tables.phases(each),
        _scroll(each.name, epoch_picture(each)),
        _scroll(f"Steps of {each.name}", tables.steps(each)),
        _scroll(f"What each slot of {each.name} wrote", tables.slots(each)) if each.sinks else None,
        _scroll(f"Where {each.name} wrote", tables.parts(each)) if each.parts else None,
        _scroll(f"What {each.name} read", tables.ranges(each)) if any(each.ranges) else None,
    )


def _detail(each: Epoch) -> Markup:
    return tag("details", tag("summary", f"{each.name}: {each.words}"), detail(each), id_=each.name)


def _detailed(view: View) -> list[Epoch]:
    """Return the epochs that are shown in detail, newest first: what is not as always, and the newest."""
    told = [each for each in reversed(view.epochs) if not each.folded]
    odd = [each for each in told if each.in_doubt or each.aborts or each.note]
    chosen = {each.number: each for each in (*odd[:_DETAILS_MAX], *told[:_DETAILS_MAX])}
    return sorted(chosen.values(), key=lambda each: -each.number)[:_DETAILS_MAX]


def _list(view: View, href: Callable[[Epoch], str | None], room: int) -> tuple[Markup, int]:
    """Return the table of epochs, newest first, as far as there is room, and how many did not fit."""
    newest = list(reversed(view.epochs))
    count = min(len(newest), max(room, 0) // _LINE_MIN)
    while True:
        found = tables.epochs(newest[:count], href=href)
        size = _size(found)
        if size <= room or count == 0:
            return found, len(newest) - count
        count = min(count - 1, int(count * room / size))


def _time_line(drawn: View, href: Callable[[Epoch], str | None]) -> tuple[Markup, ...]:
    picture = _scroll("Time line", timeline(drawn, href=href))
    return picture, tables.legend(drawn, kinds(drawn)), tables.left_out(drawn)


def _short_time_line(view: View, href: Callable[[Epoch], str | None], bytes_max: int) -> tuple[Markup, ...]:
    """Return the time line of as many of the newest epochs as there is room for."""
    count = _DRAWN_MAX
    while True:
        found = _time_line(cut(view, count), href)
        if _size(*found) <= bytes_max or count == 1:
            return found
        count //= 2


def _figures(view: View) -> Markup:
    return tag("div", [tag("figure", each) for each in multiples(view)], class_="oo-figures")


def _scroll(name: str, picture: Markup) -> Markup:
    """Return a picture or a table that may be wider than the page; who has no mouse goes to it and moves it."""
    return tag("div", picture, class_="oo-scroll", tabindex="0", role="region", aria_label=name)


def _where(view: View) -> str:
    run = f"run {view.run}" + (f" ({view.who})" if view.who else "")
    promise = f"; {view.promise} from end to end" if view.promise else ""
    return f"{view.address}; {run}{promise}"


def _section(title: str, *children: Child) -> Markup:
    return tag("section", tag("h2", title), *children)


def _size(*children: Child) -> int:
    return len(join(*children).encode())
