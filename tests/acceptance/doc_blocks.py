"""Finds the fenced code blocks of README and docs, with the names that the pages give them.

A block is named by a comment in front of it, which no reader sees: ``<!-- block: sink -->``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
RUN = frozenset({"console", "json", "python", "sh"})
"""The languages of blocks that are run (JSON: compared with what was run)."""
SHOWN = frozenset({"mermaid", "plantuml", "text"})
"""The languages of blocks that are for the eye only; MyST's directives (`{…}`) are too."""
_NAMED = re.compile(r"<!-- block: ([\w.-]+) -->\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. ``line`` is that of its opening fence, ``name`` is empty where the page gives none."""

    page: str
    line: int
    language: str
    name: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Name README, CONTRIBUTING and every page of the docs, relative to the project's folder."""
    found = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks(page: str) -> list[Block]:
    """Return every code block of a page, in its order; an indented one has the language ``indented``."""
    found: list[Block] = []
    name = ""
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text(encoding="utf-8")):
        if token.type in {"fence", "code_block"}:
            language = token.info.split()[0] if token.info.split() else ""
            if token.type == "code_block":
                language = "indented"
            line = token.map[0] + 1 if token.map else 0
            found.append(Block(page, line, language, name, token.content))
        match = _NAMED.search(token.content) if token.type == "html_block" else None
        name = match[1] if match else ""
    return found


def extract(page: str, name: str) -> str:
    """Return the code of the block of this name, for example ``extract("docs/how-to/write-a-sink.md", "sink")``."""
    (found,) = [block for block in blocks(page) if block.name == name]
    return found.code


# --- console blocks ---------------------------------------------------------------------------------------


def transcript(code: str) -> list[tuple[str, str]]:
    """Split a console block into commands, each with the output that is shown for it. Pure.

    A command begins with ``$`` and goes on with ``>``; what follows is its output.
    """
    found: list[tuple[str, str]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            assert found, f"a console block begins with a command, not with {line!r}"
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def matches(expected: str, seen: str) -> bool:
    """Say whether an output is as shown. Pure.

    ``…`` stands for anything in a line, and alone in a line for any number of lines. How many spaces are
    between two words does not matter.
    """
    pattern = ""
    for line in expected.strip().splitlines():
        words = " ".join(line.split())
        if words == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in words.split("…")) + "\n"
    text = "".join(" ".join(line.split()) + "\n" for line in seen.strip().splitlines())
    return re.fullmatch(pattern, text) is not None
