"""Building the sinks of a query again, from what its links say, so that their targets can be asked and served.

The links hold every option but the secret ones; those are given here, once more, by the operator.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from concurrent.futures import wait
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.coordinator.coordinator import Participant
from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError, typed
from onceonly.model import LinkKind, SinkUse, differing
from onceonly.operations import elsewhere
from onceonly.operations.states import HandleState
from onceonly.ports import QueryContext
from onceonly.ports.standing import Standing, Stands
from onceonly.settings.registry import BUILT_IN, load, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from onceonly.model import Handle, Link
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.operations.states import HandleView
    from onceonly.ports import Leftover, Sink
    from onceonly.settings.registry import SinkClass

# Sinks that took part in the epoch before, but not in the newest (another branch of the user's code), may have
# something open too; one that no epoch has used for longer is not asked.
_EPOCHS = 2
_CLOSE_S = 10.0
# What an option is called that says where a target is.
_ADDRESS = re.compile(r"(servers?|hosts?|url|uri|endpoint|address|path|folder)$", re.IGNORECASE)


def chains(checkpoint: Checkpoint, *, since: int | None = None) -> Iterator[tuple[Link, ...]]:
    """Yield the chains of the newest epochs, and of all ``since`` one, newest first; none of one that is folded."""
    for number, epoch in enumerate(checkpoint.log.epochs()[::-1]):
        if number >= _EPOCHS and (since is None or epoch <= since):
            return
        if chain := checkpoint.log.chain(epoch):
            yield chain


def links(checkpoint: Checkpoint, *, since: int | None = None) -> list[Link]:
    """Return the links of the newest epochs, and of all ``since`` one, newest first."""
    return [link for chain in chains(checkpoint, since=since) for link in reversed(chain)]


def uses(checkpoint: Checkpoint, given: Given, *, since: int | None = None) -> dict[str, SinkUse]:
    """Say which sinks took part in the newest epochs, and in all ``since`` one, and how."""
    found: dict[str, SinkUse] = {}
    for link in links(checkpoint, since=since):
        for name, use in link.uses.items():
            found.setdefault(name, use)
    for name, path in given.classes.items():
        if name not in found:
            raise _no_sink(name, found)
        found[name] = SinkUse(sink=path, guarantee=found[name].guarantee, options=found[name].options)
    for name in given.by_sink:
        if name not in found:
            raise _no_sink(name, found)
    return found


def names(checkpoint: Checkpoint) -> set[str]:
    """Name the sinks of the newest epochs."""
    return {name for link in links(checkpoint) for name in link.uses}


def decided_by(checkpoint: Checkpoint, epoch: int) -> set[str] | None:
    """Name the sinks that an epoch which is decided writes to; None where nothing says so."""
    chain = checkpoint.log.chain(epoch)
    if chain and chain[-1].kind is LinkKind.COMMIT:
        return set(chain[-1].settings)
    return None


def require_decided(checkpoint: Checkpoint, epoch: int, made: Collection[str]) -> None:
    """See that the sinks of an epoch's decision are among those that could be made. Raises ``ConfigurationError``."""
    missing = (decided_by(checkpoint, epoch) or set()) - set(made)
    if missing:
        raise ConfigurationError(
            f"chk-{epoch} of query {checkpoint.query} is decided for the sink {', '.join(sorted(missing))}, and its "
            "link does not say how that is reached; nothing was touched",
            next_step="start the query, which knows its sinks, and commits what is decided",
        )


@contextlib.contextmanager
def participants(
    checkpoint: Checkpoint, given: Given, *, since: int | None = None
) -> Iterator[dict[str, Participant]]:
    """Make the sinks of a query, and close them in the end. Touches no target by itself.

    They are those of the newest epochs, and of all ``since`` one, if that is said.

    Raises ``ConfigurationError`` for a class or an option that is wrong or missing, ``SetupError`` where a
    client library is.
    """
    wanted = uses(checkpoint, given, since=since)
    for name, use in wanted.items():
        # Whoever can write into the checkpoint would choose what this process runs.
        if use.sink not in BUILT_IN and name not in given.classes:
            raise ConfigurationError(
                f"the checkpoint says that the sink {name} of query {checkpoint.query} is {use.sink}, and no code is "
                "run because a file names it",
                next_step=f"if that is your class, say so with --sink {name}={use.sink}",
            )
    classes = {name: _load(name, use.sink) for name, use in wanted.items()}
    _refuse_unused(given, classes)
    for name, use in wanted.items():
        _agree(checkpoint, given, name, use, classes[name])
    with contextlib.ExitStack() as stack:
        made: dict[str, Participant] = {}
        for name, use in wanted.items():
            options = options_of(given, name, use)
            try:
                sink = load(classes[name])(options)
                sink.place = place_of(checkpoint.location)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"the sink {name} of query {checkpoint.query}: {error.what}",
                    next_step=f"{error.next_step}; options that are secret are not in the log: give them with "
                    f"--option {name}:NAME=VALUE or --options-file",
                ) from error
            stack.callback(_close, sink)
            made[name] = Participant(sink=sink, guarantee=use.guarantee, use=use)
        yield made


def _close(sink: Sink) -> None:
    """Close a sink, and do not wait for one that a question without an answer still holds."""
    closed = background.begin("onceonly-close", sink.close)
    wait([closed], _CLOSE_S)
    if closed.done():
        closed.result()


def refuse_other_target(
    checkpoint: Checkpoint, given: Given, made: Mapping[str, Participant], *, since: int | None = None
) -> None:
    """See that each sink leads to the target that its newest link names. May connect; changes nothing, checks nothing.

    Raises ``ConfigurationError`` that names what differs, ``UnavailableError`` where a target cannot be asked.
    """
    error = _other_target(checkpoint, given, made, since=since)
    if error is not None:
        raise error


def _other_target(
    checkpoint: Checkpoint, given: Given, made: Mapping[str, Participant], *, since: int | None = None
) -> ConfigurationError | None:
    """Return the error for the first sink that leads to another target than its newest link names; None for none.

    Where nothing is pending and no option could have led elsewhere, the world has changed, and the query goes on in it.
    """
    newest = links(checkpoint, since=since)
    for name, each in made.items():
        link = next((link for link in newest if name in link.settings), None)
        if link is None or (_is_settled(checkpoint, link) and not _leads(given, name)):
            continue
        then = dict(link.settings[name])
        with asking(checkpoint, name):
            now = dict(each.sink.identity())
        differ = differing(then, now)
        if differ:
            return elsewhere.error(checkpoint, given, name, link, now, differ)
    return None


def open_outside(checkpoint: Checkpoint, given: Given) -> list[tuple[str, Leftover]]:
    """Ask the targets what this query has open there that no pending link names.

    Raises ``UnavailableError``, and ``ConfigurationError`` where a target is another one than the log names.
    """
    with participants(checkpoint, given) as made:
        refuse_other_target(checkpoint, given, made)
        return outside(checkpoint, made)


def is_open_again(checkpoint: Checkpoint, given: Given, handle: HandleView) -> bool:
    """Say whether the name of what is committed is that of another transaction by now, which no link names.

    No where the targets cannot be asked.
    """
    if handle.state is not HandleState.COMMITTED:
        return False
    try:
        return any(item.transaction == handle.transaction for _, item in open_outside(checkpoint, given))
    except OnceonlyError:
        return False


def outside(checkpoint: Checkpoint, made: Mapping[str, Participant]) -> list[tuple[str, Leftover]]:
    """Ask sinks that are made already as ``open_outside`` does."""
    named = pending(checkpoint)
    return [
        (name, item)
        for name, items in leftovers(checkpoint, made)
        for item in items
        if item.is_open and item.transaction not in named
    ]


def context_of(
    query: str, name: str, participant: Participant, columns: tuple[tuple[str, str], ...] = ()
) -> QueryContext:
    """Return what a sink is told of the query that it is asked about."""
    return QueryContext(query=query, sink=name, guarantee=participant.guarantee, columns=columns)


def leftovers(
    checkpoint: Checkpoint, made: Mapping[str, Participant]
) -> Iterator[tuple[str, list[Leftover]]]:
    """Ask each sink that can tell what the query has left in its target, ended or not; changes nothing."""
    for name, each in made.items():
        if each.sink.capabilities.recovers:
            with asking(checkpoint, name):
                found = list(each.sink.recover(context_of(checkpoint.query, name, each)))
            yield name, found


def pending(checkpoint: Checkpoint) -> set[str]:
    """Name the transactions of the newest decision, where it is not settled: of one that is, names are used again."""
    return {
        vote.handle.transaction
        for link in links(checkpoint)[:1]
        if not _is_settled(checkpoint, link)
        for vote in link.votes
        if vote.handle is not None
    }


def look_up(
    checkpoint: Checkpoint, given: Given, transactions: Collection[tuple[str, Handle]], *, within_s: float
) -> dict[tuple[str, str], Standing]:
    """Ask the targets what they have of transactions, by sink and name; changes nothing.

    What cannot be told, for whatever reason, is unknown and says why: a target is down, a sink is not to be had here.
    """
    told: dict[tuple[str, str], Standing] = {}
    names = {name for name, _ in transactions}
    try:
        with participants(checkpoint, given) as made:
            asked = {name: each for name, each in made.items() if name in names}
            other = _other_target(checkpoint, given, asked)
            for name, handle in transactions:
                told[name, handle.transaction] = (
                    standing(made.get(name), handle, within_s=within_s)
                    if other is None
                    else _unknown(other, elsewhere.Elsewhere)
                )
    except OnceonlyError as error:
        told = {(name, handle.transaction): _unknown(error) for name, handle in transactions} | told
    return told


def _unknown(error: OnceonlyError, kind: type[Standing] = Standing) -> Standing:
    return kind(stands=Stands.UNKNOWN, told=f"{error.what} ({typed(error)})")


def standing(participant: Participant | None, handle: Handle, *, within_s: float) -> Standing:
    """Ask one target what it has of a transaction; never raises, and waits no longer than that."""
    if participant is None:
        return Standing(
            stands=Stands.UNKNOWN, told="none of the two newest epochs says how its sink is reached"
        )
    try:
        return answer(participant, handle, within_s=within_s)
    except OnceonlyError as error:
        return Standing(stands=Stands.UNKNOWN, told=error.what)
    except Exception as error:  # noqa: BLE001  whatever a sink lets slip tells nothing
        return Standing(stands=Stands.UNKNOWN, told=f"{type(error).__name__}: {error}")


def answer(participant: Participant, handle: Handle, *, within_s: float) -> Standing:
    """Ask as ``standing`` does, and raise where there is no answer; ``UnavailableError`` where it takes too long."""
    asked = background.begin("onceonly-look-up", participant.sink.look_up, handle)
    wait([asked], within_s)
    if not asked.done():
        raise UnavailableError(
            f"the target did not answer within {within_s:g} s", next_step="see to its target and ask again"
        )
    return asked.result()


@contextlib.contextmanager
def asking(checkpoint: Checkpoint, name: str) -> Iterator[None]:
    """Turn whatever a sink lets slip into ``UnavailableError``."""
    try:
        yield
    except OnceonlyError:
        raise
    except Exception as error:
        raise UnavailableError(
            f"the sink {name} of query {checkpoint.query} could not be asked: {type(error).__name__}: {error}",
            next_step="see to its target and ask again",
        ) from error


def _is_settled(checkpoint: Checkpoint, link: Link) -> bool:
    return link.kind is LinkKind.ABORT or checkpoint.log.receipt(link.epoch) is not None


def _leads(given: Given, name: str) -> bool:
    """Say whether the operator has given anything that the sink's target may depend on."""
    return bool(given.options or given.by_sink.get(name) or name in given.classes)


def _load(name: str, path: str) -> SinkClass:
    """Return the class of a sink. Raises ``ConfigurationError`` where it cannot be imported here."""
    if path in BUILT_IN:
        return BUILT_IN[path]
    module, colon, attribute = path.partition(":")
    hint = f"say where it is with --sink {name}=package.module:Class, and put its folder on PYTHONPATH"
    if not colon or module == "__main__":
        raise ConfigurationError(f"the sink {name} is {path}, which cannot be imported here", next_step=hint)
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"the sink {name} is {path}, which cannot be imported here: {error}", next_step=hint
        ) from error
    if not (isinstance(found, type) and callable(getattr(found, "commit", None))):
        raise ConfigurationError(f"the sink {name} is {path}, which is no sink class", next_step=hint)
    return found


def _agree(checkpoint: Checkpoint, given: Given, name: str, use: SinkUse, sink: SinkClass) -> None:
    """Have the operator agree before a secret of theirs goes where only the checkpoint says."""
    own = _known(given, name, sink)
    declared = {option.name.lower(): option for option in load(sink).declared}
    secret = sorted(key for key in own if key in declared and declared[key].secret)
    told = {key: value for key, value in use.options.items() if key.lower() not in own}
    where = {key: value for key, value in told.items() if _ADDRESS.search(key)}
    named_by_operator = not where and any(_ADDRESS.search(key) for key in own)
    if not secret or not told or named_by_operator or given.agree is None:
        return
    shown = ", ".join(f"{key}={value}" for key, value in sorted((where or told).items()))
    given.agree(
        f"sink {name} of query {checkpoint.query}: {', '.join(secret)} will be used with what the checkpoint says: "
        f"{shown}"
    )


def options_of(given: Given, name: str, use: SinkUse) -> dict[str, str]:
    """Return all options of a sink: those that the log has, and over them what the operator gives."""
    return {**use.options, **_known(given, name, _load(name, use.sink))}


def _known(given: Given, name: str, sink: SinkClass) -> dict[str, str]:
    """Return the operator's options for one sink: its own, and of the common ones those that it knows."""
    declared = {option.name.lower() for option in load(sink).declared}
    common = {key: value for key, value in given.options.items() if key.lower() in declared}
    return {key.lower(): value for key, value in {**common, **given.by_sink.get(name, {})}.items()}


def _refuse_unused(given: Given, classes: Mapping[str, SinkClass]) -> None:
    known = {option.name.lower() for sink in classes.values() for option in load(sink).declared}
    for name in given.options:
        if name.lower() not in known:
            raise ConfigurationError(
                f"no sink of this query knows the option {name}", next_step="remove it, or correct its name"
            )


def _no_sink(name: str, found: Mapping[str, SinkUse]) -> ConfigurationError:
    return ConfigurationError(
        f"the query has no sink named {name}", next_step=f"it has {', '.join(sorted(found)) or 'none'}"
    )
