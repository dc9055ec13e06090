"""Asking the sinks of a query side by side, within one bound for all. Driver."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION
from typing import TYPE_CHECKING, TypeVar

from onceonly.background import begin, wait_awake
from onceonly.errors import OnceonlyError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

# What a mistake in a sink's code raises. No other try heals it, so it is not called "unavailable".
MISTAKES = (AttributeError, NameError, TypeError, LookupError, AssertionError, NotImplementedError)
_NEXT_STEP = "Start the query again: nothing was decided, and the epoch is run again."


def ask(questions: Mapping[str, Callable[[], T]], *, within_s: float, about: str) -> dict[str, T]:
    """Ask each sink in a thread of its own; return the answers by the sinks' names once all are there.

    Raises ``UnavailableError`` where one is missing after ``within_s`` seconds, or where a sink let an error of its
    client slip; a typed error and a mistake in a sink's code are raised as what they are. ``about`` names query, epoch
    and question. Whoever does not answer in time is left behind and keeps no process alive.
    """
    answers = {name: begin(f"onceonly-ask-{name}", question) for name, question in questions.items()}
    wait_awake(list(answers.values()), within_s, return_when=FIRST_EXCEPTION)
    for name, answer in answers.items():
        error = answer.exception() if answer.done() else None
        if error is not None:
            raise _named(error, name, about)
    missing = [name for name, answer in answers.items() if not answer.done()]
    if missing:
        raise UnavailableError(
            f"{about}: no answer of the sink {', '.join(missing)} within {within_s:g} s, the time that all sinks have "
            "together.",
            next_step=_NEXT_STEP,
        )
    return {name: answer.result() for name, answer in answers.items()}


def _named(error: BaseException, name: str, about: str) -> BaseException:
    if isinstance(error, MISTAKES):
        error.add_note(
            f"{about}: raised by the sink {name}, whose code is to be corrected; nothing was decided."
        )
        return error
    if isinstance(error, OnceonlyError) or not isinstance(error, Exception):
        return error
    unavailable = UnavailableError(
        f"{about}: the sink {name} could not say: {type(error).__name__}: {error}", next_step=_NEXT_STEP
    )
    unavailable.__cause__ = error
    return unavailable
