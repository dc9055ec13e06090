"""A checkpoint from a savepoint: in an empty place, nothing above its epoch in it, its id last.

Without ``metadata`` no query starts there as one of ours: Spark refuses, or draws another id, and then the log is that
of another query. What a kill has left is gone on with by the same command: ``starting.json`` tells whose beginning it
is.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly import failpoints, offsets
from onceonly.durable.sealed import UNREADABLE, decoder
from onceonly.errors import ConfigurationError, LogError
from onceonly.guards import known
from onceonly.log import files as log_files
from onceonly.log import identity, origin
from onceonly.log.identity import Identity
from onceonly.log.place import FOLDER, home_of, log_store
from onceonly.model import Link, LinkKind, Receipt, Skip
from onceonly.savepoints.alone import alone, clear
from onceonly.savepoints.copying import Copier
from onceonly.savepoints.manifest import FILES
from onceonly.savepoints.place import differs
from onceonly.sources.kinesis import carried
from onceonly.sources.kinesis.positions import forked
from onceonly.stores.address import Kind
from onceonly.stores.opened import address_of, folder_of, open_store
from onceonly.stores.port import put_once
from onceonly.stores.probing import PROBES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from onceonly.savepoints.copying import Told
    from onceonly.savepoints.manifest import Savepoint
    from onceonly.stores.address import Address
    from onceonly.stores.port import RewritableStore

MARK: Final = "starting.json"
_ID: Final = "metadata"
_LAST = ("offsets/", "commits/")
_SCHEMAS = re.compile(r"state/\d+/_metadata/v2/\d+")
_SCHEMA = re.compile(r'"[^"]*?(/state/\d+/_stateSchema/[^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What is being made: from which savepoint, as which query, and whether that one is another than it was of."""

    savepoint: str
    query: str
    anew: bool


def refuse_if_taken(to: str) -> None:
    """See that a place is empty, or that a checkpoint was begun there. Raises ``ConfigurationError``."""
    _refuse_if_taken(open_store(address_of(to)), to)


def _refuse_if_taken(store: RewritableStore, to: str) -> None:
    found = _beginning(store.get(MARK))
    if found is None:
        # What tried the store and was killed is nobody's.
        if any(not name.startswith(PROBES) for name in store.tree("")):
            raise _taken(to, "there is something in it")
    elif (other := _id_in(store)) not in {"", found.query} and _has_run(store, to, found):
        raise _taken(to, f"query {other} has been started there since a restore or a fork was broken off")


def _has_run(store: RewritableStore, to: str, begun: Beginning) -> bool:
    """Say whether another query than the one that was begun at a place has done anything there.

    A start that was refused has left no more than its id, and where it would have begun.
    """
    own = identity.read(log_store(to))
    return bool(store.list_names("commits/")) if own is None else own.query != begun.query


def _taken(to: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{to} is no empty place: {what}", next_step="name a place that is empty, or not there yet"
    )


def is_begun(to: str) -> bool:
    """Say whether a checkpoint was begun at a place, and not finished: its query has not run there."""
    store = open_store(address_of(to))
    found = _beginning(store.get(MARK))
    return found is not None and _id_in(store) != found.query


def refuse_begun(checkpoint: str) -> None:
    """See that no restore or fork to a place was broken off: what is there is not whole, or nothing is there yet.

    Raises ``ConfigurationError``.
    """
    if is_begun(checkpoint):
        raise ConfigurationError(
            f"{checkpoint} is not whole: onceonly savepoint restore or fork has begun to make it, and was broken off",
            next_step="type that command again as it was typed, then start the job; or empty this folder to begin anew",
        )


def finished(savepoint: Savepoint, to: str, *, anew: Collection[bool]) -> Beginning | None:
    """Return what was made of a savepoint at a place, where only its mark is left to be taken away, which is done.

    None where something else was, or nothing whole: its job may run by now, and it is not made once more.
    """
    store = open_store(address_of(to))
    found = _beginning(store.get(MARK))
    if found is None or found.savepoint != savepoint.name or found.anew not in anew:
        return None
    if _id_in(store) != found.query:
        return None
    _finish(store)
    return found


def _finish(store: RewritableStore) -> None:
    store.sync(_ID)
    store.delete(MARK)
    clear(store)


def _id_in(store: RewritableStore) -> str:
    """Return the id of the query whose checkpoint a place is; empty without a whole one."""
    try:
        return str(json.loads(store.get(_ID) or b"")["id"])
    except (ValueError, LookupError, TypeError):
        return ""


def _beginning(mark: bytes | None) -> Beginning | None:
    try:
        return decoder(Beginning).decode(mark or b"")
    except UNREADABLE:
        return None


@contextlib.contextmanager
def begin(savepoint: Savepoint, to: str, *, anew: bool) -> Iterator[tuple[Beginning, Callable[[], None]]]:
    """See that a place is empty, or holds what this very command has begun; yield what is being made there.

    With ``anew`` it is a query of its own, whose id is drawn now. No other process makes it meanwhile; the second value
    sees that this is so still, and raises where another one has gone on. Raises ``ConfigurationError``.
    """
    address = address_of(to)
    store = open_store(address)
    _refuse_if_taken(store, to)
    if store.get(MARK) is None:
        query = str(uuid.uuid4()) if anew else savepoint.query
        drawn = Beginning(savepoint=savepoint.name, query=query, anew=anew)
        store.prepare([])
        put_once(store, MARK, msgspec.json.encode(drawn))
    with alone(store, folder_of(address), MARK, to) as require_alone:
        # Who was quicker has drawn its id, or is done by now.
        found = _beginning(store.get(MARK))
        if found is None or (found.savepoint, found.anew) != (savepoint.name, anew):
            raise _taken(to, "something else was begun there")
        yield found, require_alone


def build(
    place: Address,
    savepoint: Savepoint,
    to: str,
    begun: Beginning,
    *,
    refused: bool,
    before_id: Callable[[], None],
    told: Told,
) -> None:
    """Make the checkpoint. Idempotent, safe to be killed in; it can be started from when this returns.

    ``before_id`` is called when all but Spark's own id is there: what it raises leaves the place unfit to be started
    from. ``refused`` has a query of its own refuse the targets of the one that the savepoint is of, at its first start.

    Raises ``LogError`` where the savepoint is damaged, ``UnavailableError``.
    """
    address = address_of(to)
    copier = Copier(place.below(FILES.rstrip("/")), address)
    there = [each.name for each in savepoint.files if not _is_range(each.name)]
    kept = [name for name in there if not begun.anew or _is_anybodys(name)]
    first = [name for name in kept if not name.startswith(_LAST) and name != _ID and not _is_identity(name)]
    _copy(copier, savepoint, first, address, told)
    if begun.anew:
        _begin_log(savepoint, place, to, begun, refused=refused)
    else:
        _copy(copier, savepoint, list(filter(_is_identity, kept)), address, told)
        identity.record_move(log_store(to), home_of(to))
    last = [name for name in kept if name.startswith(_LAST)]
    _copy(copier, savepoint, last, address, told, fork=begun.query if begun.anew else "")
    own = json.dumps({"id": begun.query}, separators=(",", ":")).encode()
    # Read before the rest is done that cannot be undone: somebody may drop the savepoint.
    last_of_all = own if begun.anew else _data(savepoint, place, _ID)
    before_id()
    failpoints.hit("savepoint.before_id")
    copier.put(_ID, last_of_all)
    _finish(open_store(address))


def ranges_of(savepoint: Savepoint, place: Address) -> dict[str, bytes]:
    """Return the files of ranges that a savepoint carries. Raises ``LogError`` where it is damaged."""
    names = [each.name for each in savepoint.files if _is_range(each.name)]
    return {name.removeprefix(f"{FOLDER}/"): _data(savepoint, place, name) for name in names}


def bring(savepoint: Savepoint, place: Address, begun: Beginning, places: Mapping[int, str]) -> list[str]:
    """Put the ranges that a savepoint carries where its start looks for them; say where, in sentences.

    ``places`` are where ranges are kept, by a source's place in the barrier, where that is said. Idempotent. Raises
    ``ConfigurationError``, ``LogError`` where the savepoint is damaged, ``UnavailableError``.
    """
    files, found = ranges_of(savepoint, place), list[str]()
    for number, line in enumerate(savepoint.barrier):
        start = forked(line, begun.query) if begun.anew else line
        found.append(carried.bring(start, carried.held(line, files), places.get(number, "")))
    return [
        f"where chk-{savepoint.epoch} ended in Kinesis was put to the ranges at {each}"
        for each in found
        if each
    ]


def _copy(
    copier: Copier, savepoint: Savepoint, names: Sequence[str], to: Address, told: Told, fork: str = ""
) -> None:
    """Copy files, and see that they are those of the manifest. ``fork`` is the id of a query of its own."""
    listed = {each.name: each for each in savepoint.files}
    changed = {
        name: copier.source.get(name)
        for name in names
        if _SCHEMAS.fullmatch(name) or (fork and name.startswith("offsets/"))
    }
    wrong = [found for name, data in changed.items() if (found := differs(listed[name], data))]
    if not wrong:  # else there may be no text in it
        own = {
            name: _moved(data or b"", to) if _SCHEMAS.fullmatch(name) else _forked(data or b"", fork)
            for name, data in changed.items()
        }
        copied, gone = copier.copy_all(names, own=own, told=told)
        wrong = [f"{name} is missing" for name in gone]
        wrong += [
            f"{each.name} has other bytes than it had"
            for each in copied
            if each.name not in own and each != listed[each.name]
        ]
    if wrong:
        raise LogError(
            f"the savepoint {savepoint.name} is damaged: {'; '.join(wrong[:5])}",
            next_step="take another savepoint: onceonly savepoint verify PLACE says which are whole",
        )


def _moved(schemas: bytes, to: Address) -> bytes:
    """Let what transformWithState says of its schemas point into their new place: it keeps whole addresses."""
    root = f"file:{to.path}" if to.kind is Kind.FOLDER else to.location
    quoted = json.dumps(root)[1:-1]
    return _SCHEMA.sub(lambda match: f'"{quoted}{match[1]}"', schemas.decode()).encode()


def _forked(data: bytes, fork: str) -> bytes:
    """Let the offsets of a barrier be those that a fork begins with."""
    text = data.decode()
    for offset in offsets.barrier(text):
        text = text.replace(offset, forked(offset, fork))
    return text.encode()


def _is_identity(name: str) -> bool:
    return name.startswith(f"{FOLDER}/identity")


def _is_range(name: str) -> bool:
    return name.startswith(f"{FOLDER}/range.")


def _is_anybodys(name: str) -> bool:
    """Say whether a file tells of Spark's query, and nothing of whose transactions are whose."""
    return not name.startswith(f"{FOLDER}/") or name == known.NAME


def _begin_log(savepoint: Savepoint, place: Address, to: str, begun: Beginning, *, refused: bool) -> None:
    """Begin the log of a query of its own: its first epoch is the savepoint's, which another has decided."""
    link = decided_of(savepoint, place)
    store = log_store(to)
    store.prepare(log_files.FOLDERS)
    wanted = origin.Origin(targets=_targets(savepoint, place, refused=refused))
    if wanted.targets:
        put_once(store, origin.NAME, origin.encode(wanted))
    if (origin.read(store) or origin.Origin()) != wanted:
        raise _taken(to, "a fork was begun there that keeps away from other targets")
    put_once(
        store,
        identity.NAME,
        log_files.encode("identity", Identity(query=begun.query, log=uuid.uuid4().hex, address=home_of(to))),
    )
    plan = f"savepoint-{savepoint.name}.0"
    first = replace(
        link,
        index=0,
        kind=LinkKind.SKIPPED,
        plan=plan,
        run="",
        votes=(),
        carried=(),
        barrier=tuple(_of_fork(each, begun.query) for each in link.barrier),
        settings=link.settings if refused else {},
        uses={},
        reason=Skip.SAVEPOINT.value,
    )
    put_once(store, log_files.link(link.epoch, 0), log_files.encode("link", first))
    receipt = Receipt(epoch=link.epoch, index=0, plan=plan)
    put_once(store, log_files.receipt(link.epoch), log_files.encode("receipt", receipt))


def _of_fork(line: str, fork: str) -> str:
    offset = offsets.plain(line, "")
    found = forked(offset, fork)
    return line if found == offset else found


def _targets(savepoint: Savepoint, place: Address, *, refused: bool) -> tuple[origin.Target, ...]:
    """Return the targets that a fork keeps away from: those of its query, if so, and those that this one kept from.

    Not each epoch writes to all sinks of a query, so all links that the savepoint has are asked.
    """
    name, links = f"{FOLDER}/{origin.NAME}", f"{FOLDER}/{log_files.LINKS}"
    names = [each.name for each in savepoint.files]
    kept = origin.decode(_data(savepoint, place, name), where=name).targets if name in names else ()
    if not refused:
        return kept
    own = [_link(savepoint, place, each) for each in sorted(names, reverse=True) if each.startswith(links)]
    known = [each.identity for each in kept]
    return (*(each for each in origin.targets_of(own) if each.identity not in known), *kept)


def decided_of(savepoint: Savepoint, place: Address) -> Link:
    """Return the decision of a savepoint's epoch. Raises ``LogError`` where it is damaged."""
    prefix = f"{FOLDER}/{log_files.LINKS}{savepoint.epoch:020d}."
    count = sum(each.name.startswith(prefix) for each in savepoint.files)
    return _link(savepoint, place, f"{prefix}{count - 1}.json")


def _link(savepoint: Savepoint, place: Address, name: str) -> Link:
    return log_files.decode(_data(savepoint, place, name), kind="link", into=Link, where=name)


def _data(savepoint: Savepoint, place: Address, name: str) -> bytes:
    """Return a file of our own of a savepoint. Raises ``LogError`` where it is not as it was."""
    listed = next((each for each in savepoint.files if each.name == name), None)
    data = open_store(place).get(FILES + name)
    if listed is None or data is None or differs(listed, data):
        raise LogError(
            f"the savepoint {savepoint.name} is damaged: {name} is missing or has other bytes",
            next_step="take another savepoint: onceonly savepoint verify PLACE says which are whole",
        )
    return data
