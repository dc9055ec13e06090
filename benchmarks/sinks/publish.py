"""``python -m benchmarks.sinks.publish RESULTS``: records a comparison in docs/proof, and writes the page with it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from benchmarks.contenders.base import ROOT
from benchmarks.page import PAGE, RECORD, published
from benchmarks.sinks import page
from benchmarks.sinks.values import Sinks
from benchmarks.values import decode, encode


def write(root: Path, record: Sinks) -> None:
    """Write record and page into the project in ``root``. Any number of times."""
    (root / page.RECORD).write_bytes(encode(record))
    (root / PAGE).write_text(published(root, decode((root / RECORD).read_bytes())), encoding="utf-8")


def main() -> None:
    """Publish the results that the argument names."""
    write(ROOT, msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Sinks))


if __name__ == "__main__":
    main()
