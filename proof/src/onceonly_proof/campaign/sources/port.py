"""What a campaign asks of a source that its queries read, and of the input of one round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from onceonly.errors import UnavailableError
from onceonly_proof.campaign.stores import Folders
from onceonly_proof.campaign.workload import Feeder, is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from onceonly_proof.auditor import Input
    from onceonly_proof.auditor.log import EndsOf
    from onceonly_proof.campaign.stores import CheckpointStore
    from onceonly_proof.campaign.workload import Workload

Serving = TypeVar("Serving", bound="Server")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the input of a round has its files."""

    folder: Path
    """The round's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What arms crash points in a process that is started for it."""
    store: CheckpointStore = field(default_factory=Folders)
    """Where its journal or its ranges are."""
    checkpoints: CheckpointStore = field(default_factory=Folders)
    """Where the checkpoint of the round's query is."""

    def at(self, name: str) -> str:
        """Return the address of a journal or of ranges."""
        return self.store.beside(self.folder, name)

    @property
    def checkpoint(self) -> str:
        """The address of the query's checkpoint."""
        return self.checkpoints.address(self.folder)


class Flow(Feeder):
    """The input of one round: an empty place, a feeder, and what went in. Campaign's process."""

    is_ordered: bool = True
    """Whether rows of one input partition keep their order in one place of the output."""

    @abstractmethod
    def options(self) -> dict[str, str]:
        """Return the options of the source for this place; none for a topic of Kafka."""

    @abstractmethod
    def is_read(self, offsets: str) -> bool | None:
        """Say by what Spark notes of an epoch whether all that was fed is read with it; None where that does not tell.

        Asked after ``stop``.
        """

    def numbers(self) -> Iterable[int]:
        """Return the numbers of the rows that went in, as far as that is known before a round is over.

        Asked after ``stop``.
        """
        return range(self.distinct)

    def rows_until(self, offsets: str) -> int:  # noqa: ARG002  of most sources an epoch's end is no number of rows
        """Count the rows up to the end of an epoch, by what Spark notes of it; 0 where that does not tell."""
        return 0

    @property
    def ends_of(self) -> EndsOf | None:
        """What tells the auditor where epochs ended, where their offsets alone do not."""
        return None

    @property
    def came_again(self) -> Mapping[bytes, Sequence[int]]:
        """Where else in the journal rows are that came again, by their values. Asked when the round is over."""
        return {}

    @abstractmethod
    def inputs(self) -> list[Input]:
        """Read back what went in, by a client of the server's own makers. Raises ``UnavailableError``."""

    def close(self) -> None:
        """End what is the round's own. Idempotent."""


class Source(ABC):
    """A system that queries read from. Campaign's process; made by starting it."""

    key: ClassVar[str] = "cast(null as string)"
    """The column that is the key of its rows, in SQL."""
    is_lossy: ClassVar[bool] = False
    """Whether what it sends may be lost before it is in the journal: it sends nothing again."""

    comes_again: ClassVar[bool] = False
    """Whether rows without names may come again, and nobody knows when it is over."""

    @abstractmethod
    def flow(self, name: str, workload: Workload, place: Place) -> Flow:
        """Make the input of a round under a name of its own."""

    @abstractmethod
    def kill(self) -> None:
        """End its server with SIGKILL. Idempotent."""

    @abstractmethod
    def start(self) -> None:
        """Start what was killed, and wait until it answers. Raises ``SetupError``."""

    @abstractmethod
    def close(self) -> None:
        """End it. Idempotent."""


class Server(Protocol):
    """What serves a source."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Served(Source, Generic[Serving]):
    """A source with one server, which runs from now on."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        server.start()

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()


def require_whole(found: list[Input]) -> list[Input]:
    """See that rows are those of a feeder, byte for byte. Raises ``UnavailableError``."""
    damaged = next((each for each in found if not is_whole(each.value)), None)
    if damaged is not None:
        raise UnavailableError(
            f"{damaged.partition} at {damaged.position}: what was fed is not what the server gives back",
            next_step="run the round again; nothing can be audited against such an input",
        )
    return found
