"""What a file of the log may look like, and how each damage is named."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from onceonly.errors import LogError
from onceonly.log import files
from onceonly.log.history import Segment, Summary
from onceonly.log.identity import Identity
from onceonly.model import Guarantee, Handle, InputFile, Inputs, Link, LinkKind, Receipt, SinkUse, Stamp, Vote

GOLDEN = Path(__file__).parent / "golden"
WHERE = "/data/checkpoint/onceonly/links/00000000000000000007.0.json"

VOTE = Vote(
    sink="kafka",
    epoch=7,
    slot=3,
    plan="plan-1",
    run="run-1",
    attempt="11",
    rows=1200,
    checksum="00ff00ff00ff00ff",
    handle=Handle(transaction="q.kafka.run-1.w.3", data={"producer_id": 4001, "group": "onceonly-q-kafka-3"}),
)
EMPTY = Vote(
    sink="kafka", epoch=7, slot=4, plan="plan-1", run="run-1", attempt="12", rows=0, checksum="0" * 16
)
LINK = Link(
    epoch=7,
    index=1,
    kind=LinkKind.COMMIT,
    plan="plan-1",
    run="run-1",
    guarantee=Guarantee.EXACTLY_ONCE,
    votes=(VOTE, EMPTY),
    carried=(VOTE,),
    barrier=('{"events":{"0":1000}}',),
    settings={"kafka": {"topic": "results", "partitions": 3}},
    uses={"kafka": SinkUse(sink="kafka", options={"topic": "results"})},
    reason="",
)
ABORT = Link(epoch=8, index=0, kind=LinkKind.ABORT, plan="plan-2", run="run-2", reason="claimed — été")
RECEIPT = Receipt(
    epoch=7, index=1, plan="plan-1", outcomes={"Committed": 1, "AlreadyCommitted": 1}, seconds=0.125
)
SUMMARY = Summary(
    epoch=7, kind=LinkKind.COMMIT, links=2, sinks={"kafka": (1200, 2)}, outcomes={"Committed": 1}
)
SEGMENT = Segment(first=7, last=7, epochs=(SUMMARY,))
IDENTITY = Identity(query="b4c7", log="5c1f", address="file:///data/checkpoint")

FORMAT_1: dict[str, tuple[str, Any]] = {
    "link-commit.json": ("link", LINK),
    "link-abort.json": ("link", ABORT),
    "receipt.json": ("receipt", RECEIPT),
    "history.json": ("history", SEGMENT),
    "identity.json": ("identity", IDENTITY),
}


STAMP = Stamp(at="2026-11-26T20:15:00.125Z", host="spark-1", pid=4711)
INPUTS = Inputs(
    files=(
        InputFile(name="offsets/7", digest="sha256:00", text='v1\n{}\n{"events":{"0":1000}}'),
        InputFile(name="sources/1/3", digest="sha256:01"),
    )
)
STAMPED = replace(VOTE, stamp=STAMP)
# What format 2 has more; what it has not is as in format 1.
FORMAT_2: dict[str, tuple[str, Any]] = {
    "link-commit.json": (
        "link", replace(LINK, votes=(STAMPED, EMPTY), carried=(STAMPED,), planned=STAMP, stamp=STAMP, inputs=INPUTS),
    ),
    "link-abort.json": ("link", replace(ABORT, stamp=STAMP)),
    "link-skipped.json": (
        "link", replace(ABORT, kind=LinkKind.SKIPPED, reason="unchanged", barrier=LINK.barrier, stamp=STAMP),
    ),
    "receipt.json": ("receipt", replace(RECEIPT, stamp=STAMP)),
    "history.json": (
        "history",
        replace(SEGMENT, epochs=(replace(SUMMARY, aborts=1, at=1795724100.125, planned_s=0.5, settled_s=1.25),)),
    ),
    "identity.json": ("identity", IDENTITY),
}  # fmt: skip


SIZED = replace(STAMPED, bytes=98_304)
# What format 3 has more; what it has not is as in format 2.
FORMAT_3: dict[str, tuple[str, Any]] = {
    **FORMAT_2,
    "link-commit.json": (
        "link",
        replace(FORMAT_2["link-commit.json"][1], votes=(SIZED, EMPTY), carried=(SIZED,)),
    ),
    "history.json": (
        "history",
        replace(SEGMENT, epochs=(replace(FORMAT_2["history.json"][1].epochs[0], bytes={"kafka": 196_608}),)),
    ),
}


# What format 4 has more; what it has not is as in format 3.
FORMAT_4: dict[str, tuple[str, Any]] = {
    **FORMAT_3,
    "link-commit.json": (
        "link",
        replace(
            FORMAT_3["link-commit.json"][1],
            uses={"kafka": replace(LINK.uses["kafka"], columns=(("value", "string"), ("key", "binary")))},
        ),
    ),
    "history.json": (
        "history",
        replace(
            SEGMENT,
            epochs=(
                replace(
                    FORMAT_3["history.json"][1].epochs[0],
                    sums={"kafka": ("0123abcd", "murmur64:00ff00ff00ff00ff")},
                ),
            ),
        ),
    ),
}


def forged(body: bytes, **changes: object) -> bytes:
    """Return a file whose header is right, but for the changes."""
    header = {
        "format": "onceonly",
        "kind": "link",
        "version": 1,
        "length": len(body),
        "checksum": "sha256:" + hashlib.sha256(body).hexdigest(),
    } | changes
    return json.dumps(header).encode() + b"\n" + body


def read(data: bytes) -> Link:
    return files.decode(data, kind="link", into=Link, where=WHERE)


@pytest.mark.parametrize("name", FORMAT_1)
def test_files_of_format_1_are_read_with_defaults_for_what_is_new(name: str) -> None:
    kind, value = FORMAT_1[name]
    data = (GOLDEN / name).read_bytes()
    assert files.decode(data, kind=kind, into=type(value), where=name) == value
    read_again = files.decode(files.encode(kind, value), kind=kind, into=type(value), where=name)
    assert (read_again, files.encode(kind, read_again)) == (value, files.encode(kind, value))


@pytest.mark.parametrize("name", FORMAT_2)
def test_files_of_format_2_are_read_with_defaults_for_what_is_new(name: str) -> None:
    kind, value = FORMAT_2[name]
    data = (GOLDEN / "2" / name).read_bytes()
    found = files.decode(data, kind=kind, into=type(value), where=name)
    assert msgspec.to_builtins(found) == msgspec.to_builtins(value), (
        "times are not compared, but they are told"
    )
    read_again = files.decode(files.encode(kind, value), kind=kind, into=type(value), where=name)
    assert msgspec.to_builtins(read_again) == msgspec.to_builtins(value)


@pytest.mark.parametrize("name", FORMAT_3)
def test_files_of_format_3_are_read_with_defaults_for_what_is_new(name: str) -> None:
    kind, value = FORMAT_3[name]
    data = (GOLDEN / "3" / name).read_bytes()
    found = files.decode(data, kind=kind, into=type(value), where=name)
    assert msgspec.to_builtins(found) == msgspec.to_builtins(value), (
        "times and sizes are not compared, but they are told"
    )
    read_again = files.decode(files.encode(kind, value), kind=kind, into=type(value), where=name)
    assert msgspec.to_builtins(read_again) == msgspec.to_builtins(value)


@pytest.mark.parametrize("name", FORMAT_4)
def test_files_of_format_4_are_read_and_written_as_ever(name: str) -> None:
    kind, value = FORMAT_4[name]
    data = (GOLDEN / "4" / name).read_bytes()
    found = files.decode(data, kind=kind, into=type(value), where=name)
    assert msgspec.to_builtins(found) == msgspec.to_builtins(value), (
        "times and sizes are not compared, but they are told"
    )
    assert files.encode(kind, value) == data


def test_times_are_for_people_and_make_no_link_another_one() -> None:
    later = replace(STAMP, at="2027-01-01T00:00:00.000Z", host="spark-2")
    assert replace(LINK, stamp=STAMP, planned=STAMP) == replace(LINK, stamp=later, planned=None)
    assert replace(VOTE, stamp=STAMP) == replace(VOTE, stamp=later)
    assert replace(RECEIPT, stamp=STAMP) == replace(RECEIPT, stamp=later)


def test_the_order_of_a_mapping_does_not_change_the_bytes() -> None:
    one = Handle(transaction="t", data={"a": 1, "b": 2})
    other = Handle(transaction="t", data=MappingProxyType({"b": 2, "a": 1}))
    assert files.encode("link", one) == files.encode("link", other)


BODY = files.encode("link", LINK).partition(b"\n")[2]
DAMAGES = {
    "empty": (b"", "empty or torn"),
    "torn in the header": (files.encode("link", LINK)[:40], "empty or torn"),
    "torn in the body": (files.encode("link", LINK)[:-5], "torn"),
    "longer": (files.encode("link", LINK) + b" ", "torn"),
    "zeros": (bytes(512), "empty or torn"),
    "a flipped bit": (files.encode("link", LINK).replace(b"1200", b"1201"), "checksum differs"),
    "header not JSON": (b"nonsense\n" + BODY, "damaged header"),
    "header of another kind of file": (b'{"a":1}\n' + BODY, "damaged header"),
    "header with an unknown field": (forged(BODY, more=1), "damaged header"),
    "not ours": (forged(BODY, format="other"), "not written by onceonly"),
    "newer": (forged(BODY, version=files.VERSION + 1), "newer onceonly"),
    "newer, with another header": (
        b'{"format":"onceonly","version":%d,"crc":1}\n\x00\x01' % (files.VERSION + 1),
        "newer onceonly",
    ),
    "version 0": (forged(BODY, version=0), "never was"),
    "another kind": (forged(BODY, kind="receipt"), "a 'receipt' where a 'link' belongs"),
    "body not JSON": (forged(b"{"), "not hold a valid link"),
    "a missing field": (forged(b'{"epoch":7}'), "not hold a valid link"),
    "a wrong type": (forged(BODY.replace(b'"index":1', b'"index":"1"')), "not hold a valid link"),
    "an unknown field": (
        forged(BODY[:-1] + b',"more":1}'),
        f"fields that format {files.VERSION} does not have",
    ),
    "an unknown field inside": (
        forged(BODY.replace(b'"slot":3', b'"slot":3,"more":1')),
        f"fields that format {files.VERSION} does not have",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_named_with_the_file(damage: str) -> None:
    data, words = DAMAGES[damage]
    with pytest.raises(LogError) as caught:
        read(data)
    assert WHERE in caught.value.what
    assert words in caught.value.what
    assert ("upgrade onceonly" in caught.value.next_step) == damage.startswith("newer")


def test_no_flipped_bit_goes_unnoticed() -> None:
    data = files.encode("link", ABORT)
    version = data.index(b'"version":') + len(b'"version":')
    for position in range(len(data)):
        for bit in (0, 3, 7):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            if position == version and chr(changed[position]) in map(str, range(1, files.VERSION)):
                # The number of an earlier version, by which the same is read.
                assert msgspec.to_builtins(read(bytes(changed))) == msgspec.to_builtins(ABORT)
                continue
            with pytest.raises(LogError):
                read(bytes(changed))


FIRST = """
import sys
import threading
from dataclasses import make_dataclass

import msgspec

from onceonly.durable.sealed import decoder

sys.setswitchinterval(1e-6)
for _ in range(60):
    inner = make_dataclass("Inner", [(f"f{n}", int) for n in range(30)])
    outer = make_dataclass("Outer", [("a", inner), ("b", list[inner]), *[(f"g{n}", str, "") for n in range(30)]])
    data = msgspec.json.encode(outer(inner(*range(30)), [inner(*range(30))] * 2))
    together = threading.Barrier(8)

    def read():
        together.wait()
        decoder(outer).decode(data)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_many_threads_may_be_the_first_to_read_a_type() -> None:
    # With msgspec.json.decode(data, type=outer) it ends by SIGSEGV.
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_product_learns_types_in_one_place_only() -> None:
    source = Path(files.__file__).parents[1]
    learnt = [
        f"{path.relative_to(source)}:{number}"
        for path in source.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "msgspec.json.Decoder(" in line or ("msgspec.json.decode(" in line and "type=" in line)
    ]
    assert [each.partition(":")[0] for each in learnt] == ["durable/sealed.py"], learnt
