"""Draw a flame graph: ``python -m benchmarks.flame stacks.txt --svg picture.svg``. Seconds.

Stacks are folded, as py-spy's ``--format raw`` and FlameGraph's scripts for perf write them: functions from the
outermost inwards, with semicolons between, a blank and how many samples there are (Gregg, The Flame Graph, CACM 2016).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceonly_proof.pages import render

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
    return render(
        "benchmarks",
        "flame.svg.jinja",
        title=title,
        width=_WIDTH,
        height=height,
        side=_SIDE,
        high=_HIGH,
        samples=root.samples,
        frames=[_frame(*place, root.samples) for place in places],
    )


def _places(frame: Frame, x: float, y: float, scale: float) -> Iterator[tuple[Frame, float, float, float]]:
    """Yield each frame that can be seen, its corner and its width; ``scale`` is the width of a sample."""
    if frame.samples * scale < _NARROW:
        return
    yield frame, x, y, frame.samples * scale
    for inner in frame.inner.values():
        yield from _places(inner, x, y - _HIGH, scale)
        x += inner.samples * scale


def _frame(frame: Frame, x: float, y: float, width: float, samples: int) -> Mapping[str, object]:
    """Return what the template shows of a frame."""
    kind = "python" if ".py)" in frame.name or "(<" in frame.name or frame.name == "all" else "native"
    room = int((width - 4) / _CHARACTER)
    label = frame.name if len(frame.name) <= room else f"{frame.name[: room - 1]}…"
    return {
        "kind": f"{kind}{zlib.crc32(frame.name.encode()) % _SHADES}",
        "x": round(x, 1),
        "y": round(y, 1),
        "width": round(width, 1),
        "label": label if room >= _LABEL_MIN else "",
        "told": f"{frame.name}: {frame.samples / samples:.1%}, {frame.samples:,} samples",
    }


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
