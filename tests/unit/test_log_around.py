"""What is read around an epoch at the same time is what is read in order, whatever others put meanwhile."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from onceonly import protocol
from onceonly.coordinator.reader import Reader
from onceonly.errors import SupersededError
from onceonly.log import FileDecisionLog
from onceonly.log.around import in_order
from onceonly.model import Guarantee, Link, LinkKind, Receipt
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

Step = Link | Receipt


def link(epoch: int, index: int = 0, kind: LinkKind = LinkKind.COMMIT, by: str = "a") -> Link:
    return Link(epoch=epoch, index=index, kind=kind, plan=f"{by}.{epoch}-{index}", run="r", barrier=("{}",))


def receipt(epoch: int, index: int = 0) -> Receipt:
    return Receipt(epoch=epoch, index=index, plan="p")


SETTLED: list[Step] = [each for epoch in range(4) for each in (link(epoch), receipt(epoch))]
# What a run may have left of chk-4, and how another one goes on from there.
LEFT: dict[str, list[Step]] = {
    "nothing": [],
    "claimed": [link(4, 0, LinkKind.ABORT)],
    "decided": [link(4)],
    "settled": [link(4), receipt(4)],
    "claimed in advance": [link(4), receipt(4), link(5, 0, LinkKind.ABORT)],
}


def goes_on(left: list[Step]) -> list[Step]:
    """Claim or repeat what was left, decide, settle, and go on with the next epochs, as a driver called b does."""
    chain = [each for each in left if isinstance(each, Link) and each.epoch == 4]
    steps: list[Step] = []
    if not any(isinstance(each, Receipt) for each in left):
        if not chain or chain[-1].kind is LinkKind.ABORT:
            steps += [link(4, len(chain), LinkKind.ABORT, "b"), link(4, len(chain) + 1, by="b")]
        else:
            steps += [link(4, len(chain), by="b")]
        steps += [receipt(4, len(chain) + len(steps) - 1)]
    index = sum(isinstance(each, Link) and each.epoch == 5 for each in left)
    steps += [link(5, index, LinkKind.ABORT, "b"), link(5, index + 1, by="b"), receipt(5, index + 1)]
    return [*steps, link(6, by="b"), receipt(6), link(7, by="b"), receipt(7)]


def put(log: FileDecisionLog, steps: list[Step]) -> None:
    for each in steps:
        if isinstance(each, Link):
            assert log.put_link(each) == each
        else:
            log.put_receipt(each)


def opened(files: dict[str, bytes], hook: Callable[[str, str], None] | None = None) -> FileDecisionLog:
    log = FileDecisionLog(MemoryStore(files, hook=hook), query="q", keep=5)
    log.verify(log.check())
    return log


def filled(steps: list[Step]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    put(opened(files), steps)
    return files


@pytest.mark.parametrize("abreast", [1, 8])
@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("epoch", [0, 1, 4, 5, 6])
def test_what_stands_is_told(epoch: int, left: str, abreast: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "abreast", abreast)
    for steps in (goes_on(LEFT[left])[:count] for count in range(12)):
        files = filled([*SETTLED, *LEFT[left], *steps])
        expected = in_order(opened(files), epoch, owners=True)
        assert opened(files).around(epoch, owners=True) == expected
        before = opened(filled([*SETTLED, *LEFT[left]]))  # who has known it since it was left so
        before._store = MemoryStore(files)
        assert before.around(epoch, owners=True) == expected


def read_beside(left: str, epoch: int, moment: int, others: list[Step]) -> protocol.ChainRead:
    """Read what is around an epoch; others put these before the read of this number."""
    files = filled([*SETTLED, *LEFT[left]])
    reads = itertools.count()

    def hook(operation: str, _name: str) -> None:
        if operation == "get" and next(reads) == moment:
            put(opened(files), others)

    log = opened(files)
    log._store = MemoryStore(files, hook=hook)
    reader = Reader(log, inputs=None, span=None)
    return reader.read(protocol.ReadChain(epoch, owners=True), reader.look(epoch, owners=True))


@pytest.mark.parametrize(
    ("epoch", "left"), [*((4, left) for left in LEFT), (5, "settled"), (5, "claimed in advance")]
)
def test_what_others_put_between_two_reads_is_no_gap(epoch: int, left: str) -> None:
    others = goes_on(LEFT[left])
    context = protocol.Context(
        epoch=epoch, plan="c.1", run="r", guarantee=Guarantee.EXACTLY_ONCE, application="c"
    )
    for moment, count in itertools.product(range(12), range(1, len(others) + 1)):
        event = read_beside(left, epoch, moment, others[:count])
        _, commands = protocol.step(protocol.begin(context)[0], event)
        stops = [each for each in commands if isinstance(each, protocol.Stop)]
        assert stops == [], (moment, count, event)


def test_an_application_that_has_gone_on_meanwhile_is_among_the_owners() -> None:
    files = filled([*SETTLED, link(4), receipt(4)])
    log = opened(files)
    put(opened(files), [link(5, by="b")])
    assert log.around(4, owners=True).owners == ("a", "b")


def test_in_the_ordinary_case_nothing_is_read_twice() -> None:
    files = filled(SETTLED)
    asked: list[str] = []
    log = opened(files)
    log._store = MemoryStore(files, hook=lambda _operation, name: asked.append(name))
    log.around(4, owners=True)
    assert sorted(asked) == sorted(
        [
            "links/00000000000000000003.0.json",
            "links/00000000000000000003.1.json",
            "links/00000000000000000004.0.json",
            "receipts/00000000000000000003.json",
        ]
    )


def test_what_is_known_of_owners_does_not_grow_with_the_epochs() -> None:
    log = opened({})
    for epoch in range(500):
        put(log, [link(epoch), receipt(epoch)])
        log.fold()
        log.around(epoch + 1, owners=True)
    assert len(log._applications) <= 2 * log._details_max


def test_who_stood_still_between_its_look_and_its_put_finds_that_its_epoch_was_folded() -> None:
    """Whatever it knew: its name is free again, and its rows must not be committed."""
    files: dict[str, bytes] = filled(SETTLED)
    old = opened(files)
    assert old.around(4, owners=True).links == ()
    new = opened(files)
    for epoch in range(4, 60):
        put(new, [link(epoch, by="b"), receipt(epoch)])
        new.fold()
    with pytest.raises(SupersededError):
        old.put_link(link(4))
    assert not [name for name in files if name.startswith("links/00000000000000000004")]
