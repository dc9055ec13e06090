"""The store of the log on Azure's own emulator, Azurite, from npm."""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING

import pytest
from store_race import race
from stored_logs import StoredLogs

from onceonly.errors import ConfigurationError
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly_proof.embedded.azure import HOST, KEY, EmbeddedAzure
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.stores.port import RewritableStore, Store

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server

_CONTAINER = "checkpoints"
_folders = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAzure]:
    with EmbeddedAzure(tmp_path_factory.mktemp("azure")) as found:
        found.make_container(_CONTAINER)
        yield found


@pytest.fixture
def checkpoint(server: EmbeddedAzure) -> Iterator[str]:
    opened.tell(Hadoop(server.hadoop()))
    yield server.address(_CONTAINER, f"chk-{next(_folders)}")
    opened.tell(Hadoop())


def store(server: EmbeddedAzure, *, container: str = _CONTAINER, **more: str) -> RewritableStore:
    """Return a store of its own, by a client of its own."""
    return at(server, server.address(container, f"laws-{next(_folders)}"), **more)


def at(server: EmbeddedAzure, place: str, **more: str) -> RewritableStore:
    from onceonly.stores.objects import ObjectStore

    address = parse(place)
    access = Hadoop({**server.hadoop(), **more}).access(address)
    return ObjectStore(opened.make_client(address, access), address)


class TestLogs(StoredLogs):
    pass


class TestAzurite(RewritableLaws):
    @pytest.fixture
    def store(self, server: EmbeddedAzure) -> Store:
        return store(server)


def test_of_eight_clients_that_put_at_once_exactly_one_wins(server: EmbeddedAzure) -> None:
    place = server.address(_CONTAINER, f"race-{next(_folders)}")
    race(lambda: at(server, place))


def test_a_store_is_found_fit(server: EmbeddedAzure) -> None:
    store(server).prepare([])


def test_a_container_that_is_not_there_is_missed_by_every_call(server: EmbeddedAzure) -> None:
    absent = store(server, container="absent")
    for call in (
        lambda: absent.put_if_absent(NAME, b""),
        lambda: absent.replace(NAME, b""),
        lambda: absent.get(NAME),
        lambda: absent.list_names("links/"),
        lambda: absent.list_folders(""),
        lambda: absent.delete(NAME),
    ):
        with pytest.raises(ConfigurationError, match="there is no such bucket"):
            call()


def test_who_has_another_key_is_told_so(server: EmbeddedAzure) -> None:
    wrong = base64.b64encode(b"another").decode()
    with pytest.raises(ConfigurationError, match="could not be put") as caught:
        store(server, **{f"fs.azure.account.key.{HOST}": wrong}).prepare([])
    assert KEY not in str(caught.value)
    assert wrong not in str(caught.value)
