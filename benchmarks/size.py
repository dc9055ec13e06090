"""How large the house is: code lines of each distribution, words of the docs, and what one epoch walks through.

``make size`` prints it; ``--json`` gives the same as JSON. A code line is one that holds a token of Python outside
docstrings and comments. The modules of an epoch are those of which a function runs between its planning and the first
call of its sink, on the driver and in the slot, without Spark.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tempfile
import threading
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).parents[1]
PACKAGES = {"onceonly": "src/onceonly", "onceonly-proof": "proof/src/onceonly_proof"}
_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What was counted."""

    code: dict[str, int]
    """Code lines of each distribution."""
    lines: dict[str, int]
    docs: dict[str, int]
    """Words of the docs, of the README, and of all ADRs."""
    kafka: int
    """How many rooms the Kafka sink has at its top level."""
    epoch: tuple[str, ...]
    """The modules that one epoch enters before its sink, in order."""


def code_lines(text: str) -> int:
    """Return how many lines of a Python source hold code. Pure."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for child in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                # A text that stands alone documents what is above it.
                docstrings.update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docstrings)


def words(text: str) -> int:
    """Return how many words a page has. Pure."""
    return len(text.split())


def modules_of_an_epoch() -> tuple[str, ...]:
    """Run two epochs without Spark, and return the modules that the second enters before its sink is called."""
    from onceonly_proof.conformance.query import Query, Work
    from onceonly_proof.memory_sink import MemorySink

    entered: dict[str, None] = {}

    class Reached(Exception):  # noqa: N818  no error
        """The sink was called."""

    class Sink(MemorySink):
        def begin_transaction(self, context: Any) -> Any:  # noqa: ANN401  as the port says
            if context.epoch == 1:
                raise Reached
            return super().begin_transaction(context)

    class Subject:
        sink = Sink
        early = False

        def columns_given(self) -> tuple[tuple[str, str], ...]:
            return (("id", "bigint"),)

        def batch(self, rows: Any) -> Any:  # noqa: ANN401  rows of the suite's own kind
            import pyarrow as pa

            return pa.RecordBatch.from_pylist([{"id": number} for number, _ in enumerate(rows)])

    def look(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("onceonly.") and frame.f_code.co_name != "<module>":
            entered[name] = None

    with tempfile.TemporaryDirectory() as folder:
        work = Work(query="size", checkpoint=folder, options={})
        with Query(Subject(), work) as query:  # type: ignore[arg-type] # as much of a subject as is asked for
            query.run_epoch(0)
            threading.setprofile(look)
            sys.setprofile(look)
            try:
                query.slot(query.plan(1), Sink.name, 0)
            except Reached:
                pass
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return tuple(entered)


def rooms_of_kafka() -> list[str]:
    """Return the modules and folders at the top of the Kafka sink."""
    names = (path.name for path in (ROOT / "src/onceonly/sinks/kafka").iterdir())
    return sorted(name for name in names if re.fullmatch(r"[a-z]\w*(\.py)?", name))


def measure() -> Size:
    """Count everything in the source tree that this file belongs to."""
    code, lines = {}, {}
    for name, folder in PACKAGES.items():
        texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))]
        code[name] = sum(map(code_lines, texts))
        lines[name] = sum(len(text.splitlines()) for text in texts)
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts]
    adrs = (ROOT / "docs/adr").glob("*.md")
    docs = {
        "docs": sum(words(path.read_text(encoding="utf-8")) for path in pages),
        "ADRs": sum(words(path.read_text(encoding="utf-8")) for path in adrs),
        "README": words((ROOT / "README.md").read_text(encoding="utf-8")),
    }
    return Size(code=code, lines=lines, docs=docs, kafka=len(rooms_of_kafka()), epoch=modules_of_an_epoch())


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(*, as_json: bool) -> None:
    """Count code lines, words, rooms, and the modules of an epoch."""
    found = measure()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, count in found.code.items():
        table.add_row(f"code lines of {name}", f"{count:,}")
        table.add_row(f"  of all its {found.lines[name]:,} lines", f"{count / found.lines[name]:.0%}")
    for name, count in found.docs.items():
        table.add_row(f"words of the {name}", f"{count:,}")
    table.add_row("rooms of the Kafka sink", f"{found.kafka}")
    table.add_row("modules of an epoch before its sink", f"{len(found.epoch)}")
    console = Console()
    console.print(table)
    console.print("\n".join(found.epoch))


if __name__ == "__main__":
    main()
