"""Which life of this machine it is: what was true of its processes before it was started again is no longer."""

from __future__ import annotations

from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Return what tells one life of this machine from another, empty where the system does not say. Anywhere."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
