"""The options of a query that are the runtime's own, and what remains for its sink.

Spark lowers the names of options before a Python data source sees them, so both ways do: a sink always gets
lower-case names.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee, Visible, letters_name
from onceonly.options import unknown_option
from onceonly.settings.savepoints import OPTIONS as _SAVEPOINTS
from onceonly.settings.savepoints import Keeping, keeping
from onceonly.settings.telemetry import NAMES, NOTHING, TelemetrySettings, telemetry_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

E = TypeVar("E", bound=enum.StrEnum)

CHECKPOINT = "checkpointlocation"
GUARANTEE = "onceonly.guarantee"
VISIBLE = "onceonly.visible"
SINK = "onceonly.sink"
ADOPT = "onceonly.adopt"
HISTORY = "onceonly.history"
COMMIT_TIMEOUT = "onceonly.commit.timeout"
EPOCH_TIMEOUT = "onceonly.epoch.timeout"
CALL_TIMEOUT = "onceonly.call.timeout"
REPLAY = "onceonly.replay"
LAG_GROUP = "onceonly.lag.group"
REPORT = "onceonly.report"
SOURCE_CHANGED = "onceonly.source.changed"
SOURCE_FORMAT = "onceonly.source.format"
SOURCE_OPTION = "onceonly.source.option."
_SOURCE = (SOURCE_CHANGED, SOURCE_FORMAT)
_QUERY = (
    ADOPT,
    HISTORY,
    COMMIT_TIMEOUT,
    CALL_TIMEOUT,
    EPOCH_TIMEOUT,
    REPLAY,
    LAG_GROUP,
    REPORT,
    *_SOURCE,
    *NAMES,
    *_SAVEPOINTS,
)
JOB = "onceonly.job"
"""The id of a batch. A stream has none: it is known by its checkpoint."""

REFUSED = "onceonly.refused"
LETTERS_FORMAT = "onceonly.deadletter.format"
LETTERS_LIMIT = "onceonly.deadletter.limit"
LETTERS_OPTION = "onceonly.deadletter.option."
_LETTERS = (LETTERS_FORMAT, LETTERS_LIMIT)
_SINK = (GUARANTEE, VISIBLE, SINK, REFUSED, *_LETTERS)
_FREE = (LETTERS_OPTION, SOURCE_OPTION)
PREFIX = "onceonly."
START = "onceonly.start"
"""Not a user's: which start of a query an epoch belongs to. No setting, as nothing else depends on it."""
_LIMIT_S_MIN = 0.001
_LIMIT_S_MAX = 31_622_400.0  # a year; Python cannot wait for more than some of them
# The name becomes a part of transactional ids, group names and file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class Replay(enum.StrEnum):
    """What becomes of a query whose decided epoch is replayed with other rows."""

    AUTO = "auto"
    """Stop where Spark's plan promises the same rows, else tell."""
    STOP = "stop"
    TELL = "tell"


class GoOn(enum.StrEnum):
    """What becomes of a query that would lose rows of a source."""

    STOP = "stop"
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """What the user asked of the runtime for one query. ``checkpoint`` is as the user wrote it.

    ``source_format`` and ``source`` tell the guards of Spark's sources what they cannot see; they may hold secrets.
    ``lag_group`` is the consumer group that shows how far the query has come, empty for none.
    ``report`` is a file for the run's report.
    """

    checkpoint: str
    adopt: bool = False
    history: int = 100
    commit_timeout_s: float = 60.0
    call_timeout_s: float = 300.0
    # How long an epoch may take only its user knows; too short a default would run one again for ever.
    epoch_timeout_s: float | None = None
    replay: Replay = Replay.AUTO
    source_changed: GoOn = GoOn.STOP
    source_format: str = ""
    report: str = ""
    source: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    lag_group: str = ""
    telemetry: TelemetrySettings = NOTHING
    savepoints: Keeping | None = None

    def __post_init__(self) -> None:
        limit = self.epoch_timeout_s
        if limit is not None and not _LIMIT_S_MIN <= limit <= _LIMIT_S_MAX:
            raise ConfigurationError(
                f"the epoch's time-out cannot be {limit:g} s",
                next_step=f"give it {_LIMIT_S_MIN:g} to {_LIMIT_S_MAX:g} seconds, or none",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSettings:
    """Where the user wants the rows that a sink's target refuses, and how many of an epoch at most."""

    format: str
    limit: int = 1000
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """What the user asked of one sink, by its name in the query. The options may hold secrets: never shown.

    ``visible`` is for exactly-once; other guarantees leave no choice. ``letters`` is None where a refused row stops the
    query.
    """

    name: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    visible: Visible = Visible.DECIDED
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    letters: LetterSettings | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two uses the same, for caches of a process."""
        own = (self.name, self.guarantee, self.visible, tuple(sorted(self.options.items())))
        letters = self.letters
        if letters is None:
            return own
        return (*own, letters.format, letters.limit, tuple(sorted(letters.options.items())))

    @property
    def of_letters(self) -> SinkSettings | None:
        """The settings of the sink that takes the dead letters: the same promise, a name of its own."""
        if self.letters is None:
            return None
        return SinkSettings(
            name=letters_name(self.name), guarantee=self.guarantee, options=self.letters.options
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a query with one sink. ``query`` is None where no checkpoint was named.

    ``of_query`` names the options that were given and are the query's, not the sink's.
    """

    query: QuerySettings | None
    sink: SinkSettings
    of_query: tuple[str, ...] = ()


def parse(
    options: Mapping[str, str],
    *,
    default_name: str,
    default_guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    claimed: Iterable[str] = (),
) -> Settings:
    """Split the options of a query into the runtime's and the sink's. Anywhere; pure.

    ``claimed`` are the names below ``onceonly.`` that the sink itself understands. Raises
    ``ConfigurationError`` that names the wrong option and, where there is one, the nearest known.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    if JOB in given:
        raise ConfigurationError(
            f"the option {JOB!r} is the id of a batch, and this is a stream, which its checkpoint tells from others",
            next_step="leave it out, or write a batch with df.write",
        )
    known = (*_QUERY, *_SINK, *(name.lower() for name in claimed))
    for name in given:
        if name.startswith(PREFIX) and name not in known and not name.startswith(_FREE):
            raise unknown_option(name, known, who="onceonly")
    # Spark hands the query's name on as if it were an option of the sink.
    given.pop("queryname", None)
    of_query = [name for name in given if name in (CHECKPOINT, *_QUERY) or name.startswith(SOURCE_OPTION)]
    query = {name: given.pop(name) for name in of_query}
    guarantee = _one_of(Guarantee, GUARANTEE, given.pop(GUARANTEE, default_guarantee.value))
    return Settings(
        query=parse_query(query) if CHECKPOINT in query else None,
        sink=SinkSettings(
            guarantee=guarantee,
            visible=_visible(given.pop(VISIBLE, None), guarantee),
            name=sink_name(given.pop(SINK, default_name)),
            letters=_letters(given),
            options=given,
        ),
        of_query=tuple(query),
    )


def parse_query(given: Mapping[str, str]) -> QuerySettings:
    """Read the runtime's own options of a query, by their lower-case names. Anywhere; pure."""
    if not given.get(CHECKPOINT):
        raise no_checkpoint()
    timeout = given.get(EPOCH_TIMEOUT)
    return QuerySettings(
        checkpoint=given[CHECKPOINT],
        adopt=_flag(ADOPT, given.get(ADOPT, "false")),
        history=int(_number(HISTORY, given.get(HISTORY, "100"), minimum=1, whole=True)),
        commit_timeout_s=_number(COMMIT_TIMEOUT, given.get(COMMIT_TIMEOUT, "60"), minimum=0.001),
        call_timeout_s=_number(CALL_TIMEOUT, given.get(CALL_TIMEOUT, "300"), minimum=0.001),
        epoch_timeout_s=None if timeout is None else _number(EPOCH_TIMEOUT, timeout, minimum=_LIMIT_S_MIN),
        replay=replay_of(given.get(REPLAY, Replay.AUTO.value)),
        source_changed=source_changed_of(given.get(SOURCE_CHANGED, GoOn.STOP.value)),
        source_format=_source_format(given),
        report=given.get(REPORT, "").strip(),
        telemetry=telemetry_of(given),
        savepoints=keeping(given),
        source=tuple(
            sorted(
                (name.removeprefix(SOURCE_OPTION), text)
                for name, text in given.items()
                if name.startswith(SOURCE_OPTION)
            )
        ),
        lag_group=given.get(LAG_GROUP, "").strip(),
    )


def no_checkpoint() -> ConfigurationError:
    """Make the error for a query whose checkpoint is not named."""
    return ConfigurationError(
        "the option 'checkpointLocation' is missing: decisions are kept beside the query's checkpoint",
        next_step="set .option('checkpointLocation', <path>) on the query; or spark.sql.streaming.checkpointLocation "
        "in the session, before onceonly.register, and .queryName(<name>) on the query",
    )


def with_checkpoint(options: Mapping[str, str], session: str | None) -> dict[str, str]:
    """Return the options with the checkpoint where Spark will put it: anywhere; pure.

    ``session`` is the session's location, None where it has none. A query without a checkpoint of its own gets the
    folder of its name there; one without a name a folder with a random name, which Spark tells nobody. Raises
    ``ConfigurationError`` there.
    """
    given = {key.lower(): value for key, value in options.items()}
    if given.get(CHECKPOINT) or not session:
        return dict(options)
    if not given.get("queryname"):
        raise ConfigurationError(
            f"the session puts checkpoints below {session}, but this query has no name, so that Spark gives each start "
            "of it another folder: no decision would be found again",
            next_step="name the query with .queryName(<name>), or set .option('checkpointLocation', <path>) on it",
        )
    return {**options, CHECKPOINT: f"{session.rstrip('/')}/{given['queryname']}"}


def replay_of(text: str) -> Replay:
    """Read what a replay with other rows does. Pure."""
    return _one_of(Replay, REPLAY, text)


def source_changed_of(text: str) -> GoOn:
    """Read what becomes of a query that would lose rows of a source. Pure."""
    return _one_of(GoOn, SOURCE_CHANGED, text)


def _source_format(given: Mapping[str, str]) -> str:
    """Read of which source the guards are told. Pure."""
    form = given.get(SOURCE_FORMAT, "").strip().lower()
    options = [name for name in given if name.startswith(SOURCE_OPTION)]
    if options and not form:
        raise ConfigurationError(
            f"the option {options[0]!r} is of a source, and {SOURCE_FORMAT!r} does not say of which",
            next_step=f"set {SOURCE_FORMAT} to kafka or files",
        )
    if form not in {"", "kafka", "files"}:
        raise ConfigurationError(
            f"the option {SOURCE_FORMAT!r} cannot be {form!r}: nothing is watched of such a source",
            next_step="set it to kafka or files, or leave it out",
        )
    return form


def _one_of(choice: type[E], name: str, text: str) -> E:
    try:
        return choice(text.strip().lower())
    except ValueError:
        raise ConfigurationError(
            f"the option {name!r} cannot be {text!r}",
            next_step="use one of " + ", ".join(each.value for each in choice),
        ) from None


def _visible(text: str | None, guarantee: Guarantee) -> Visible:
    """Read when rows are seen, where the guarantee leaves a choice."""
    visible = Visible.DECIDED if text is None else _one_of(Visible, VISIBLE, text)
    shown = {
        Guarantee.AT_LEAST_ONCE: "early, and twice after a crash",
        Guarantee.AT_MOST_ONCE: "when decided",
    }
    if text is not None and guarantee in shown:
        raise ConfigurationError(
            f"the option {VISIBLE!r} is a choice of {Guarantee.EXACTLY_ONCE.value} alone: with "
            f"{guarantee.value}, rows are seen {shown[guarantee]}",
            next_step=f"leave it out, or set {GUARANTEE}={Guarantee.EXACTLY_ONCE.value}",
        )
    return visible


def _letters(given: dict[str, str]) -> LetterSettings | None:
    """Take the options of dead letters out of the sink's own."""
    refused = given.pop(REFUSED, "stop").strip().lower()
    options = {
        name.removeprefix(LETTERS_OPTION): given.pop(name)
        for name in list(given)
        if name.startswith(LETTERS_OPTION)
    }
    form, limit = (given.pop(name, None) for name in _LETTERS)
    if refused not in {"stop", "deadletter"}:
        raise ConfigurationError(
            f"the option {REFUSED!r} cannot be {refused!r}", next_step="use stop or deadletter"
        )
    if refused == "stop":
        if options or form is not None or limit is not None:
            raise ConfigurationError(
                f"there are options of a dead-letter sink, and {REFUSED} is stop, so nothing would go there",
                next_step=f"set {REFUSED}=deadletter, or leave the options below onceonly.deadletter. out",
            )
        return None
    if not form:
        raise ConfigurationError(
            f"the option {LETTERS_FORMAT!r} is missing: {REFUSED} is deadletter",
            next_step=f"name the sink of the letters, such as onceonly.files, and give it {LETTERS_OPTION}path",
        )
    return LetterSettings(
        format=form,
        limit=1000 if limit is None else int(_number(LETTERS_LIMIT, limit, minimum=1, whole=True)),
        options=options,
    )


def sink_name(text: str) -> str:
    """See that a sink's name in a query can be a part of transactional ids and file names. Pure."""
    if _NAME.fullmatch(text):
        return text
    raise ConfigurationError(
        f"the option {SINK!r} cannot be {text!r}",
        next_step="use up to 32 letters, digits, '-' or '_'",
    )


def _flag(name: str, text: str) -> bool:
    if text.strip().lower() in {"true", "false"}:
        return text.strip().lower() == "true"
    raise ConfigurationError(f"the option {name!r} cannot be {text!r}", next_step="use true or false")


def _number(name: str, text: str, *, minimum: float, whole: bool = False) -> float:
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError:
        value = float("nan")
    # A comparison that a NaN fails, too.
    if minimum <= value < float("inf"):
        return value
    kind = "a whole number" if whole else "a number of seconds"
    raise ConfigurationError(
        f"the option {name!r} cannot be {text!r}", next_step=f"use {kind}, at least {minimum:g}"
    )
