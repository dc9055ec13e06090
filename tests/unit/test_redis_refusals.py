"""Refusals of a Redis server: what each means for the query, whichever release says it."""

from __future__ import annotations

import pytest
from redis import exceptions as e

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.sinks.redis.answers import meaning
from onceonly.sinks.redis.options import RedisOptions

OPTIONS = RedisOptions(
    host="h", port=1, database=0, tls=False, prefix="", timeout_s=1.0, tombstones_ms=1, user="ann"
)
REDIS_6 = "Error running script (call to f_c25830ed): @user_script:18: @user_script: 18: "


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            "-OOM command not allowed when used memory > 'maxmemory'.",
            UnavailableError,
            "used up its maxmemory",
        ),
        ("-READONLY You can't write against a read only replica.", UnavailableError, "has become a replica"),
        (
            "-MISCONF Redis is configured to save RDB snapshots",
            UnavailableError,
            "could not write its own disk",
        ),
        (
            "The user executing the script can't run this command",
            ConfigurationError,
            "not permit the user ann",
        ),
        ("WRONGTYPE Operation against a key", ConfigurationError, "something else under the key"),
        ("attempt to index a nil value", ConfigurationError, "refuses: attempt to index"),
    ],
)
def test_what_redis_6_refuses_a_script_is_understood(
    said: str, kind: type[OnceonlyError], words: str
) -> None:
    found = meaning(e.ResponseError(REDIS_6 + said), OPTIONS)
    assert isinstance(found, kind)
    assert words in found.what
    short = REDIS_6.removesuffix("@user_script: 18: ") + said
    assert meaning(e.ResponseError(short), OPTIONS).what == found.what


@pytest.mark.parametrize(
    "error",
    [
        e.MasterDownError("Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        e.ClusterDownError("The cluster is down"),
        e.TryAgainError("Multiple keys request during rehashing of slot"),
        e.NoScriptError("No matching script."),
        e.BusyLoadingError("Redis is loading the dataset in memory"),
        e.ResponseError("BUSY Redis is busy running a script."),
        e.ResponseError("NOREPLICAS Not enough good replicas to write."),
    ],
)
def test_what_passes_by_itself_is_asked_again(error: Exception) -> None:
    found = meaning(error, OPTIONS)
    assert found.restartable
    assert "does not answer" not in found.what
