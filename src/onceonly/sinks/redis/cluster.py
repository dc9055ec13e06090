"""A cluster: which of its primaries has a slot, and commands sent there, also while slots move. Threads may share it.

redis-py's own cluster client refuses scripts in a pipeline, and sends one by one what it is told to send elsewhere.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from onceonly.sinks.redis.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import redis

    Address: TypeAlias = tuple[str, int]
    Command: TypeAlias = tuple[int, tuple[Any, ...]]

# A slot that has moved is known to all nodes within a second; a fail-over takes longer, and whoever asks comes again.
_PAUSES_S = (0.0, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
_SCRIPT = "EVALSHA"
_NAMES_MAX = 1000


class Cluster:
    """The nodes of a cluster, of which ``first`` are asked first. ``connect`` makes a client of one node.

    Raises what the client raises.
    """

    def __init__(self, connect: Callable[[str, int], redis.Redis], first: Sequence[Address]) -> None:
        self._connect = connect
        self._first = tuple(first)
        self._owners: Mapping[int, Address] | None = None
        self._clients: dict[Address, redis.Redis] = {}
        self._loaded: dict[Address, set[str]] = {}

    def close(self) -> None:
        """Give back the connections. Idempotent."""
        for client in self._clients.values():
            client.close()
        self._clients = {}

    def forget(self) -> None:
        """Ask anew, before the next command, which node has which slots."""
        self._owners = None

    def primaries(self) -> list[redis.Redis]:
        """Return a client of each node that has slots."""
        return [self._client(address) for address in sorted(set(self._known().values()))]

    def names_in_each(self, beginning: str) -> list[str]:
        """Return a name with this beginning for each primary, as far as a thousand of them lie in its slots."""
        owners = self._known()
        found: dict[Address, str] = {}
        for name in (f"{beginning}:{number}" for number in range(_NAMES_MAX)):
            if (owner := owners.get(slot_of(name))) is not None:
                found.setdefault(owner, name)
        return list(found.values())

    def run(self, commands: Sequence[Command], scripts: Mapping[str, str]) -> list[Any]:
        """Send commands, each with the slot of its keys, to the nodes that have these; return the answers in order.

        ``scripts`` are the texts of those that ``EVALSHA`` names. A command may be carried out twice. One that was
        refused raises; the others were carried out, or not.
        """
        from redis.exceptions import AskError, TryAgainError

        answers: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        elsewhere: dict[int, Address] = {}
        why: Exception | None = None
        for pause_s in _PAUSES_S:
            time.sleep(pause_s)
            told, elsewhere = elsewhere, {}
            again: list[int] = []
            for address, mine in self._shared_out(commands, left, told).items():
                some = [(commands[at][1], at in told) for at in mine]
                for at, answer in zip(mine, self._sent(address, some, scripts), strict=True):
                    if not isinstance(answer, Exception):
                        answers[at] = answer
                        continue
                    why = answer
                    asked = self._passing(answer)
                    if asked is not None:
                        elsewhere[at] = asked
                    again.append(at)
            if not again:
                return answers
            left = sorted(again)
        self.forget()
        assert why is not None  # noqa: S101  nothing else is left over
        if isinstance(why, AskError):  # as is a MOVED; of one server, either says something else
            raise TryAgainError(f"it is not settled yet which node has a slot: {why}") from why
        raise why

    def _shared_out(
        self, commands: Sequence[Command], places: Sequence[int], told: Mapping[int, Address]
    ) -> dict[Address, list[int]]:
        from redis.exceptions import ClusterDownError

        found: dict[Address, list[int]] = {}
        owners = self._known()
        for at in places:
            slot = commands[at][0]
            address = told.get(at) or owners.get(slot)
            if address is None:
                self.forget()
                raise ClusterDownError(f"no node has the slot {slot}")
            found.setdefault(address, []).append(at)
        return found

    def _sent(
        self, address: Address, commands: Sequence[tuple[tuple[Any, ...], bool]], scripts: Mapping[str, str]
    ) -> list[Any]:
        """Send commands in one round trip, each with whether its slot is still moving there; return the answers."""
        from redis.exceptions import ConnectionError as Gone

        client = self._client(address)
        loaded = self._loaded.setdefault(address, set())
        try:
            for sha in {command[1] for command, _ in commands if command[0] == _SCRIPT} - loaded:
                client.script_load(scripts[sha])
                loaded.add(sha)
            pipeline: Any = client.pipeline(transaction=False)
            for command, is_asking in commands:
                if is_asking:
                    pipeline.execute_command("ASKING")
                pipeline.execute_command(*command)
            answers = pipeline.execute(raise_on_error=False)
        except Gone as error:
            self._loaded.pop(address, None)
            return [error] * len(commands)
        mine = iter(answers)
        # That to ASKING stands before its command's, and is an OK.
        return [(next(mine), next(mine))[1] if is_asking else next(mine) for _, is_asking in commands]

    def _passing(self, error: Exception) -> Address | None:
        """See that an error is one that another try may pass; return the node that is to be asked, if it names one.

        Raises it where it is not.
        """
        from redis import exceptions as e

        if isinstance(error, e.AskError) and not isinstance(error, e.MovedError):
            return error.host, error.port
        if isinstance(error, e.NoScriptError):
            self._loaded.clear()
            return None
        gone = isinstance(error, e.ConnectionError) and not isinstance(error, e.AuthenticationError)
        moved = e.MovedError | e.TryAgainError | e.ClusterDownError | e.ReadOnlyError
        if not gone and not isinstance(error, moved):
            raise error
        self.forget()
        return None

    def _known(self) -> Mapping[int, Address]:
        """Return which node has which slots, as any that answers says."""
        if (known := self._owners) is None:
            known = self._owners = self._asked()
        return known

    def _asked(self) -> Mapping[int, Address]:
        from redis import exceptions as e

        others = list(self._clients)
        random.shuffle(others)  # one that was cut off from the others must not be asked for ever
        why: Exception | None = None
        for address in dict.fromkeys([*others, *self._first]):
            try:
                client: Any = self._client(address)
                return owners(client.execute_command("CLUSTER SLOTS"), address[0])
            except (e.ConnectionError, e.TimeoutError, OSError) as error:
                why = error
                if isinstance(error, e.AuthenticationError):
                    break
        assert why is not None  # noqa: S101  there is a first address
        raise why

    def _client(self, address: Address) -> redis.Redis:
        if address not in self._clients:
            self._clients[address] = self._connect(*address)
        return self._clients[address]


def owners(told: Sequence[Sequence[Any]], asked: str) -> dict[int, Address]:
    """Return the primary of each slot by what ``CLUSTER SLOTS`` has told, ``asked`` of a host. Pure.

    A node that does not know its own name gives none; it is the one that was asked.
    """
    found: dict[int, Address] = {}
    for first, last, (host, port, *_), *_ in told:
        name = host.decode() if isinstance(host, bytes) else host
        address = (name if name and name != "?" else asked, int(port))
        found.update(dict.fromkeys(range(first, last + 1), address))
    return found
