"""The savepoints in a place: found, read, verified, dropped. Any process."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from onceonly import background, failpoints
from onceonly.errors import ConfigurationError, LogError, UnavailableError
from onceonly.model import seconds_of
from onceonly.savepoints import manifest
from onceonly.savepoints.copying import digest, unheard
from onceonly.savepoints.manifest import (
    BEGUN,
    FILES,
    NAME,
    SIGN,
    Savepoint,
    begun_of,
    encode_begun,
    moment_of,
    sign_of,
)
from onceonly.stores.opened import address_of, folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onceonly.savepoints.copying import Told
    from onceonly.savepoints.manifest import File
    from onceonly.stores.address import Address

AHEAD_S: Final = 60.0
"""What clocks of several machines may differ by."""
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One savepoint's folder. ``savepoint`` is None where its manifest is not there: begun, or half dropped.

    Where the manifest is ``damaged``, it is None, too. ``query`` says of which query it is, empty where that is not
    told.
    """

    address: Address
    query: str
    savepoint: Savepoint | None
    damaged: LogError | None = None

    @property
    def name(self) -> str:
        return self.address.path.rpartition("/")[2]


def refuse_unfit(place: str, checkpoint: str) -> None:
    """See that a savepoint of a checkpoint could be made in a place, which is left as it is.

    Raises ``ConfigurationError`` where the place is in the checkpoint, or no folder that could be written to;
    ``UnavailableError``.
    """
    refuse_inside(place, checkpoint)
    into = address_of(place, what="the place of savepoints")
    folder = folder_of(into)
    if folder is None:
        open_store(into).list_folders("")
        return
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "this user may not write there" if there.is_dir() else "it is no folder"
        raise ConfigurationError(
            f"no savepoint can be made in {place}: {there}: {why}", next_step="name a folder"
        )


def refuse_inside(place: str, checkpoint: str) -> None:
    """See that a place is not in a checkpoint, by their names. Raises ``ConfigurationError``."""
    into, source = address_of(place, what="the place of savepoints"), address_of(checkpoint)
    folder, around = folder_of(into), folder_of(source)
    if folder is not None and around is not None:
        is_inside = folder.resolve().is_relative_to(around.resolve())
    else:
        is_inside = f"{into.location.rstrip('/')}/".startswith(f"{source.location.rstrip('/')}/")
    if is_inside:
        raise ConfigurationError(
            f"{place} is in the checkpoint {checkpoint}, which the savepoint shall outlive",
            next_step="name a place beside it",
        )


def standing(place: str) -> list[Standing]:
    """Return the savepoints in a place, or the one that it is; those of later epochs first.

    Folders that this user may not enter, as a disk's ``lost+found``, are none. Raises ``UnavailableError``.
    """
    root = address_of(place, what="the place of savepoints")
    own = at(root)
    if own is not None:
        return [own]
    folders = sorted(open_store(root).list_folders(""))
    found = background.spread(
        "onceonly-look", lambda name: _seen(root.below(name)), folders, threads_max=_AT_ONCE
    )
    return sorted(
        (each for each in found if each is not None),
        key=lambda each: (each.savepoint.epoch, each.name) if each.savepoint else (-1, each.name),
        reverse=True,
    )


def _seen(address: Address) -> Standing | None:
    try:
        return at(address)
    except UnavailableError as error:
        if isinstance(error.__cause__, PermissionError):
            return None
        raise


def of_query(place: str, query: str) -> list[Standing]:
    """Return those of one query, whole or not. Raises as ``standing``."""
    return [each for each in standing(place) if each.query == query]


def newest_at(place: str, query: str, *, now: float) -> float:
    """Say when the newest of a query was made, in seconds since 1970; 0 where there is none. Raises as ``standing``."""
    return newest_of(of_query(place, query), now=now)


def newest_of(found: Iterable[Standing], *, now: float) -> float:
    """Say when the newest of these was made, in seconds since 1970; 0 where none is whole. Pure.

    One of a clock that was ahead tells nothing: until its time has come, it would stand for all that are to be made.
    """
    times = (seconds_of(each.savepoint.made) for each in found if each.savepoint is not None)
    return max((made for made in times if made <= now + AHEAD_S), default=0.0)


def some(place: str) -> list[Standing]:
    """Return what ``standing`` does, whole or not. Raises ``ConfigurationError`` where there is nothing."""
    return standing(place) or _refuse(place, [])


def whole(place: str) -> list[tuple[Address, Savepoint]]:
    """Return those in a place that are whole. Raises ``ConfigurationError`` where there is none.

    ``LogError`` where there are damaged ones alone.
    """
    found = standing(place)
    return [(each.address, each.savepoint) for each in found if each.savepoint is not None] or _refuse(
        place, found
    )


def the_one(place: str) -> tuple[Address, Savepoint]:
    """Return the one savepoint that a place is, or holds. Raises ``ConfigurationError`` where it is not one."""
    found = whole(place)
    if len(found) == 1:
        return found[0]
    raise ConfigurationError(
        f"there are {len(found)} savepoints in {place}",
        next_step=f"name one of them, such as {found[0][0].shown}; onceonly savepoint list shows all",
    )


def _refuse(place: str, begun: list[Standing]) -> NoReturn:
    for each in begun:
        if each.damaged is not None:
            raise each.damaged
    folder = folder_of(address_of(place, what="the place of savepoints"))
    if folder is not None and not folder.exists():
        raise ConfigurationError(f"there is no folder {place}", next_step="name the place of savepoints")
    more = f", but {len(begun)} not whole: {begun[0].address.shown}" if begun else ""
    raise ConfigurationError(
        f"there is no savepoint in {place}{more}",
        next_step="name the place, or the folder, of a savepoint; onceonly savepoint create CHECKPOINT PLACE makes one",
    )


def folder_of_one(place: str) -> Standing:
    """Return what one savepoint is, by its folder, whole or not. Raises ``ConfigurationError`` where it is none."""
    address = address_of(place, what="the savepoint")
    found = at(address)
    if found is None:
        raise ConfigurationError(
            f"{place} is not the folder of a savepoint",
            next_step="name one that onceonly savepoint list shows",
        )
    return found


def wrong(address: Address, savepoint: Savepoint, *, told: Told = unheard) -> list[str]:
    """Read every file of a savepoint; say in a sentence of each what is wrong with it. Raises ``UnavailableError``."""
    store = open_store(address)
    done: list[int] = []

    def one(file: File) -> str:
        data = store.get(FILES + file.name)
        done.append(file.bytes)
        told(len(done), len(savepoint.files), sum(done))
        return differs(file, data)

    found = background.spread("onceonly-read", one, savepoint.files, threads_max=min(store.abreast, _AT_ONCE))
    return [each for each in found if each]


def differs(file: File, data: bytes | None) -> str:
    """Say in what bytes are not those of a file; empty where they are."""
    if data is None:
        return f"{file.name} is missing"
    if len(data) != file.bytes:
        return f"{file.name} has {len(data)} bytes, and had {file.bytes}"
    return "" if digest(data) == file.checksum else f"{file.name} has other bytes than it had"


def drop(address: Address) -> list[str]:
    """Delete a savepoint, its own files only; return the names of what others have put beside them. Idempotent.

    The manifest goes first: from then on it is no savepoint. Who is making it sees before all else that it is dropped,
    and takes its manifest back; one that was put before goes once more. Raises ``UnavailableError``.
    """
    store = open_store(address)
    store.replace(BEGUN, encode_begun(begun_of(store.get(BEGUN) or b""), dropped=True))
    store.delete(NAME)
    failpoints.hit("savepoint.after_undo")
    names = [name for name in store.tree("") if name.startswith(FILES)]
    background.spread("onceonly-drop", store.delete, names, threads_max=min(store.abreast, _AT_ONCE))
    store.delete(NAME)
    store.delete(SIGN)
    store.delete(BEGUN)
    folder = folder_of(address)
    if folder is not None:
        _drop_folders(folder)
    return store.tree("")


def _drop_folders(folder: Path) -> None:
    """Remove folders that are empty by now."""
    for below in [*sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True), folder]:
        with contextlib.suppress(OSError):
            below.rmdir()


def moved_at(each: Standing) -> float:
    """Say when the maker of one that is not whole has come further last, in seconds since 1970; 0 where nothing tells.

    By the clock of its machine. Raises ``UnavailableError``.
    """
    return max(moment_of(each.name).timestamp(), sign_of(open_store(each.address).get(SIGN)))


def at(address: Address) -> Standing | None:
    """Return the savepoint that a folder is, whole or not; None where it is none. Raises ``UnavailableError``."""
    store = open_store(address)
    data = store.get(NAME)
    damaged: LogError | None = None
    if data is not None:
        try:
            savepoint = manifest.decode(data, where=store.where(NAME))
        except LogError as error:
            damaged = error
        else:
            return Standing(address=address, query=savepoint.query, savepoint=savepoint)
    begun = store.get(BEGUN)
    if begun is None and damaged is None:
        return None
    return Standing(address=address, query=begun_of(begun or b""), savepoint=None, damaged=damaged)
