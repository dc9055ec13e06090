"""Draws the diagrams: every ``*.puml`` beside this file, and the house, becomes an SVG beside it.

``make diagrams`` runs it. It needs Java and fonts and, once, a Maven repository for PlantUML's jar (MIT licence).
The SVGs are committed, so that GitHub and the site show them; each carries the fingerprint of its source, by
which a test sees that it was drawn from the text that is there now.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parents[1] / "pyproject.toml"
PLANTUML = "net.sourceforge.plantuml:plantuml-mit:1.2026.2"
SHA256 = "3845bf1037df6029ae1b8cb1be69f645711797035648e114b765289c3406d45d"
_MARK = "<!-- drawn from {} -->\n"
_MARKED = re.compile(r"<!-- drawn from ([0-9a-f]{64}) -->")


def sources() -> dict[str, str]:
    """Return the text of each diagram by its name, with the common style in place."""
    style = (HERE / "style.iuml").read_text(encoding="utf-8")
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.puml"))}
    texts["house"] = house(PROJECT.read_text(encoding="utf-8"))
    return {name: text.replace("!include style.iuml\n", style) for name, text in texts.items()}


def house(project: str) -> str:
    """Draw who may import whom from the contract that `make imports` enforces. Pure."""
    contracts = tomllib.loads(project)["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    lines = ["@startuml", "!include style.iuml"]
    for number, layer in enumerate(layers):
        names = "   ".join(f"**{name}**" for name in re.findall(r"\w+", layer))
        lines.append(f'rectangle "{names}" as layer{number}')
        if number:
            lines.append(f"layer{number - 1} -down-> layer{number}")
    return "\n".join([*lines, "@enduml", ""])


def fingerprint(text: str) -> str:
    """Name a source: its text, and the version of PlantUML that draws it. Pure."""
    return hashlib.sha256(f"{PLANTUML}\n{text}".encode()).hexdigest()


def drawn_from(svg: str) -> str | None:
    """Read the fingerprint that an SVG carries. Pure."""
    found = _MARKED.search(svg)
    return found[1] if found else None


def plantuml() -> Path:
    """Return PlantUML's jar from the cache of onceonly; fetch it at the first use."""
    from onceonly.jars import ivy
    from onceonly.jars.locked import cache_folder

    _, artifact, version = PLANTUML.split(":")
    folder = cache_folder() / "docs"
    jar = folder / f"{artifact}-{version}.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            problems = ivy.fetch([PLANTUML], Path(name), lambda _: None)
            fetched = Path(name, jar.name)
            if not fetched.exists() or hashlib.sha256(fetched.read_bytes()).hexdigest() != SHA256:
                sys.exit(f"error: {PLANTUML} could not be fetched: {problems or 'it has another sha256'}")
            fetched.replace(jar)
    return jar


def draw(text: str) -> str:
    """Draw one diagram; give its SVG."""
    from onceonly.jars.java import find_java

    command = [
        find_java(),
        "-Djava.awt.headless=true",
        "-jar",
        str(plantuml()),
        "-tsvg",
        "-pipe",
        "-charset",
        "UTF-8",
    ]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, timeout=120)
    if done.returncode:
        sys.exit(f"error: PlantUML refused the diagram: {done.stderr.decode(errors='replace')}")
    svg = re.sub(r"<\?plantuml[^>]*\?>", "", done.stdout.decode())
    return _MARK.format(fingerprint(text)) + svg + "\n"


def main() -> None:
    """Draw what is not drawn yet."""
    for name, text in sources().items():
        path = HERE / f"{name}.svg"
        if not path.exists() or drawn_from(path.read_text(encoding="utf-8")) != fingerprint(text):
            path.write_text(draw(text), encoding="utf-8")
            sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
