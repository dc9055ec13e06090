"""The file sink in a process whose files may not grow, as long as a flag is there: a disk that is full, for anyone.

Executors import this module.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, ClassVar

from onceonly.sinks.files import FilesSink
from onceonly.sinks.files.options import DECLARED

if TYPE_CHECKING:
    from onceonly.ports import Option, WriteContext
    from onceonly.sinks.files.writer import Attempt


class LimitedFiles(FilesSink):
    """The option ``staging`` names nothing here; the flag is a file ``full`` beside the target."""

    name: ClassVar[str] = "limited"
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def begin_transaction(self, context: WriteContext) -> Attempt:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        full = (self._files.target.parent / "full").exists()
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 if full else most, most))
        return super().begin_transaction(context)
