"""Which tests are for which sink: by what its class declares, and by what its author gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from onceonly.model import Guarantee
from onceonly_proof.conformance.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


Test = TypeVar("Test", bound="Callable[..., Any]")

TWO_PHASES = "two phases"
RECOVERS = "recovers"
PROCESSES = "processes"
SECRETS = "secrets"
UNREACHABLE = "unreachable"
REFUSES = "refuses"
HIDDEN = "hidden"
_NEEDS = "conformance_needs"
_SLOW = "conformance_slow"


def reason_against(suite: type[Subject], test: object, given: Mapping[str, object]) -> str:
    """Say why a test, with the parameters given, is not for a sink; empty where it is. Pure."""
    lacks = lacking(suite)
    enough: Mapping[str, Collection[object]] = {} if suite.every_pass else getattr(test, _SLOW, {})
    if any(given[name] not in values for name, values in enough.items()):
        return "the target is slow, and other crash points and numbers of slots will do (every_pass is false)"
    return next((lacks[name] for name in getattr(test, _NEEDS, ()) if name in lacks), "")


def needs(*names: str) -> Callable[[Test], Test]:
    """Mark a test as one that needs what is named: a guarantee, or one of the names above."""

    def mark(test: Test) -> Test:
        setattr(test, _NEEDS, names)
        return test

    return mark


def slowly(**enough: Collection[object]) -> Callable[[Test], Test]:
    """Say which values of its parameters a test takes for a target that is slow."""

    def mark(test: Test) -> Test:
        setattr(test, _SLOW, enough)
        return test

    return mark


def lacking(suite: type[Subject]) -> dict[str, str]:
    """Name what a suite does not have, each with the reason. Pure."""
    offered = suite.sink.capabilities.guarantees
    found = {
        guarantee.value: f"{suite.sink.__name__} does not offer {guarantee.value}"
        for guarantee in Guarantee
        if guarantee not in offered
    }
    if not offered & {Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE}:
        found[TWO_PHASES] = f"{suite.sink.__name__} neither prepares nor stages: it is at-least-once only"
    if not suite.sink.capabilities.recovers:
        found[RECOVERS] = f"{suite.sink.__name__} does not list leftovers (recovers is false)"
    if not suite.outlives_processes:
        found[PROCESSES] = "the target does not outlive its process (outlives_processes is false)"
    if not any(option.secret for option in suite.sink.declared):
        found[SECRETS] = f"{suite.sink.__name__} declares no secret option"
    if not suite.sink.capabilities.gives_back:
        found[REFUSES] = f"{suite.sink.__name__} does not give back refused rows (gives_back is false)"
    elif suite.refusable is Subject.refusable:
        found[REFUSES] = "the suite has no rows that the target refuses (refusable is not given)"
    if suite.early:
        found[HIDDEN] = "the rows are seen early (early is true)"
    if suite.unreachable is Subject.unreachable:
        found[UNREACHABLE] = "the suite says no way to make the target unreachable (unreachable is not given)"
    return found
