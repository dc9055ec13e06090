"""The options of a batch: its id, and what of a stream's it takes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.settings import savepoints, telemetry
from onceonly.settings.query import (
    ADOPT,
    HISTORY,
    JOB,
    LAG_GROUP,
    REPORT,
    SOURCE_CHANGED,
    SOURCE_FORMAT,
    SOURCE_OPTION,
    Replay,
)

if TYPE_CHECKING:
    from onceonly.settings.query import QuerySettings, Settings

# It names a folder, and stands in the names of others and in transactional ids, where some of these are escaped.
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=@+:-]{0,63}")
# By these names a folder is told for the checkpoint of a stream, or the log of one.
_TAKEN = frozenset({"metadata", "onceonly"})
_OF_STREAMS = (
    ADOPT,
    HISTORY,
    LAG_GROUP,
    REPORT,
    SOURCE_CHANGED,
    SOURCE_FORMAT,
    *telemetry.NAMES,
    *savepoints.OPTIONS,
)


def job_id(text: str | None) -> str:
    """See that a batch has an id that can be the name of a folder. Pure. Raises ``ConfigurationError``."""
    if text is not None and text.lower() in _TAKEN:  # there are file systems that look at no case
        raise ConfigurationError(
            f"the option {JOB!r} cannot be {text!r}: the folder of all batches would look like the checkpoint of a "
            "stream",
            next_step="name what the batch writes, as in .option('onceonly.job', '2026-11-01')",
        )
    if text is not None and _JOB_ID.fullmatch(text):
        return text
    what = f"the option {JOB!r} cannot be {text!r}" if text else f"the option {JOB!r} is missing"
    raise ConfigurationError(
        f"{what}: it is the id by which a batch that is run again finds what was decided",
        next_step="name what the batch writes, as in .option('onceonly.job', '2026-11-01'): up to 64 letters, digits "
        "or ._=@+:-, beginning with a letter or digit",
    )


def batch_query(settings: Settings, job: str) -> QuerySettings:
    """Return the runtime's own options of a batch, whose log is in the folder of its id. Pure.

    Nobody can say what the plan of a batch promises, so that other rows are refused unless the user says otherwise.
    """
    if settings.query is None:
        raise ConfigurationError(
            "the option 'checkpointLocation' is missing: the decision of a batch is kept below it",
            next_step="set .option('checkpointLocation', <path>), the same for every run of the job",
        )
    for name in settings.of_query:
        if name in _OF_STREAMS or name.startswith(SOURCE_OPTION):
            raise ConfigurationError(
                f"the option {name!r} is a stream's: a batch is one epoch, with none before it",
                next_step="leave it out",
            )
    query = settings.query
    return replace(
        query,
        checkpoint=f"{query.checkpoint.rstrip('/')}/{job}",
        replay=Replay.STOP if query.replay is Replay.AUTO else query.replay,
    )
