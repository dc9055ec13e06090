"""Tokens of OAUTHBEARER: had from a Python function by its name, kept, and had anew before they expire. Any process.

Both clients take them from here: kafka-python, and librdkafka by confluent-kafka.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.sinks.kafka.wire.answers import NotAnsweredError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

# From this share of its life on, a token's successor is asked for beside the work.
_RENEWED_FROM = 0.7
# One that ends so soon is not given out any more.
_LEAST_S = 5.0
# A token endpoint is waited for so long.
_WAIT_S = 10.0
_PUBLIC = frozenset({"bootstrap.servers", "region", "url"})
_FIELDS_MIN, _FIELDS_MAX = 2, 3


@dataclass(frozen=True, slots=True)
class Token:
    """A token; its ``repr`` does not show it."""

    text: str = field(repr=False)
    expires_s: float
    """Unix time."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    got_s: float = field(default_factory=time.time)
    got_at: float = field(default_factory=time.monotonic)
    """When it was had by the clock that nobody sets: one that is set back does not make a token last longer."""

    @property
    def is_young(self) -> bool:
        """Whether no successor is needed yet."""
        return self._age_s < _RENEWED_FROM * (self.expires_s - self.got_s)

    @property
    def is_good(self) -> bool:
        """Whether it may be given out."""
        return self._age_s < self.expires_s - self.got_s - _LEAST_S

    @property
    def _age_s(self) -> float:
        # The other clock stands still while a machine sleeps.
        return max(time.time() - self.got_s, time.monotonic() - self.got_at)


class Tokens:
    """The tokens of one provider. Thread-safe; its ``repr`` shows no secret."""

    def __init__(self, provider: str, settings: Mapping[str, str]) -> None:
        self._provider = provider
        self._settings = dict(settings)
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._coming: Future[Token] | None = None

    def __repr__(self) -> str:
        return f"Tokens({self._provider!r})"

    def get(self) -> Token:
        """Return a token that is good. Within 10 s, mostly at once: its successor comes beside the work.

        Raises ``NotAnsweredError`` where the provider fails or takes longer, ``ConfigurationError`` where there is
        none of that name, or what it gives is no token.
        """
        with self._lock:
            token = self._token
            if token is not None and token.is_young:
                return token
            if self._coming is None:
                self._coming = background.begin("onceonly-token", self._renew)
            coming = self._coming
            if token is not None and token.is_good:
                return token
        try:
            return coming.result(_WAIT_S)
        except TimeoutError as error:
            with self._lock:
                if self._coming is coming:
                    self._coming = None
            raise NotAnsweredError(f"no token from {self._provider} within {_WAIT_S:g} s") from error

    def _renew(self) -> Token:
        try:
            token = self._ask()
            with self._lock:
                self._token = token
        finally:
            with self._lock:
                self._coming = None
        return token

    def _ask(self) -> Token:
        function = load(self._provider)
        try:
            given = function(dict(self._settings))
        except OnceonlyError:
            raise
        except Exception as error:  # noqa: BLE001  it is somebody else's code
            # Without its cause: its traceback may hold what was sent.
            raise NotAnsweredError(
                f"the token provider {self._provider} failed: {type(error).__name__}: {self._harmless(str(error))}"
            ) from None
        return self._token_of(given)

    def _token_of(self, given: Any) -> Token:  # noqa: ANN401  somebody else's code has given it
        wrong = ""
        if not isinstance(given, tuple) or not _FIELDS_MIN <= len(given) <= _FIELDS_MAX:
            wrong = f"a {type(given).__name__}"
        elif not isinstance(given[0], str) or not given[0]:
            wrong = "no text"
        elif isinstance(given[1], bool) or not isinstance(given[1], (int, float)):
            wrong = "no time of expiry"
        elif len(given) == _FIELDS_MAX and not isinstance(given[2], Mapping):
            wrong = "extensions that are no mapping"
        elif given[1] <= time.time() + _LEAST_S:
            wrong = f"a token that expires in {given[1] - time.time():.0f} s"
        if wrong:
            raise ConfigurationError(
                f"The token provider {self._provider} gave {wrong}.",
                next_step="let it give (token, Unix time of its expiry in seconds), and a dict of extensions behind "
                "them where the broker wants some",
            )
        return Token(given[0], float(given[1]), dict(given[2]) if len(given) == _FIELDS_MAX else {})

    def _harmless(self, text: str) -> str:
        for name, secret in self._settings.items():
            if name not in _PUBLIC and len(secret) > 3:  # noqa: PLR2004  shorter ones would take the text apart
                text = text.replace(str(secret), "[redacted]")
        return text


def load(name: str) -> Callable[[dict[str, str]], Any]:
    """Return the function that is called ``package.module:function``. Raises ``ConfigurationError``."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigurationError(
            f"The token provider {name!r} is no name of a function.",
            next_step="name it as package.module:function",
        )
    try:
        found: Callable[[dict[str, str]], Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"The token provider {name} is not found in this process: {type(error).__name__}: {error}.",
            next_step="install its package on driver and executors, or ship it with spark.submit.pyFiles",
        ) from error
    return found


_known: dict[object, Tokens] = {}
_pid = 0


def tokens(provider: str, settings: Mapping[str, str]) -> Tokens:
    """Return this process's tokens of a provider with these settings. A forked child begins anew."""
    global _pid  # noqa: PLW0603  one a process
    if _pid != os.getpid():
        _known.clear()
        _pid = os.getpid()
    key = (provider, tuple(sorted(settings.items())))
    return _known.setdefault(key, Tokens(provider, settings))
