"""Whether sources still have what follows a savepoint's epoch: a restored query reads it again. Reads only; no Spark.

What kind a source is of, its offset tells. How it is reached, the operator says: a checkpoint holds no addresses of
sources, which may hold secrets. Files need none, and are looked at in ``inputs_left``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError, JournalError, SourceChangedError
from onceonly.families import kinesis
from onceonly.guards.source import KAFKA, Source
from onceonly.offsets import list_number
from onceonly.operations.given import lines
from onceonly.operations.tables_left import require_delta, require_iceberg
from onceonly.options import nearest
from onceonly.sinks.kafka.options import DECLARED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_NUMBERED: Final = re.compile(r"(\d{1,4}):(.+)")
OF_KAFKA: Final = "topics of Kafka"
_RANGES: Final = "onceonly.ranges"
_OF_KINESIS: Final = frozenset({"reader", "made", "number"})
_NOT_LOOKED: Final = "and nobody has looked whether it still has what is read again"


def _untold(offset: Any, own: dict[str, str]) -> None:  # noqa: ANN401, ARG001  the kind's own offset
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of source: its word, which options are its own, and those that it needs, with a word for each value.

    ``family`` is how the names of further options begin. ``deletes`` is whether it deletes what was read and decided.
    ``keeps`` names what has rows behind an offset, and for how many seconds it keeps them; None where it does not tell.
    """

    word: str
    known: tuple[str, ...]
    needs: Mapping[str, str]
    look: Callable[[Any, dict[str, str]], None]
    keeps: Callable[[Any, dict[str, str]], tuple[str, float] | None] = _untold
    family: str = ""
    deletes: bool = False

    def takes(self, name: str) -> bool:
        return name in self.known or (bool(self.family) and name.startswith(self.family))

    def typed(self, number: str) -> str:
        return " ".join(f"--source {number}{name}={what}" for name, what in self.needs.items())


@dataclass(frozen=True, slots=True)
class NotLooked:
    """A kind of source that nobody could ask: what is so, and what ``typed`` behind the command has it asked."""

    what: str
    typed: str

    @property
    def sentence(self) -> str:
        """Tell both, without a full stop."""
        return f"{self.what}: {self.typed} has that done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A source of a query: its kind, where it has come to, and how its options are told from those of others.

    ``number`` is that of the source with its colon, and empty where it is the only one of its kind.
    """

    kind: _Kind
    offset: Any
    at: int
    number: str = ""

    def own(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return its options: those of all sources that it takes, and over them those of its number."""
        mine = {
            name.partition(":")[2]: value for name, value in options.items() if name.startswith(f"{self.at}:")
        }
        return {name: value for name, value in {**options, **mine}.items() if self.kind.takes(name)}


def given(texts: Sequence[str], file: Path | None) -> dict[str, str]:
    """Read what the operator says of the sources. Raises ``ConfigurationError``, without the text that is wrong."""
    found: dict[str, str] = {}
    for text in (*lines(file), *texts):
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(
                "an option of a source is not of the form NAME=VALUE",
                next_step="write it as --source NAME=VALUE",
            )
        found[name.strip()] = value
    return found


def refuse_missing(
    barrier: Sequence[str],
    options: Mapping[str, str],
    topics: Mapping[str, tuple[str, ...]],
    *,
    epoch: int,
    for_good: bool = False,
    ranges: Mapping[str, bytes] | None = None,
) -> list[str]:
    """See that the sources have what follows a barrier; return a sentence of each that nobody could ask.

    ``for_good`` is whether output is taken back: only what is read again replaces it, so that a source is asked which
    deletes what was read.

    ``options`` and ``topics`` as in ``reads_of``. Raises ``ConfigurationError`` where rows are gone, a source is
    another one, or an option is of none; ``UnavailableError`` where one does not answer.
    """
    try:
        reads = reads_of(barrier, options, topics, epoch=epoch, ranges=ranges)
        return [each.sentence for each in look(reads, options, for_good=for_good)]
    except (SourceChangedError, JournalError) as error:
        raise ConfigurationError(
            f"{error.what}: rows would be lost or be there twice", next_step=error.next_step
        ) from None


def reads_of(
    barrier: Sequence[str],
    options: Mapping[str, str],
    topics: Mapping[str, tuple[str, ...]],
    *,
    epoch: int,
    ranges: Mapping[str, bytes] | None = None,
) -> list[Read]:
    """Return the sources that a barrier is of and that can be asked. Pure.

    ``options`` say how sources are reached, those that begin with a number and a colon how that one is, by its place in
    the barrier; ``topics`` are the ids that Kafka's had, ``ranges`` the files of Kinesis' that the savepoint carries.
    Raises ``ConfigurationError`` where an option is of none.
    """
    found = [
        (number, kind, offset)
        for number, line in enumerate(barrier)
        for kind, offset in _kind_of(line, topics, epoch, ranges or {})
    ]
    words = Counter(kind.word for _, kind, _ in found)
    reads = [
        Read(kind=kind, offset=offset, at=number, number=f"{number}:" if words[kind.word] > 1 else "")
        for number, kind, offset in found
    ]
    _refuse_unused(options, reads)
    return reads


def look(reads: Sequence[Read], options: Mapping[str, str], *, for_good: bool = False) -> list[NotLooked]:
    """Ask the sources as ``refuse_missing`` does. For what is gone, raises ``SourceChangedError``, ``JournalError``."""
    told: dict[NotLooked, None] = {}
    for each in reads:
        kind, own = each.kind, each.own(options)
        typed = kind.typed(each.number)
        if not own:
            if for_good and kind.deletes:
                raise ConfigurationError(
                    f"output would be taken back for good, and the query reads {kind.word}, which deletes what was "
                    "read: nobody has looked whether it still has what is read again",
                    next_step=f"add {typed}",
                )
            told[NotLooked(f"the query reads {kind.word}, {_NOT_LOOKED}", typed)] = None
            continue
        if lacking := kind.needs.keys() - own.keys():
            raise ConfigurationError(
                f"{kind.word} cannot be reached: it is not said what {' and '.join(sorted(lacking))} is",
                next_step=f"give {typed}",
            )
        kind.look(each.offset, own)
    return list(told)


def _refuse_unused(options: Mapping[str, str], reads: Sequence[Read]) -> None:
    for given in options:
        match = _NUMBERED.fullmatch(given)
        name = match[2] if match else given
        kinds = [each.kind for each in reads if match is None or each.at == int(match[1])]
        if any(kind.takes(name) for kind in kinds):
            continue
        near = nearest(name, [each for kind in kinds for each in kind.known])
        raise ConfigurationError(
            f"no source of this query is reached by the option {given}",
            next_step=f"did you mean --source {match[1] + ':' if match else ''}{near}=…?"
            if near
            else "leave it out: only Kafka, Kinesis, streams of RabbitMQ, journals, Delta and Iceberg are asked, where "
            "the query reads them, and it reads "
            + (", ".join(f"{each.at}: {each.kind.word}" for each in reads) or "none of them"),
        )


def _kind_of(
    line: str, topics: Mapping[str, tuple[str, ...]], epoch: int, ranges: Mapping[str, bytes]
) -> list[tuple[_Kind, Any]]:
    """Tell a source by its offset; none for those that are looked at elsewhere, or have nothing to lose."""
    from onceonly.guards.kafka import offsets_of

    if list_number(line) is not None:
        return []
    at = offsets_of(line)
    if at is not None:
        return [(_kafka(topics, epoch), at)]
    try:
        offset = json.loads(line[max(line.find("{"), 0) :])
    except ValueError:
        return []
    if not isinstance(offset, dict):
        return []
    marks = (
        (_OF_KINESIS, _kinesis(line, ranges)),
        ({"mark", "offset"}, _RABBITMQ),
        ({"segment", "journal"}, _JOURNAL),
        ({"reservoirId", "reservoirVersion"}, _DELTA),
        ({"snapshot_id", "position"}, _ICEBERG),
    )
    return [(kind, offset) for keys, kind in marks if keys <= offset.keys()]


def _kafka(topics: Mapping[str, tuple[str, ...]], epoch: int) -> _Kind:
    def look(at: Any, own: dict[str, str]) -> None:  # noqa: ANN401  the kind's own offset
        from onceonly.guards.kafka import gone_since

        for finding in gone_since(Source(KAFKA, own), at, topics, epoch=epoch):
            raise SourceChangedError(finding.what, next_step=finding.next_step)

    def keeps(at: Any, own: dict[str, str]) -> tuple[str, float] | None:  # noqa: ANN401
        from onceonly.guards.kafka import keeps_s

        return keeps_s(Source(KAFKA, own), at)

    return _Kind(
        word=OF_KAFKA,
        known=tuple(each.name for each in DECLARED if each.name.startswith("kafka.")),
        needs={"kafka.bootstrap.servers": "HOST:PORT"},
        look=look,
        keeps=keeps,
    )


def ranges(barrier: Sequence[str], options: Mapping[str, str]) -> dict[int, str]:
    """Return where ranges of Kinesis are kept, by a source's place in the barrier, where the options say it."""
    told = {at: options.get(f"{at}:{_RANGES}", options.get(_RANGES, "")) for at in range(len(barrier))}
    return {at: place for at, place in told.items() if place}


def _kinesis(line: str, ranges: Mapping[str, bytes]) -> _Kind:
    def look(offset: Any, own: dict[str, str]) -> None:  # noqa: ANN401  the kind's own offset
        from onceonly.sources.kinesis.carried import held
        from onceonly.sources.kinesis.options import WHO, SourceOptions
        from onceonly.sources.kinesis.planning import Planner
        from onceonly.sources.kinesis.positions import Offset

        options = SourceOptions.of({**own, "failOnDataLoss": "true"})
        Planner(options).require_kept(Offset.of(offset), held(line, ranges))
        kinesis.Stream(options.stream, WHO).ask("list_shards")  # as a reader does, now and then

    return _Kind(
        word="a stream of Kinesis",
        known=(_RANGES, *(each.name for each in kinesis.DECLARED)),
        needs={"stream": "NAME", _RANGES: "PLACE"},
        look=look,
        keeps=_kinesis_keeps,
    )


def _kinesis_keeps(offset: Any, own: dict[str, str]) -> tuple[str, float] | None:  # noqa: ANN401, ARG001
    from onceonly.operations.before_kinesis import keeps_s
    from onceonly.sources.kinesis.options import SourceOptions

    return keeps_s(SourceOptions.of(own))


def _rabbitmq(offset: Any, own: dict[str, str]) -> None:  # noqa: ANN401
    from onceonly.sources.rabbitmq_stream.options import SourceOptions
    from onceonly.sources.rabbitmq_stream.planning import Planner
    from onceonly.sources.rabbitmq_stream.positions import Position

    planner = Planner(SourceOptions.of({**own, "failOnDataLoss": "true"}))
    try:
        planner.require_kept(Position.of(offset))
    finally:
        planner.close()


def _journal(offset: Any, own: dict[str, str]) -> None:  # noqa: ANN401
    from onceonly.sources.journal.place import Journal
    from onceonly.sources.journal.reader import Position, require_kept

    require_kept(Journal.at(own["journal"]), Position.of(offset))


_RABBITMQ: Final = _Kind(
    word="a stream of RabbitMQ",
    known=("uri", "stream", "timeout"),
    needs={"uri": "URI", "stream": "NAME"},
    look=_rabbitmq,
)
_JOURNAL: Final = _Kind(
    word="a journal", known=("journal",), needs={"journal": "PLACE"}, look=_journal, deletes=True
)
_DELTA: Final = _Kind(word="a Delta table", known=("path",), needs={"path": "PLACE"}, look=require_delta)
_ICEBERG: Final = _Kind(
    word="an Iceberg table",
    known=("table", "catalog"),
    needs={"table": "NAMESPACE.NAME"},
    look=require_iceberg,
    family="catalog.",
)
