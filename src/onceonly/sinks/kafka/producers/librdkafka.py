"""The functions of librdkafka's C interface that the batch producer calls. Executor.

``confluent_kafka`` brings the library and has it loaded already; it is called by ``ctypes``, which lets go of the
interpreter's lock meanwhile. Structures and constants are those of ``rdkafka.h``, whose binary interface is stable
within version 2.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from onceonly.sinks.kafka.producers.confluent import import_confluent

PARTITION_BY_KEY = -1  # RD_KAFKA_PARTITION_UA
COPY = 0x2  # RD_KAFKA_MSG_F_COPY
PURGE_ALL = 0x1 | 0x2  # RD_KAFKA_PURGE_F_QUEUE, _INFLIGHT
NO_ERROR = 0
QUEUE_FULL = -184
TIMED_OUT = -185
FATAL = -150
PURGED = frozenset({-152, -151})
"""Of rows that were waiting, or on their way, when their client failed."""
CONF_OK = 0
# rd_kafka_vtype_t
V_RKT, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE, V_FLAGS, V_HEADERS = 2, 3, 4, 5, 6, 7, 10
PRODUCER = 0  # rd_kafka_type_t
_MAJOR = 2


class Message(ctypes.Structure):
    """rd_kafka_message_t. A numpy dtype beside it fills a million of them at once."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    )


class TopicPartition(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    )


class Memory(ctypes.Structure):
    """The member ``mem`` of rd_kafka_vu_t."""

    _fields_ = (("ptr", c_void_p), ("size", c_size_t))


class _Union(ctypes.Union):
    _fields_ = (
        ("i", c_int),
        ("i32", c_int32),
        ("mem", Memory),
        ("headers", c_void_p),
        ("ptr", c_void_p),
        ("_pad", ctypes.c_char * 64),
    )


class Field(ctypes.Structure):
    """rd_kafka_vu_t: one property of a message for ``produceva``."""

    _fields_ = (("vtype", c_int), ("u", _Union))


ON_DELIVERY = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)

ON_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)

ON_TOKEN = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)

# Name without rd_kafka_, what it returns, what it takes.
_FUNCTIONS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("version", c_int, ()),
    ("conf_new", c_void_p, ()),
    ("conf_set", c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    ("conf_set_dr_msg_cb", None, (c_void_p, ON_DELIVERY)),
    ("conf_set_error_cb", None, (c_void_p, ON_ERROR)),
    ("conf_destroy", None, (c_void_p,)),
    ("conf_enable_sasl_queue", None, (c_void_p, c_int)),
    ("conf_set_oauthbearer_token_refresh_cb", None, (c_void_p, ON_TOKEN)),
    ("sasl_background_callbacks_enable", c_void_p, (c_void_p,)),
    (
        "oauthbearer_set_token",
        c_int,
        (c_void_p, c_char_p, c_int64, c_char_p, POINTER(c_char_p), c_size_t, c_char_p, c_size_t),
    ),
    ("oauthbearer_set_token_failure", c_int, (c_void_p, c_char_p)),
    ("new", c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    ("destroy", None, (c_void_p,)),
    ("poll", c_int, (c_void_p, c_int)),
    ("flush", c_int, (c_void_p, c_int)),
    ("purge", c_int, (c_void_p, c_int)),
    ("outq_len", c_int, (c_void_p,)),
    ("fatal_error", c_int, (c_void_p, c_char_p, c_size_t)),
    ("err2str", c_char_p, (c_int,)),
    ("topic_new", c_void_p, (c_void_p, c_char_p, c_void_p)),
    ("topic_destroy", None, (c_void_p,)),
    ("metadata", c_int, (c_void_p, c_int, c_void_p, POINTER(c_void_p), c_int)),
    ("metadata_destroy", None, (c_void_p,)),
    ("produce_batch", c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    ("produceva", c_void_p, (c_void_p, POINTER(Field), c_size_t)),
    ("headers_new", c_void_p, (c_size_t,)),
    ("headers_destroy", None, (c_void_p,)),
    ("header_add", c_int, (c_void_p, c_char_p, c_size_t, c_char_p, c_size_t)),
    ("init_transactions", c_void_p, (c_void_p, c_int)),
    ("begin_transaction", c_void_p, (c_void_p,)),
    ("send_offsets_to_transaction", c_void_p, (c_void_p, c_void_p, c_void_p, c_int)),
    ("topic_partition_list_new", c_void_p, (c_int,)),
    ("topic_partition_list_add", POINTER(TopicPartition), (c_void_p, c_char_p, c_int32)),
    ("topic_partition_list_destroy", None, (c_void_p,)),
    ("mem_malloc", c_void_p, (c_void_p, c_size_t)),
    ("consumer_group_metadata_new", c_void_p, (c_char_p,)),
    ("consumer_group_metadata_destroy", None, (c_void_p,)),
    ("error_code", c_int, (c_void_p,)),
    ("error_string", c_char_p, (c_void_p,)),
    ("error_is_fatal", c_int, (c_void_p,)),
    ("error_is_retriable", c_int, (c_void_p,)),
    ("error_txn_requires_abort", c_int, (c_void_p,)),
    ("error_destroy", None, (c_void_p,)),
)


class Library:
    """The functions, by their names without ``rd_kafka_``."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        for name, returned, taken in _FUNCTIONS:
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = returned, taken
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  C functions, known to ctypes only
        raise AttributeError(name)


@functools.cache
def load() -> Library | None:
    """Return the library that confluent_kafka has loaded; None where it is not found or not the one expected.

    It must be that very copy: another one would have another state and, maybe, another interface.
    """
    expected = import_confluent().libversion()[1]
    if ctypes.sizeof(c_void_p) != 8 or expected >> 24 != _MAJOR:  # noqa: PLR2004  the layouts above are those of 64 bits
        return None
    for path in _loaded():
        try:
            library = Library(path)
        except (OSError, AttributeError):
            continue
        if library.version() == expected:
            return library
    return None


def _loaded() -> list[str]:
    """Return the files of this name that this process has mapped: by Linux's table, or beside the package."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        paths = {
            line.split(maxsplit=5)[-1].strip()
            for line in maps.read_text().splitlines()
            if "librdkafka" in line
        }
    else:
        package = Path(str(import_confluent().__file__)).parent
        folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")
        paths = {str(path) for folder in folders for path in folder.glob("librdkafka*")}
    return sorted(paths)
