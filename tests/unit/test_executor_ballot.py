"""What travels from an attempt to the driver."""

from __future__ import annotations

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.executor.ballot import Ballot
from onceonly.model import Handle, Vote


def test_a_ballot_comes_back_from_json_as_it_was() -> None:
    vote = Vote(
        sink="kafka",
        epoch=7,
        slot=0,
        plan="p",
        run="r",
        attempt="a",
        rows=3,
        checksum="xxh3:0",
        handle=Handle(transaction="t"),
    )
    ballot = Ballot(vote=vote, refused="a row")
    assert decoder(Ballot).decode(msgspec.json.encode(ballot)) == ballot
