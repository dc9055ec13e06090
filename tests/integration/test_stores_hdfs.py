"""The store of the log on a real HDFS: a name node and a data node, from Hadoop's own jars."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from store_race import race

from onceonly.errors import LogError
from onceonly.log import identity_token, open_log
from onceonly.model import Link, LinkKind
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly.stores.hdfs import HdfsStore
from onceonly.stores.port import Store, put_once
from onceonly.stores.temporaries import temporary_of
from onceonly.stores.webhdfs import WebHdfs
from onceonly_proof.embedded.hdfs import EmbeddedHdfs
from onceonly_proof.stores.laws import NAME, RewritableLaws

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

_folders = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHdfs]:
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs")) as found:
        yield found


@pytest.fixture(scope="module")
def hadoop(server: EmbeddedHdfs) -> Hadoop:
    return Hadoop(server.hadoop())


def store_of(hadoop: Hadoop, folder: str) -> HdfsStore:
    return HdfsStore.at(parse(f"hdfs://127.0.0.1/{folder}"), hadoop)


@pytest.fixture
def checkpoint(hadoop: Hadoop) -> Iterator[str]:
    opened.tell(hadoop)
    yield f"hdfs://127.0.0.1/chk-{next(_folders)}"
    opened.tell(Hadoop())


class TestHdfs(RewritableLaws):
    @pytest.fixture
    def store(self, hadoop: Hadoop) -> Store:
        return store_of(hadoop, f"laws é%20 {next(_folders)}")


def test_of_eight_clients_that_put_at_once_exactly_one_wins(hadoop: Hadoop) -> None:
    folder = f"race-{next(_folders)}"
    race(lambda: store_of(hadoop, folder))


def test_what_a_writer_left_that_died_is_cleared_away_when_its_name_is_taken(hadoop: Hadoop) -> None:
    store = store_of(hadoop, f"left-{next(_folders)}")
    left = temporary_of(NAME)
    store.replace(left, b"torn")
    store.drop_leftovers(lambda _: False)
    assert store.get(left) == b"torn"
    put_once(store, NAME, b"whole")
    store.drop_leftovers(lambda _: False)
    assert store.get(left) is None
    assert store.get(NAME) == b"whole"


def test_staged_rows_are_for_the_jobs_user_alone(hadoop: Hadoop) -> None:
    folder = f"private-{next(_folders)}"
    store = HdfsStore.at(parse(f"hdfs://127.0.0.1/{folder}"), hadoop, private=True)
    put_once(store, "rows", b"secret")
    web = WebHdfs.of(parse("hdfs://127.0.0.1/"), hadoop)
    status = web.ask("GET", "GETFILESTATUS", f"/{folder}/rows")["FileStatus"]
    assert status["permission"] == "600"


def test_a_log_is_opened_by_the_address_of_its_checkpoint(checkpoint: str) -> None:
    assert identity_token(checkpoint) is None
    log = open_log(checkpoint, query="q", create=True)
    link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")
    log.put_link(link)
    log.sync(link)
    again = open_log(checkpoint + "/", query="q", create=False)
    assert again.chain(0) == (link,)
    with pytest.raises(LogError, match="belongs to the query q"):
        open_log(checkpoint, query="other", create=True)
