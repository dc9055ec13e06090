"""The auditor: reads the outside world as anybody would, and names what is wrong in it.

Shares no code with any sink, nor with the decision log's own reader. :func:`audit` reads and judges in one call;
:func:`judge` alone is pure: a :class:`World` in, a :class:`Verdict` out.
"""

from onceonly_proof.auditor.anomalies import ALLOWED, Anomaly
from onceonly_proof.auditor.audit import audit, collect
from onceonly_proof.auditor.cassandra import CassandraReader
from onceonly_proof.auditor.database import DatabaseReader
from onceonly_proof.auditor.enveloped import EnvelopedReader
from onceonly_proof.auditor.files import FilesReader
from onceonly_proof.auditor.judge import Verdict, judge
from onceonly_proof.auditor.kafka import KafkaReader, read_inputs
from onceonly_proof.auditor.keys import RedisReader
from onceonly_proof.auditor.letters import LettersReader
from onceonly_proof.auditor.log import query_id, read_decisions
from onceonly_proof.auditor.readers import LooksBehind, Reader, Watcher
from onceonly_proof.auditor.search import SearchReader
from onceonly_proof.auditor.watching import KafkaWatcher, PollingWatcher
from onceonly_proof.auditor.world import Decision, Input, Orphan, Seen, Slot, World

__all__ = [
    "ALLOWED",
    "Anomaly",
    "CassandraReader",
    "DatabaseReader",
    "Decision",
    "EnvelopedReader",
    "FilesReader",
    "Input",
    "KafkaReader",
    "KafkaWatcher",
    "LettersReader",
    "LooksBehind",
    "Orphan",
    "PollingWatcher",
    "Reader",
    "RedisReader",
    "SearchReader",
    "Seen",
    "Slot",
    "Verdict",
    "Watcher",
    "World",
    "audit",
    "collect",
    "judge",
    "query_id",
    "read_decisions",
    "read_inputs",
]
