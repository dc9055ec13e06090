"""Arming crash points in jobs that run: one file of armings, and a folder where they say that they have fired."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly import failpoints

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Points:
    """What is armed now, for every job of a campaign. Campaign's process; one thread."""

    folder: Path
    _armed: dict[str, str] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self._fired.mkdir(parents=True)
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """What a job's environment needs."""
        return {"ONCEONLY_FAILPOINTS": f"@{self._file}", "ONCEONLY_FAILPOINTS_DIR": str(self._fired)}

    def arm(self, point: str, action: str, nth: int = 1) -> str:
        """Arm a point; return the key under which it fires once."""
        own = next(self._ids)
        key = f"{point}#{own}"
        self._armed[key] = f"{point}={action}@{nth}#{own}"
        self._write()
        return key

    def fired_at(self, key: str) -> float | None:
        """Say when it fired, in seconds since 1970, or None."""
        try:
            return (self._fired / f"{key}.fired").stat().st_mtime
        except FileNotFoundError:
            return None

    def pid_at(self, key: str) -> int:
        """Return the process that has passed it, once it has fired."""
        return int((self._fired / f"{key}.fired").read_text(encoding="utf-8"))

    def resume(self, key: str) -> None:
        """Let a process go on that stands at a pause."""
        (self._fired / f"resume#{key.partition('#')[2]}").touch()

    def disarm(self) -> None:
        """Take back whatever is armed, and let go what stands."""
        for key in self._armed:
            self.resume(key)
        self._armed.clear()
        self._write()

    def _write(self) -> None:
        failpoints.arm(self._file, self._armed.values())

    @property
    def _file(self) -> Path:
        return self.folder / "armed"

    @property
    def _fired(self) -> Path:
        return self.folder / "fired"
