"""How a job takes orders: one JSON file after the other, each answered by another one. The standard library only."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_POLL_S = 0.02


def serve(folder: Path, handlers: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Carry out orders until one is ``end``. The job's main thread; an order that fails is answered with its error."""
    (folder / "ready").touch()
    number = 1
    while True:
        path = folder / f"order-{number}.json"
        if not path.exists():
            time.sleep(_POLL_S)
            continue
        order: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if order["do"] == "end":
            return
        try:
            answer = handlers[order["do"]](order)
        except Exception as error:  # noqa: BLE001  whatever an engine raises is the answer
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        written = folder / f"answer-{number}.tmp"
        written.write_text(json.dumps(answer), encoding="utf-8")
        written.replace(folder / f"answer-{number}.json")
        number += 1
