"""The textbook as one HTML file that needs nothing else: pictures step by step. Pure, but for the script beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.view import style
from onceonly.view.markup import Markup, join, tag
from onceonly.view.page import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly_proof.textbook.pictures.frames import Frame, Picture

_SCRIPT: Final = Path(__file__).with_name("textbook.js")
_CSS: Final = (
    ".oo-page{max-width:920px}.oo-page ol.tb{list-style:none;margin:0;padding:0}.oo-page ol.tb li[hidden]{display:none}"
    ".tb figure{margin:0 0 18px}.tb h3{margin:14px 0 2px}.tb p{margin:0 0 8px;max-width:70ch}"
    ".tb-bar{display:flex;flex-wrap:wrap;gap:6px;margin:10px 0}"
    ".tb-bar button{font:inherit;font-size:13px;min-height:28px;padding:2px 10px;border:1px solid var(--oo-dim);"
    "border-radius:4px;background:var(--oo-card);color:var(--oo-ink);cursor:pointer}"
    ".tb-bar button[aria-pressed=true]{background:var(--oo-ink);color:var(--oo-page);font-weight:600}"
    ".tb-bar button:disabled{color:var(--oo-dim);cursor:default}"
    ".tb-bar button:focus-visible{outline:3px solid var(--oo-link);outline-offset:1px}"
    "@media print{.tb-bar{display:none}.oo-page ol.tb li[hidden]{display:list-item}"
    ".oo-page ol.tb li{break-inside:avoid}}"
)


def page(pictures: Sequence[Picture]) -> str:
    """Return the whole file."""
    contents = tag("nav", tag("ol", [
        tag("li", tag("a", each.title, href=f"#{each.name}")) for each in pictures
    ]), aria_label="Pictures")  # fmt: skip
    head = tag(
        "header",
        tag("h1", "Exactly-once, in eight pictures"),
        tag(
            "p",
            "Each picture is drawn from a run that took place and was recorded: real Spark, a real broker, SIGKILL. "
            "Buttons and the arrow keys lead from step to step.",
        ),
        contents,
    )
    body = join(head, *(_picture(each) for each in pictures))
    script = _SCRIPT.read_text(encoding="utf-8")
    return whole("onceonly: the textbook", body, css=f"{style.PAGE}{_CSS}", script=script)


def _picture(each: Picture) -> Markup:
    frames = [_frame(each, number, frame) for number, frame in enumerate(each.frames, 1)]
    return tag(
        "section",
        tag("h2", each.title, id_=f"{each.name}-title"),
        tag("p", each.told),
        tag("ol", frames, class_="tb"),
        tag("p", each.source, class_="oo-note"),
        id_=each.name,
        data_steps=str(len(frames)),
        aria_labelledby=f"{each.name}-title",
    )


def _frame(picture: Picture, number: int, frame: Frame) -> Markup:
    return tag(
        "li",
        tag("h3", f"{number}. {frame.name}"),
        tag("p", frame.told),
        tag(
            "div",
            tag("figure", frame.svg()),
            class_="oo-scroll",
            tabindex="0",
            role="region",
            aria_label=f"{picture.title}, {frame.name}",
        ),
        id_=f"{picture.name}-{number}",
        data_name=frame.name,
    )
