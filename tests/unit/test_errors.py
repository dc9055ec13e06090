"""Errors name the thing and the next step, and come back out of Spark's texts."""

from __future__ import annotations

import pickle

import pytest

from onceonly import errors
from onceonly.errors import (
    CheckpointMovedError,
    ConfigurationError,
    LogError,
    OnceonlyError,
    SetupError,
    UnavailableError,
    find_error,
    required,
    typed,
)

# Other programs, as the benchmark does, derive errors of their own.
OWN = [kind for kind in errors._kinds().values() if kind.__module__ == errors.__name__]
KINDS = sorted(OWN, key=lambda kind: kind.code)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_error_survives_pickle_and_text(kind: type[OnceonlyError]) -> None:
    error = kind("transaction t1 of chk-3 [in] the way", next_step="look at it, then start again")

    for found in (pickle.loads(pickle.dumps(error)), find_error(f"Job aborted: {error}\n  at Foo")):  # noqa: S301
        assert type(found) is kind
        assert (found.what, found.next_step) == (error.what, error.next_step)


def test_who_lacks_a_package_is_told_who_needs_it_and_which_extra_brings_it() -> None:
    with (
        pytest.raises(SetupError) as caught,
        required("the bank needs ledgers", extra="bank", where="at home"),
    ):
        import onceonly_has_no_ledgers  # type: ignore[import-not-found]  # noqa: F401
    assert "the bank needs ledgers, which cannot be used here: No module named" in caught.value.what
    assert caught.value.next_step == "pip install 'onceonly[bank]' at home"
    with pytest.raises(ValueError, match="another"), required("x", extra="x"):
        raise ValueError("another error is let through")


def test_every_kind_has_a_code_of_its_own() -> None:
    def below(kind: type[OnceonlyError]) -> list[type[OnceonlyError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in below(child))]

    codes = [kind.code for kind in below(OnceonlyError)]

    assert len(codes) == len(set(codes))


def test_the_last_tag_in_a_text_is_the_cause() -> None:
    outer = UnavailableError("the broker", next_step="wait")
    inner = CheckpointMovedError("the checkpoint", next_step="accept the move")

    found = find_error(f"{outer}\nCaused by: {inner}\n\tat org.apache.spark")

    assert type(found) is CheckpointMovedError


def test_an_error_is_found_as_itself() -> None:
    error = UnavailableError("the broker", next_step="wait")

    assert find_error(error) is error


@pytest.mark.parametrize("text", ["", "java.lang.Foo", "[ONCEONLY:IN_DOUBT] torn"])
def test_a_text_without_a_whole_tag_holds_no_error(text: str) -> None:
    assert find_error(text) is None


def test_an_unknown_code_is_still_an_error_of_ours() -> None:
    found = find_error("[ONCEONLY:FROM_A_NEWER_RELEASE] what [next: do]")

    assert type(found) is OnceonlyError


def test_only_what_a_restart_can_answer_is_restartable() -> None:
    assert {kind.code for kind in KINDS if kind.restartable} == {
        "CHECKPOINT_CHANGED",
        "COMMIT_DELAYED",
        "EPOCH_TIMEOUT",
        "TRANSACTION_LOST",
        "UNAVAILABLE",
        "WRITE_FAILED",
    }


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (
            UnavailableError("it is silent", next_step="see to the server, and start the query again"),
            "see to the server, and run this command again",
        ),
        (LogError("it is gone", next_step="start the query again"), "start the query again"),
        (
            ConfigurationError("it is missing", next_step="set .option('checkpointLocation', <path>) on it"),
            "set checkpointLocation=<path> on it",
        ),
        (
            ConfigurationError("it is wrong", next_step="set .option('onceonly.job', '2026-11-01')"),
            "set onceonly.job=2026-11-01",
        ),
    ],
)
def test_a_next_step_speaks_to_who_typed_a_command(error: OnceonlyError, step: str) -> None:
    assert typed(error) == step
