"""One client of kafka-python: requests to brokers, each with a deadline. Driver and executors; see ``admin``."""

from __future__ import annotations

import contextlib
import copy
import random
import selectors
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly.sinks.kafka.wire.answers import (
    NotAnsweredError,
    PutOffError,
    ThrottledError,
    judged,
    reason,
    refuse_forbidden,
)
from onceonly.sinks.kafka.wire.coordinators import Coordinators
from onceonly.sinks.kafka.wire.settings import REQUEST_S, family, limits, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from onceonly.sinks.kafka.options import KafkaOptions

T = TypeVar("T")

# Who looks up asks another broker then, and does not hang up on the first.
_LOOK_UP_S = 1.5
_LOOK_UPS_MAX = 3
_PAUSE_S = 0.01
_PAUSE_S_MAX = 0.25
# What a call of many requests gives: ``send_all`` itself notes whether anybody has answered.
_UNTOLD = object()


class Selector(selectors.DefaultSelector):
    """One that says briefly what it does not have.

    kafka-python asks before each wait, mostly for a socket that is not registered, and drops the error; spelling the
    socket for it took two system calls.
    """

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401  as in the class before
        """Return what is registered for a socket; raises ``KeyError``."""
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        # Of a socket that is closed, only a search tells whether it was registered.
        return super().get_key(fileobj if fd < 0 else fd)


class Client(Coordinators):
    """What is used of kafka-python, and the place that knows its insides, beside requests that spell themselves.

    Raises ``NotAnsweredError`` where it cannot connect, ``ConfigurationError`` for what it cannot connect with.
    """

    def __init__(self, options: KafkaOptions) -> None:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError
        from kafka.net.compat import KafkaNetClient
        from kafka.net.selector import NetworkSelector

        from onceonly.sinks.kafka.wire.connections import Connections
        from onceonly.sinks.kafka.wire.manager import Manager

        super().__init__()
        self._heard = 0.0
        # How long an answer of a broker is waited for, where it was silent before.
        self._patience: dict[int, float] = {}
        self._paused: dict[int, Any] = {}
        made: list[Any] = []

        def kept(**configs: Any) -> Any:  # noqa: ANN401  kafka-python is untyped
            # Its metrics, which nobody reads, took a seventh of its thread's time.
            configs |= {"metrics": None, "selector": Selector, **limits(options)}
            net = NetworkSelector(**configs)
            manager = Manager(net, family=family(options), **configs)
            made.append(KafkaNetClient(net=net, manager=manager, **configs))
            return made[0]

        configs = settings(options)
        try:
            self.kafka = KafkaAdminClient(kafka_client=kept, **configs)
        except (KafkaError, OSError) as error:
            # It leaves its thread and sockets behind when it cannot connect.
            for client in made:
                client.close()
                client._manager._net.stop()  # noqa: SLF001
            why = reason(error)
            if made and made[0]._manager.trouble:  # noqa: SLF001
                why += f"; {made[0]._manager.trouble}"  # noqa: SLF001
            if configs["security_protocol"].startswith("SASL") and made and made[0]._manager.was_let_in:  # noqa: SLF001
                # kafka-python often sees the closed connection before the refusal that came with it.
                login = "kafka.sasl.username and kafka.sasl.password"
                if configs["sasl_mechanism"] == "GSSAPI":
                    login = "the Kerberos ticket"
                if options.token_provider:
                    login = f"the token of {options.token_provider}"
                why += f" (brokers also hang up on a user that they refuse: check {login}, and kafka.sasl.mechanism)"
            raise NotAnsweredError(why) from error
        self._manager = self.kafka._manager  # noqa: SLF001  no public name
        self._net = self._manager._net  # noqa: SLF001  no public name
        self._connections = Connections(self._manager)

    def is_usable(self) -> bool:
        """Say whether to go on with it: its thread lives, and somebody has answered lately, or nobody was asked."""
        if self._net._closed or self._net._exception:  # noqa: SLF001  no public name
            return False
        return not self._is_lost()

    def cluster_id(self) -> str | None:
        """Name the cluster that answered first."""
        found: str | None = self._manager.cluster.cluster_id
        return found

    def send(self, request: Any, node: int | None) -> Any:  # noqa: ANN401
        """Send one request, to any broker where none is named, and return its response."""
        if node is None:
            return self._in_its_thread(self._ask_any, request)
        return self._in_its_thread(self._ask, request, node, REQUEST_S)

    def post(self, request: Any, node: int, timeout_ms: float | None = None) -> Future[Any]:  # noqa: ANN401
        """Send one request; its response, or ``NotAnsweredError``, comes later."""
        timeout_s = REQUEST_S if timeout_ms is None else timeout_ms / 1000
        return self._begin(self._ask, request, node, timeout_s)

    def send_all(self, kind: int, requests: Mapping[str, Any]) -> dict[str, Any | NotAnsweredError]:
        """Send each request to the coordinator of its key, and return the answers; none waits for another broker's.

        Raises what is neither an answer nor that there was none, as ``send`` does.
        """
        sent: dict[str, Any] = {}
        began = time.monotonic()
        # One broker that is silent shall not hide what the others have answered.
        late = NotAnsweredError("no answer")
        try:
            self._in_its_thread(self._send_all, kind, requests, sent)
        except NotAnsweredError as error:
            late = error
        answers = {key: _answer(sent.get(key), late) for key in requests}
        self._note(began, is_answered=any(not isinstance(each, Exception) for each in answers.values()))
        for answer in answers.values():
            if isinstance(answer, Exception) and not isinstance(answer, NotAnsweredError):
                raise answer
        return answers

    def coordinator(self, kind: int, key: str) -> int:
        """Return the broker that coordinates a group or transactional id."""
        # The way through its thread was two fifths of a request's time in its caller (py-spy).
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        try:
            found: dict[str, int] = self._in_its_thread(self._look_up, kind, [key])
        except NotAnsweredError as error:
            refuse_forbidden(getattr(error.__cause__, "errno", 0) or 0, key)
            raise
        return found[key]

    def close(self) -> None:
        """Close its connections and end its thread."""
        self.kafka.close()

    # --- in kafka-python's thread ----------------------------------------------------------------------------------

    async def _send_all(self, kind: int, requests: Mapping[str, Any], sent: dict[str, Any]) -> object:
        """Send all, and note kafka-python's futures of the answers; returns when they are there."""
        from kafka.errors import KafkaError

        async def one(key: str, request: Any) -> Any:  # noqa: ANN401
            found = await self._look_up(kind, [key])
            return await self._ask(request, found[key], REQUEST_S)

        unknown = [key for key in requests if (kind, key) not in self._coordinators]
        if unknown:
            # One request for all, whose answers are kept. Who is not among them is looked up alone, and tells why.
            with contextlib.suppress(KafkaError, OSError):
                await self._look_up(kind, unknown)
        by_node: dict[int, dict[str, Any]] = {}
        for key, request in requests.items():
            node = self._coordinators.get((kind, key))
            if node is None:
                # A task of its own only for who has to look: it costs as much as the request.
                sent[key] = self._manager.call_soon(one, key, request)
            elif self._connections.is_held_back(node):
                sent[key] = self._manager.call_soon(self._ask, request, node, REQUEST_S)
            else:
                by_node.setdefault(node, {})[key] = request
        for node, share in by_node.items():
            sent.update(self._connections.send(node, share))
        # A connection is answered in order: when its last answer is there, none of the others is waited for.
        for waiting in reversed(list(sent.values())):
            with contextlib.suppress(KafkaError, OSError, NotAnsweredError):
                await waiting
        return _UNTOLD

    async def _ask(self, request: Any, node: int, timeout_s: float) -> Any:  # noqa: ANN401
        """Send to a broker once it lets us: one that throttles us is waited for, and nobody else is asked."""
        until = time.monotonic() + timeout_s
        if self._manager.cluster.broker_metadata(node) is None:
            # One that kafka-python has not met yet, or not since it was down: this request fails, a later one finds it.
            self._manager.cluster.request_update()
        connection = self._manager.get_connection(node)
        while connection.paused and connection.connected:
            await self._let_go(connection, node, until)
            connection = self._manager.get_connection(node)
        left_s = until - time.monotonic()
        # One that was silent is given more time each time: it may be slow, and its answer was on its way.
        patience_s = min(self._patience.get(node, REQUEST_S), left_s)
        sent = time.monotonic()
        try:
            # kafka-python writes the version that this broker speaks into what it sends. Where the same is asked again,
            # another broker may be asked, of another release while they are upgraded one by one.
            answer = await connection.send_request(copy.copy(request), request_timeout_ms=patience_s * 1000)
        except BaseException:
            if time.monotonic() - sent >= patience_s:
                self._patience[node] = 2 * patience_s
            raise
        self._patience.pop(node, None)
        return answer

    async def _let_go(self, connection: Any, node: int, until: float) -> None:  # noqa: ANN401
        """Wait until a connection is held back no more. In order: who comes later is let go later."""
        from kafka.future import Future as Its

        waiting = self._paused.get(node)
        if waiting is not None:
            await waiting
            return
        waiting = self._paused[node] = Its()
        pause_s = _PAUSE_S
        try:
            while connection.paused and connection.connected:
                if time.monotonic() + pause_s > until:
                    raise ThrottledError(f"broker {node} holds us back, by a quota: {set(connection.paused)}")
                await self._net.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311  to spread load
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        finally:
            del self._paused[node]
            waiting.success(None)

    async def _ask_any(self, request: Any) -> Any:  # noqa: ANN401
        """Ask brokers one after the other, while those before may still answer; for what may be repeated."""
        from kafka.errors import KafkaError, KafkaTimeoutError, NodeNotReadyError

        asked: list[Any] = []
        error: KafkaError = NodeNotReadyError("no broker is known that could be asked")
        for attempt in range(_LOOK_UPS_MAX):
            node = self._other_than(asked)
            if node is None:
                break
            asked.append(node)
            is_last = attempt + 1 == _LOOK_UPS_MAX or self._other_than(asked) is None
            sent = self._manager.call_soon(self._ask, request, node, REQUEST_S)
            try:
                return await (sent if is_last else self._manager.wait_for(sent, _LOOK_UP_S * 1000))
            except KafkaTimeoutError as late:
                error = late
            except (KafkaError, OSError) as failed:
                error = failed
        raise error

    def _other_than(self, asked: Iterable[Any]) -> Any:  # noqa: ANN401
        node = self._manager.least_loaded_node()
        if node is not None and node not in asked:
            return node
        left = [each.node_id for each in self._manager.cluster.brokers() if each.node_id not in asked]
        left = [each for each in left if not self._manager.connection_delay(each)]
        # One that throttles us is waited for, where there is no other: kafka-python leaves it out.
        left = [each for each in left if not self._connections.is_held_back(each)] or left
        return random.choice(left) if left else None  # noqa: S311  to spread load

    async def _look_up(self, kind: int, keys: list[str]) -> dict[str, int]:
        from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys, min_version=4)
        answer = await self._ask_any(request)
        found: dict[str, int] = {}
        for each in answer.coordinators:
            # It says where the broker is, too. Raises where it is refused.
            node = self._manager.cluster.add_coordinator(
                each, CoordinatorType(kind), each.key, synthesize_node_id=False
            )
            found[each.key] = self._coordinators[kind, each.key] = node
        return found

    # --- between threads -------------------------------------------------------------------------------------------

    def _begin(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:  # noqa: ANN401
        """Begin a call in the thread of kafka-python. What it gives or ``NotAnsweredError`` comes later."""
        answer: Future[Any] = Future()
        began = time.monotonic()

        def answered(found: Any) -> None:  # noqa: ANN401
            if found is not _UNTOLD:
                self._note(began, is_answered=True)
            answer.set_result(found)

        def failed(error: BaseException) -> None:
            wrapped = judged(error)
            if isinstance(wrapped, NotAnsweredError):
                self._note(began, is_answered=isinstance(wrapped, (PutOffError, ThrottledError)))
            answer.set_exception(wrapped)

        try:
            begun = self._manager.call_soon(call, *arguments)
        except Exception as error:  # noqa: BLE001  whatever has ended the thread; a new client is made then
            answer.set_exception(NotAnsweredError(reason(error)))
        else:
            begun.add_callback(answered)
            begun.add_errback(failed)
        return answer

    def _note(self, began: float, *, is_answered: bool) -> None:
        """Keep since when nobody has answered."""
        if is_answered:
            self._silent_since, self._heard = None, time.monotonic()
        elif self._silent_since is None:
            # Others may have answered while this one was waited for.
            self._silent_since = max(began, self._heard)

    def _in_its_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Do a call in the thread of kafka-python, and wait. Raises ``NotAnsweredError`` within bounded time."""
        began = time.monotonic()
        wait_s = self._waited_until(began) - began
        try:
            return self._begin(call, *arguments).result(wait_s)
        except TimeoutError as error:
            self._note(began, is_answered=False)
            raise NotAnsweredError(f"no answer within {wait_s:.1f} s") from error


def _answer(waiting: Any, late: NotAnsweredError) -> Any:  # noqa: ANN401  kafka-python is untyped
    """Return what came, or why nothing did."""
    if waiting is None or not waiting.is_done:
        return late
    return waiting.value if waiting.exception is None else judged(waiting.exception)
