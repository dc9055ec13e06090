"""A store whose answers mislead as those of object stores and shared mounts do, and whose files are right."""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly.stores.port import PutUnknownError
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Answer(enum.StrEnum):
    """How a put is answered."""

    HONEST = "honest"
    LOST = "lost"
    """Carried out, and the answer did not arrive."""
    NEVER = "never"
    """Not carried out, and that did not arrive either."""
    LATE = "late"
    """Carried out when the next put or look begins, long after the answer was given up."""
    REFUSED = "refused"
    """Carried out, repeated underway, and the repetition refused: the answer is that of the second."""
    BUSY = "busy"
    """Not carried out, and told so."""


class HostileStore(MemoryStore):
    """Answers puts as ``answers`` says, one after the other, then honestly; a listing forgets its newest ``unlisted``.

    Everything else is that of a `MemoryStore`: what it holds is always whole, and a name is given once.
    """

    def __init__(self, answers: Iterable[Answer] = (), *, unlisted: int = 0) -> None:
        super().__init__()
        self.answers = deque(answers)
        self.unlisted = unlisted
        self._late: list[tuple[str, bytes]] = []

    def put_if_absent(
        self, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
    ) -> bool:
        self._land()
        answer = self.answers.popleft() if self.answers else Answer.HONEST
        if answer is Answer.BUSY:
            raise UnavailableError(
                f"{self.where(name)} could not be put: slow down", next_step="put it again later"
            )
        if before_publish is not None:
            before_publish()
        if answer is Answer.LATE:
            self._late.append((name, data))
        if answer in {Answer.NEVER, Answer.LATE}:
            raise PutUnknownError("no answer")
        is_put = super().put_if_absent(name, data)
        if answer is Answer.LOST:
            raise PutUnknownError("no answer")
        return is_put and answer is not Answer.REFUSED

    def get(self, name: str) -> bytes | None:
        self._land()
        return super().get(name)

    def list_names(self, folder: str) -> list[str]:
        names = super().list_names(folder)
        return names[: len(names) - self.unlisted]

    def _land(self) -> None:
        for name, data in self._late:
            self.files.setdefault(name, data)
        self._late.clear()
