"""The decision log behaves as a dictionary, whatever puts, folds, crashes and sleepers are mixed."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from onceonly.errors import SupersededError
from onceonly.log import FileDecisionLog
from onceonly.log.around import in_order
from onceonly.log.history import summarise
from onceonly.model import Handle, Link, LinkKind, Receipt, Vote
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.stores.memory import MemoryStore

DRIVERS = st.integers(0, 2)
KEEP = 3


class CrashError(Exception):
    pass


class LogMachine(RuleBasedStateMachine):
    """Three drivers on one set of files; ``links`` and ``receipts`` are what must be there, forever."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.links: dict[int, list[Link]] = {}
        self.receipts: dict[int, Receipt] = {}
        self.disk = MemoryDisk()
        self.runs = 0
        self.left: int | None = None

    @initialize(first=st.integers(0, 130))
    def begin(self, first: int) -> None:
        self.epoch = first
        self.first = first
        self.drivers = [self.open() for _ in range(3)]
        self.slow = list(self.drivers)

    def open(self) -> FileDecisionLog:
        log = FileDecisionLog(MemoryStore(self.files, hook=self.passing), query="q", keep=KEEP)
        log.check()
        return log

    def passing(self, operation: str, name: str) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise CrashError(operation, name)

    def link(self, epoch: int, kind: LinkKind, driver: int) -> Link:
        self.runs += 1
        vote = Vote(
            sink="s", epoch=epoch, slot=0, plan=f"{self.runs}", run=f"{driver}", attempt="0", rows=self.runs,
            checksum="0" * 16, handle=Handle(transaction=f"t{self.runs}"),
        )  # fmt: skip
        return Link(
            epoch=epoch,
            index=len(self.links.get(epoch, ())),
            kind=kind,
            plan=f"{self.runs}",
            run=f"{driver}",
            votes=(vote,) if kind is LinkKind.COMMIT else (),
        )

    def put(self, driver: int, link: Link, crash: int | None) -> None:
        """Put, perhaps crash in it, and open again; the model takes in what the files say."""
        chain = self.links.get(link.epoch, [])
        self.left = crash
        try:
            assert self.drivers[driver].put_link(link) == link
        except CrashError:
            self.drivers[driver] = self.open()
        self.left = None
        stands = self.drivers[driver].chain(link.epoch)
        assert list(stands) in (chain, [*chain, link])
        if len(stands) > len(chain):
            self.links.setdefault(link.epoch, []).append(link)
            assert MemoryLog(self.disk, keep=KEEP).put_link(link) == link

    @rule(driver=DRIVERS, crash=st.none() | st.integers(0, 8))
    def claim(self, driver: int, crash: int | None) -> None:
        self.put(driver, self.link(self.epoch, LinkKind.ABORT, driver), crash)

    @rule(driver=DRIVERS, count=st.integers(1, 45), fold=st.booleans())
    def run_epochs(self, driver: int, count: int, fold: bool) -> None:  # noqa: FBT001  hypothesis passes it by name
        for _ in range(count):
            self.put(driver, self.link(self.epoch, LinkKind.COMMIT, driver), None)
            receipt = Receipt(
                epoch=self.epoch, index=len(self.links[self.epoch]) - 1, plan="p", outcomes={"Committed": 1}
            )
            self.drivers[driver].put_receipt(receipt)
            MemoryLog(self.disk, keep=KEEP).put_receipt(receipt)
            self.receipts[self.epoch] = receipt
            self.epoch += 1
            if fold:
                self.drivers[driver].fold()

    @rule(driver=DRIVERS, crash=st.none() | st.integers(0, 400))
    def fold(self, driver: int, crash: int | None) -> None:
        self.left = crash
        try:
            self.drivers[driver].fold()
        except CrashError:
            self.drivers[driver] = self.open()
        self.left = None

    @rule(driver=DRIVERS)
    def reopen(self, driver: int) -> None:
        self.drivers[driver] = self.open()

    @rule(driver=DRIVERS, back=st.integers(0, 60), data=st.data())
    def sleeper_puts(self, driver: int, back: int, data: Any) -> None:  # noqa: ANN401  hypothesis's own type
        """A driver that slept puts what it had in mind: it gets what stands, or learns that it is too old."""
        epoch = self.epoch - 1 - back
        if epoch not in self.links:
            return
        index = data.draw(st.integers(0, len(self.links[epoch]) - 1))
        mine = Link(epoch=epoch, index=index, kind=LinkKind.ABORT, plan="sleeper", run="sleeper")
        before = dict(self.files)
        try:
            assert self.drivers[driver].put_link(mine) == self.links[epoch][index]
        except SupersededError:
            assert epoch <= self.epoch - 1 - KEEP
        assert self.files == before

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "drivers"):
            return
        for log in (*self.drivers, self.open()):
            assert log.newest() == max(self.links, default=None)
            if not self.links:
                assert log.epochs() == range(0)
                continue
            assert log.epochs() == range(self.first, max(self.links) + 1)
            lines = list(log.history())
            assert lines == [
                summarise(self.links[n], self.receipts[n]) for n in range(self.first, self.first + len(lines))
            ]
            folded_to = self.first + len(lines)
            for epoch in (self.epoch - 1, self.epoch):
                # At the same time or in order, and whatever it knew before.
                assert log.around(epoch, owners=False) == in_order(self.open(), epoch, owners=False)
            for epoch in range(max(folded_to, self.epoch - 4), self.epoch + 1):
                assert list(log.chain(epoch)) == self.links.get(epoch, [])
                assert log.receipt(epoch) == self.receipts.get(epoch)
                assert MemoryLog(self.disk).chain(epoch) == log.chain(epoch)
            for epoch in range(folded_to, self.epoch):
                assert log.chain(epoch) in ((), tuple(self.links[epoch]))


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True, database=None
)
