"""Whether sources still have what follows a savepoint's epoch: a restored query reads it again. Reads only; no Spark.

What kind a source is of, its offset tells. How it is reached, the operator says: a checkpoint holds no addresses of
sources, which may hold secrets. Files need none, and are looked at in ``inputs_left``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError, JournalError, SourceChangedError
from onceonly.families import kinesis
from onceonly.guards.source import KAFKA, Source, some_of
from onceonly.offsets import list_number
from onceonly.operations.given import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_NOT_LOOKED: Final = "and nobody has looked whether it still has what is read again"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of source: its word, which of the operator's options are its own, and which of them it needs."""

    word: str
    takes: Callable[[str], bool]
    needs: str
    look: Callable[[Any, dict[str, str]], None]


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
    barrier: Sequence[str], options: Mapping[str, str], topics: Mapping[str, tuple[str, ...]], *, epoch: int
) -> list[str]:
    """See that the sources have what follows a barrier; return a sentence of each that nobody could ask.

    ``options`` say how sources are reached, ``topics`` are the ids that Kafka's had. Raises ``ConfigurationError``
    where rows are gone, a source is another one, or an option is of none; ``UnavailableError`` where one does not
    answer.
    """
    kinds = [(kind, offset) for line in barrier for kind, offset in _kind_of(line, topics, epoch)]
    unused = [name for name in options if not any(kind.takes(name) for kind, _ in kinds)]
    if unused:
        raise ConfigurationError(
            f"no source of this query is reached by the option {some_of(unused)}",
            next_step="leave it out, or correct its name: only Kafka, Kinesis, streams of RabbitMQ and journals are "
            "asked, where the query reads them",
        )
    told: dict[str, None] = {}
    for kind, offset in kinds:
        own = {name: value for name, value in options.items() if kind.takes(name)}
        if not own:
            told[f"the query reads {kind.word}, {_NOT_LOOKED}: --source {kind.needs} has that done"] = None
            continue
        try:
            kind.look(offset, own)
        except (SourceChangedError, JournalError) as error:
            raise _missing(error.what, error.next_step) from None
    return list(told)


def _missing(what: str, next_step: str) -> ConfigurationError:
    return ConfigurationError(f"{what}: rows would be lost or be there twice", next_step=next_step)


def _kind_of(line: str, topics: Mapping[str, tuple[str, ...]], epoch: int) -> list[tuple[_Kind, Any]]:
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
        ({"reader", "made", "number"}, _KINESIS),
        ({"mark", "offset"}, _RABBITMQ),
        ({"segment", "journal"}, _JOURNAL),
    )
    return [(kind, offset) for keys, kind in marks if keys <= offset.keys()]


def _kafka(topics: Mapping[str, tuple[str, ...]], epoch: int) -> _Kind:
    def look(at: Any, own: dict[str, str]) -> None:  # noqa: ANN401  the kind's own offset
        from onceonly.guards.kafka import gone_since

        for finding in gone_since(Source(KAFKA, own), at, topics, epoch=epoch):
            raise _missing(finding.what, finding.next_step)

    return _Kind(
        word="topics of Kafka",
        takes=lambda name: name.startswith("kafka."),
        needs="kafka.bootstrap.servers=HOST:PORT",
        look=look,
    )


def _kinesis(offset: Any, own: dict[str, str]) -> None:  # noqa: ANN401
    from onceonly.sources.kinesis.options import SourceOptions
    from onceonly.sources.kinesis.planning import Planner
    from onceonly.sources.kinesis.positions import Offset

    Planner(SourceOptions.of({**own, "failOnDataLoss": "true"})).require_kept(Offset.of(offset))


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


_KINESIS: Final = _Kind(
    word="a stream of Kinesis",
    takes=lambda name: name == "onceonly.ranges" or name in {each.name for each in kinesis.DECLARED},
    needs="stream=NAME --source region=REGION --source onceonly.ranges=PLACE",
    look=_kinesis,
)
_RABBITMQ: Final = _Kind(
    word="a stream of RabbitMQ",
    takes=lambda name: name in {"uri", "stream", "timeout"},
    needs="uri=URI --source stream=NAME",
    look=_rabbitmq,
)
_JOURNAL: Final = _Kind(
    word="a journal", takes=lambda name: name == "journal", needs="journal=PLACE", look=_journal
)
