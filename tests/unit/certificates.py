"""Certificates that sign themselves, for servers of tests."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def certificate(folder: Path, *extensions: str, names: str = "IP:127.0.0.1") -> tuple[Path, Path]:
    """Make one of this machine, with ``openssl``; return its file and that of its key."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "this test needs openssl"
    made, key = folder / "certificate.pem", folder / "key.pem"
    more = [part for each in (f"subjectAltName={names}", *extensions) for part in ("-addext", each)]
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", *more,
         "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key
