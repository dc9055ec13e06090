"""Contract: options, secrets, and what a sink says of itself."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly_proof.conformance.selection import SECRETS, TWO_PHASES, needs
from onceonly_proof.conformance.subject import Subject
from onceonly_proof.conformance.world import broken, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.conformance.world import World

_WRONG = "no.such.option"
_FACTS = {str, int}


class FrontTests(Subject):
    """Options are checked, facts are plain, secrets are shown nowhere."""

    def test_a_wrong_option_is_a_configuration_error_that_names_it(self, world: World) -> None:
        error = refused(lambda: world.sink(**{_WRONG: "1"}))
        if not isinstance(error, ConfigurationError) or _WRONG not in str(error):
            raise broken("an unknown option is a ConfigurationError that names it", repr(error))
        for option in world.suite.sink.declared:
            if not option.required:
                continue
            given = {
                name: text for name, text in world.options.items() if name.lower() != option.name.lower()
            }
            error = refused(lambda given=given: world.suite.sink(given).close())  # type: ignore[misc]
            if not isinstance(error, ConfigurationError) or option.name not in str(error):
                raise broken(f"without {option.name}, a ConfigurationError names it", repr(error))

    def test_options_are_taken_in_lower_case_too(self, world: World) -> None:
        # Spark lowers them on its way to a Python data source.
        lowered = {name.lower(): text for name, text in world.options.items()}
        error = refused(lambda: world.suite.sink(lowered).close())
        if error is not None:
            raise broken("options are taken in lower case", repr(error))

    def test_making_and_closing_a_sink_changes_nothing(self, world: World) -> None:
        for _ in range(2):
            sink = world.sink()
            sink.close()
            sink.close()
        world.expect([], "making a sink writes no row")

    def test_check_and_identity_give_plain_facts_that_stay(self, world: World) -> None:
        facts = expect_plain("check", world.driver.check(world.context))
        identity = expect_plain("identity", world.driver.identity())
        world.driver.check(world.context)
        other = world.sink()
        if dict(other.identity()) != identity:
            raise broken("identity is the same for every instance", f"{identity}, then {other.identity()}")
        # The operator's commands know no columns.
        again = expect_plain("check", other.check(_without_columns(world)))
        differs = {name for name in facts.keys() & again.keys() if facts[name] != again[name]}
        if differs:
            raise broken("check gives the same facts without columns", f"{sorted(differs)} differ")
        world.expect([], "check and identity write no row")

    @needs(TWO_PHASES)
    def test_what_travels_between_processes_holds_no_sink(self, world: World) -> None:
        with world.run(epochs=1, slots=1) as query:
            for sink in query.sinks.values():
                # Whoever pickled it, or what holds it, would see this.
                sink.__dict__["not_to_be_pickled"] = _Unpicklable()
            plan = query.plan(0)
            votes = [query.slot(plan, world.name, 0)]
            error = refused(lambda: pickle.dumps((plan, votes)))
            if error is not None:
                raise broken("plan and votes hold values only", repr(error))
            query.coordinator.decide(plan, votes)

    @needs(TWO_PHASES, SECRETS)
    def test_a_secret_is_shown_nowhere(self, world: World) -> None:
        declared = [option for option in world.suite.sink.declared if option.secret]
        names = {option.name.lower() for option in declared}
        secrets = [text for name, text in world.options.items() if name.lower() in names]
        shown: dict[str, str] = {}
        heard = _Heard()
        logging.getLogger().addHandler(heard)
        try:
            if not secrets:
                secrets, shown["repr of the sink"] = _drawn(world, declared[0].name)
            with world.run(slots=1) as query:
                sink = query.sinks[world.name]
                shown["repr of the sink"] = (
                    shown.get("repr of the sink", "") + repr(sink) + repr(_options(sink))
                )
                shown["identity"] = repr(sink.identity())
                shown["facts of check"] = repr(sink.check(world.context))
                plan = query.plan(0)
                shown["the plan"] = repr(plan)
                vote = query.slot(plan, world.name, 0)
                shown["the handle"] = repr(vote.handle)
                shown["what recover lists"] = repr(list(sink.recover(world.context)))
                query.coordinator.decide(plan, [vote])
                query.complete(0)
                query.run_all()
            shown["the error of a wrong option"] = repr(refused(lambda: world.sink(**{_WRONG: "1"})))
        finally:
            logging.getLogger().removeHandler(heard)
        shown["a log message"] = "\n".join(heard.lines)
        for path in Path(world.work().checkpoint).rglob("*.json"):
            shown[f"the decision log, {path.name}"] = path.read_text(encoding="utf-8")
        for place, text in shown.items():
            if any(secret in text for secret in secrets):
                raise broken("a secret is shown nowhere", f"it is in {place}")


def expect_plain(method: str, given: Mapping[str, str | int]) -> dict[str, str | int]:
    """See that facts survive JSON as they are."""
    facts = dict(given)
    wrong = {name: value for name, value in facts.items() if type(value) not in _FACTS}
    if wrong or json.loads(json.dumps(facts)) != facts:
        raise broken(f"{method} gives texts and whole numbers by name", f"{wrong or facts}")
    return facts


def _without_columns(world: World) -> Any:  # noqa: ANN401  a QueryContext
    from dataclasses import replace

    return replace(world.context, columns=())


def _drawn(world: World, name: str) -> tuple[list[str], str]:
    """Give a secret option a value that need not work; return it, and what a sink shows that has it."""
    secret = "onceonly-conformance-5ecret"  # noqa: S105  no password: a text to look for
    made: list[Any] = []
    error = refused(lambda: made.append(world.sink(**{name: secret})))
    return [secret], repr(error) + "".join(repr(sink) + repr(_options(sink)) for sink in made)


def _options(sink: Any) -> Any:  # noqa: ANN401  anybody's sink
    """Return the options that a sink keeps, as ``repr`` of an object that holds them would show them."""
    options = getattr(sink, "options", {})
    return dict(options)


class _Unpicklable:
    def __reduce__(self) -> Any:  # noqa: ANN401  never returns
        raise TypeError("a sink was pickled")


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
