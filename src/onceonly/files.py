"""Reading what the file sink has written: whole epochs only. ``onceonly.files.read``, ``onceonly.files.committed``."""

from __future__ import annotations

from onceonly.sinks.files.manifests.reading import CommittedEpoch, committed, read

__all__ = ["CommittedEpoch", "committed", "read"]
