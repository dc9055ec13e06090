"""``onceonly audit`` of rows by key: they carry their epoch, so one removed, doubled or changed is found by epoch.

One that is changed in its place keeps its epoch: its values are read.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import redis
from test_conformance_cassandra import KEYSPACE
from test_conformance_cassandra import TestDecided as OnCassandra
from test_conformance_opensearch import TestDecided as OnOpenSearch
from test_conformance_opensearch import TestElasticsearch as OnElasticsearch
from test_conformance_opensearch import ask
from test_conformance_redis import PASSWORD
from test_conformance_redis import TestDecided as OnRedis
from tests.unit.test_operations_audit import Job

from onceonly.operations.audit import Word
from onceonly_proof.embedded.cassandra import EmbeddedCassandra
from onceonly_proof.embedded.opensearch import EmbeddedElasticsearch, EmbeddedOpenSearch
from onceonly_proof.embedded.redis import EmbeddedRedis

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
FOUND = {
    "untouched": (Word.SAME, Word.SAME),
    "removed": (Word.SAME, Word.DIFFERS),
    "doubled": (Word.SAME, Word.DIFFERS),
    "changed": (Word.SAME, Word.DIFFERS),
    "removed earlier": (Word.NOT_TOLD, Word.SAME),
}
"""What is done to a row, and what is to be said of the epoch before the newest, and of that."""
IN_PLACE = {"changed in place": FOUND["changed"], "changed in place earlier": FOUND["changed"][::-1]}
"""What is to be said of a row with another value, and the version that it had."""
EARLIER, NEWEST = "k0", "k11"
"""A key of each."""


def test_redis(tmp_path: Path) -> None:
    with EmbeddedRedis(settings={"requirepass": PASSWORD}) as server:
        suite = OnRedis()
        suite.server = server
        made: Any = redis.Redis.from_url(server.url, password=PASSWORD)
        for number, (change, words) in enumerate({**FOUND, **IN_PLACE}.items()):
            job = Job(suite, tmp_path / str(number))
            with job.world, closing(made) as client:
                prefix = job.world.options["prefix"]
                if change.startswith("removed"):
                    client.delete(prefix + (EARLIER if "earlier" in change else NEWEST))
                elif change == "doubled":
                    client.copy(prefix + NEWEST, prefix + "copy")
                elif change == "changed":  # by one who knows nothing of versions
                    client.delete(prefix + NEWEST)
                    client.hset(prefix + NEWEST, mapping={"key": NEWEST, "value": "x"})
                elif change.startswith("changed in place"):
                    client.hset(prefix + (EARLIER if "earlier" in change else NEWEST), "value", "x")
                client.set(prefix + "theirs", "of somebody else, and no hash")
                assert_found(job, change, words)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "suite"), [(EmbeddedOpenSearch, OnOpenSearch), (EmbeddedElasticsearch, OnElasticsearch)]
)
def test_opensearch_and_elasticsearch(tmp_path: Path, kind: Any, suite: Any) -> None:  # noqa: ANN401
    with kind() as server:
        suite = suite()
        suite.server = server
        earlier = {"changed earlier": FOUND["changed"][::-1]}
        for number, (change, words) in enumerate({**FOUND, **earlier, **IN_PLACE}.items()):
            job = Job(suite, tmp_path / str(number))
            with job.world:
                at = f"/{job.world.options['index']}/_doc"
                key = EARLIER if "earlier" in change else NEWEST
                held = ask(server.url, "GET", f"{at}/{key}")
                same = f"version={held['_version']}&version_type=external_gte"
                if change.startswith("removed"):
                    ask(server.url, "DELETE", f"{at}/{key}")
                elif change == "doubled":
                    ask(server.url, "PUT", f"{at}/copy?{same}", held["_source"])
                elif "in place" in change:
                    ask(server.url, "PUT", f"{at}/{key}?{same}", {**held["_source"], "value": "x"})
                elif change.startswith("changed"):
                    ask(server.url, "PUT", f"{at}/{key}", {**held["_source"], "value": "x"})
                assert_found(job, change, words)


@pytest.mark.long
def test_cassandra(tmp_path: Path) -> None:
    with EmbeddedCassandra() as server:
        server.cql(KEYSPACE)
        suite = OnCassandra()
        suite.server = server
        for number, (change, words) in enumerate({**FOUND, **IN_PLACE}.items()):
            job = Job(suite, tmp_path / str(number))
            with job.world:
                table = f"rows.{job.world.options['table']}"
                key = EARLIER if "earlier" in change else NEWEST
                is_key = f"WHERE key = '{key}'"
                with server.session() as session:
                    [at] = session.execute(f"SELECT writetime(value) FROM {table} {is_key}").one()  # noqa: S608  ours
                # Our times are of days to come: who gives none changes nothing.
                statement = {
                    "untouched": f"DELETE FROM {table} {is_key}",  # noqa: S608  ours
                    "removed": f"DELETE FROM {table} USING TIMESTAMP {at + 1} {is_key}",  # noqa: S608  ours
                    "doubled": f"INSERT INTO {table} (key, value) VALUES ('copy', 'x') USING TIMESTAMP {at}",  # noqa: S608
                    "changed": f"UPDATE {table} USING TIMESTAMP {at + 1} SET value = 'x' {is_key}",  # noqa: S608
                    # Of two values of one time, the greater one stays.
                    "changed in place": f"UPDATE {table} USING TIMESTAMP {at} SET value = 'x' {is_key}",  # noqa: S608
                }
                server.cql(statement[change.removesuffix(" earlier")])
                assert_found(job, change, words)


def assert_found(job: Job, change: str, words: tuple[Word, Word]) -> None:
    """See what is said of both epochs, and that what is the same was compared by its values."""
    assert job.found() == dict(enumerate(words)), change
    assert not [text for each in job.audit().findings if each.word is Word.SAME for text in each.told], change
