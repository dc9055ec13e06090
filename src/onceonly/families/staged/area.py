"""Where rows wait for the decision: what the family asks of a staging area, and what a sink is given of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.model import Handle
    from onceonly.ports import WriteContext

    Names: TypeAlias = Mapping[str, Mapping[str, str | int]]
    """Names of what is staged, each with the data of its handle: these tell whose it is (``names.query_of``)."""


class StagedRows(Protocol):
    """The rows of one handle, as an attempt has staged them. Driver."""

    @property
    def name(self) -> str:
        """The handle's transaction, under which the target notes in its books that they are applied."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, a batch at a time. Any number of times. Raises ``UnavailableError``, ``LogError``.

        The latter says that they are not as they were staged; perhaps only when some of them are given.
        """
        ...


class StagedAttempt(Protocol):
    """What one attempt stages. Executor, one thread."""

    @property
    def name(self) -> str: ...

    @property
    def data(self) -> Mapping[str, str | int]:
        """What any process needs to find it; known once it is finished."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises a typed error."""
        ...

    def finish(self) -> None:
        """Make it durable, and see that nobody has removed it. Raises a typed error."""
        ...

    def discard(self) -> None:
        """Remove it. Idempotent."""
        ...


class StagingArea(Protocol):
    """The place of what one query's sink has staged. Names are given once, and removal is the fence."""

    def begin(self, context: WriteContext) -> StagedAttempt:
        """Begin an attempt, such that a sweep from now on finds it. Executor. Raises a typed error."""
        ...

    def standing(self, handles: Sequence[Handle]) -> dict[str, StagedRows]:
        """Return the rows of those handles of which nothing is missing, by name. Driver; raises a typed error."""
        ...

    def listed(self) -> Names:
        """Return the names of all that is staged, with what is needed to remove it. Driver; raises a typed error."""
        ...

    def remove(self, handles: Sequence[Handle]) -> None:
        """Remove what is staged, so that its attempt finds it gone. Driver; idempotent; raises a typed error."""
        ...
