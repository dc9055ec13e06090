"""What a log does on every store of objects, as tests: say which checkpoint, by a fixture ``checkpoint``."""

from __future__ import annotations

import time

import pytest

from onceonly.errors import CheckpointMovedError, OnceonlyError
from onceonly.log import identity_token, open_log
from onceonly.log.presence import Presence, present
from onceonly.model import Link, LinkKind
from onceonly.stores.address import parse
from onceonly.stores.opened import open_store


class StoredLogs:
    """A checkpoint is an address of its own, in a process that was told how to reach it."""

    def test_a_log_is_opened_by_the_address_of_its_checkpoint(self, checkpoint: str) -> None:
        assert identity_token(checkpoint) is None
        log = open_log(checkpoint, query="q", create=True)
        link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")
        log.put_link(link)
        again = open_log(checkpoint + "/", query="q", create=False)
        assert again.chain(0) == (link,)
        assert again.newest() == 0
        assert identity_token(checkpoint) is not None
        with pytest.raises(OnceonlyError, match="belongs to the query q"):
            open_log(checkpoint, query="other", create=True)

    def test_a_checkpoint_that_was_copied_is_noticed(self, checkpoint: str) -> None:
        open_log(checkpoint, query="q", create=True)
        copy = f"{checkpoint}-copy"
        here, there = (open_store(parse(f"{each}/onceonly")) for each in (checkpoint, copy))
        there.replace("identity.json", here.get("identity.json") or b"")
        text = parse(checkpoint).text
        with pytest.raises(CheckpointMovedError, match=rf"{text} and is now at {text}-copy"):
            open_log(copy, query="q", create=True)

    def test_who_works_on_a_checkpoint_shows_by_a_heartbeat(self, checkpoint: str) -> None:
        assert present(checkpoint) is None
        presence = Presence.hold(checkpoint, actor="driver")
        deadline = time.monotonic() + 20
        while (who := present(checkpoint)) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert who is not None
        assert "(driver)" in who
        presence.close()
        while present(checkpoint) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert present(checkpoint) is None
