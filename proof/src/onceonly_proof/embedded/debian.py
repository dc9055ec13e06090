"""Debian's packages, unpacked into the cache: nothing is installed, and no root needed. Linux with apt."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly.jars.locked import UNFINISHED, alone_in, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FETCH_S = 300.0


def unpacked(
    name: str, title: str, packages: Sequence[str], *, finish: Callable[[Path, Path], None] | None = None
) -> Path:
    """Return the folder that packages are unpacked in; once into the cache, at once or not at all.

    ``finish`` is called with the folder while it is made, and with the name that it is about to get.

    Raises:
        SetupError: this is no Linux with apt, or they could not be fetched or kept.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise SetupError(
            f"the embedded {title} comes from Debian's packages, and there is no apt here",
            next_step="run it on Debian or Ubuntu",
        )
    with alone_in(folder.parent), tempfile.TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED) as made:
        if folder.is_dir():  # whoever was here before us has fetched them
            return folder
        root = Path(made) / "root"
        try:
            subprocess.run(
                ["apt-get", "download", *packages],
                cwd=made,
                check=True,
                capture_output=True,
                timeout=_FETCH_S,
            )
            for package in Path(made).glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(root)], check=True, capture_output=True)
        except subprocess.SubprocessError as error:
            raise SetupError(
                f"the packages of {title} could not be fetched",
                next_step=f"see whether `apt-get update` and `apt-get download {packages[0]}` work here",
            ) from error
        if finish is not None:
            finish(root, folder)
        os.rename(root, folder)  # noqa: PTH104  at once
    return folder
