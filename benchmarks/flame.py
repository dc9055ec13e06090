"""Draw a flame graph: ``python -m benchmarks.flame stacks.txt --svg picture.svg``. Seconds.

Stacks are folded, as py-spy's ``--format raw`` and FlameGraph's scripts for perf write them: functions from the
outermost inwards, with semicolons between, a blank and how many samples there are (Gregg, The Flame Graph, CACM 2016).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceonly_proof.campaign import svg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WIDTH, _SIDE, _HEAD, _FOOT, _HIGH = 1200, 12, 44, 14, 17
_CHARACTER = 6.3
# A label of fewer characters says nothing, and a frame so narrow is not seen.
_LABEL_MIN, _NARROW = 4, 0.6
# A thread that is in one of these has no processor; py-spy does not always tell. Where symbols are missing, innermost
# frames have no name, so some more are looked at.
_WAIT = re.compile(
    r"\b_*(libc_)?(epoll_p?wait|p?poll|p?select|select_\w+|read|recv|recvfrom|recvmsg|accept4?|futex|(clock_)?nanosleep)\b"
    r"|(cond|sem|cnd)_(timed|clock)?wait|futex_(abstimed_)?wait|acquire_lock|\bread_int\b"
)
_INNERMOST = 4
_PLACE = re.compile(r" \((?P<file>[^()]*?)(:\d+)?\)$")
_SHADES = 4
# py-spy's first frames, where it looks into several processes.
_PROCESS = "process "
_STYLE = """
svg { color-scheme: light dark; font: 11px ui-monospace, Menlo, Consolas, monospace; }
.page { fill: #ffffff; } text { fill: #1d2126; } .name { font: 600 15px system-ui, sans-serif; } .dim { fill: #68707a; }
.frame { stroke: #ffffff; stroke-width: 0.5; } .label { fill: #1d2126; pointer-events: none; }
.python0 { fill: #8fb4f0; } .python1 { fill: #9dbff4; } .python2 { fill: #abc9f7; } .python3 { fill: #84a9e6; }
.native0 { fill: #f0b25c; } .native1 { fill: #f3bd70; } .native2 { fill: #f6c885; } .native3 { fill: #e8a64b; }
@media (prefers-color-scheme: dark) {
.page { fill: #1b1f25; } text { fill: #e6e8eb; } .dim { fill: #97a0ab; } .frame { stroke: #1b1f25; }
}
"""


class Frame:
    """A function under its callers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples = 0
        self.inner: dict[str, Frame] = {}

    def add(self, stack: Sequence[str], samples: int) -> None:
        """Count samples of a stack that begins below this frame."""
        frame = self
        frame.samples += samples
        for name in stack:
            frame = frame.inner.setdefault(name, Frame(name))
            frame.samples += samples

    @property
    def depth(self) -> int:
        """How many frames lie upon one another, at most."""
        return 1 + max((each.depth for each in self.inner.values()), default=0)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("stacks", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--svg", "path", type=click.Path(path_type=Path, dir_okay=False), required=True)
@click.option("--title", default="Time on a processor", show_default=True)
@click.option("--top", default=12, show_default=True, help="Functions that are listed.")
def main(*, stacks: Path, path: Path, title: str, top: int) -> None:
    """Draw folded stacks, without those that wait, and list the functions in which the samples ended."""
    try:
        busy = working(read(stacks.read_text()))
    except ValueError as error:
        raise click.ClickException(f"{stacks}: {error}") from None
    if not busy:
        raise click.ClickException(f"{stacks} has no stack that works; record while the process is busy.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(busy, title))
    samples = sum(busy.values())
    for name, count in own(busy).most_common(top):
        click.echo(f"{count / samples:6.1%}  {name}")


def read(text: str) -> dict[tuple[str, ...], int]:
    """Read folded stacks, those of all processes together, without line numbers: they cut a function into many. Pure.

    Raises:
        ValueError: a line is none.
    """
    found: Counter[tuple[str, ...]] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        stack, _, samples = line.rpartition(" ")
        if not stack or not samples.isdigit():
            raise ValueError(f"line {number} is no folded stack, functions and a number: {line[:60]!r}")
        frames = [_named(frame) for frame in stack.split(";") if not frame.startswith(_PROCESS)]
        if frames:
            found[tuple(frames)] += int(samples)
    return dict(found)


def working(stacks: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    """Leave out the stacks of threads that wait. Pure."""
    return {stack: samples for stack, samples in stacks.items() if not _waits(stack)}


def own(stacks: Mapping[tuple[str, ...], int]) -> Counter[str]:
    """Count the samples that ended in each function. Pure."""
    found: Counter[str] = Counter()
    for stack, samples in stacks.items():
        found[stack[-1]] += samples
    return found


def draw(stacks: Mapping[tuple[str, ...], int], title: str) -> str:
    """Return the picture: callers below, wide is long; blue is Python, orange is native. Pure.

    Raises:
        ValueError: there is no stack.
    """
    if not stacks:
        raise ValueError(f"{title}: nothing to draw")
    root = Frame("all")
    for stack, samples in sorted(stacks.items()):
        root.add(stack, samples)
    height = _HEAD + _FOOT + root.depth * _HIGH
    places = _places(root, _SIDE, height - _FOOT - _HIGH, (_WIDTH - 2 * _SIDE) / root.samples)
    parts = "".join(_frame(*place, root.samples) for place in places)
    head = (
        f'<text class="name" x="{_SIDE}" y="26">{escape(title)}</text>'
        f'<text class="dim" x="{_WIDTH - _SIDE}" y="26" text-anchor="end">{root.samples:,} samples</text>'
    )
    return svg.picture(_WIDTH, height, title, f"{head}{parts}", _STYLE)


def _places(frame: Frame, x: float, y: float, scale: float) -> Iterator[tuple[Frame, float, float, float]]:
    """Yield each frame that can be seen, its corner and its width; ``scale`` is the width of a sample."""
    if frame.samples * scale < _NARROW:
        return
    yield frame, x, y, frame.samples * scale
    for inner in frame.inner.values():
        yield from _places(inner, x, y - _HIGH, scale)
        x += inner.samples * scale


def _frame(frame: Frame, x: float, y: float, width: float, samples: int) -> str:
    kind = "python" if ".py)" in frame.name or "(<" in frame.name or frame.name == "all" else "native"
    shade = zlib.crc32(frame.name.encode()) % _SHADES
    room = int((width - 4) / _CHARACTER)
    label = frame.name if len(frame.name) <= room else f"{frame.name[: room - 1]}…"
    told = f"{frame.name}: {frame.samples / samples:.1%}, {frame.samples:,} samples"
    text = f'<text class="label" x="{x + 2:.1f}" y="{y + 12:.1f}">{escape(label)}</text>'
    return (
        f'<g><title>{escape(told)}</title><rect class="frame {kind}{shade}" x="{x:.1f}" y="{y:.1f}" '
        f'width="{width:.1f}" height="{_HIGH - 1}" rx="1"/>{text if room >= _LABEL_MIN else ""}</g>'
    )


def _named(frame: str) -> str:
    """Leave the line out, and of a library's file all but its name; one without a name is its library's."""
    found = _PLACE.search(frame)
    if found is None:
        return frame
    file, name = found["file"], frame[: found.start()]
    name = "?" if name.startswith("0x") else name
    return f"{name} ({file if file.endswith('.py') else file.rpartition('/')[2]})"


def _waits(stack: Sequence[str]) -> bool:
    return any(_WAIT.search(frame.partition(" (")[0]) for frame in stack[-_INNERMOST:])


if __name__ == "__main__":
    main()
