"""Every reason to stop becomes a typed error that names the epoch and the next step."""

from __future__ import annotations

import pytest

from onceonly.coordinator.stops import error_of
from onceonly.errors import OnceonlyError
from onceonly.protocol import Stop, StopReason


@pytest.mark.parametrize("reason", StopReason, ids=str)
def test_every_reason_has_an_error_of_its_own(reason: StopReason) -> None:
    error = error_of(Stop(reason, "the detail"), query="q1", epoch=7)

    assert isinstance(error, OnceonlyError)
    assert "Query q1, chk-7: " in error.what
    assert "(the detail)" in error.what
    assert error.next_step.endswith(".")


def test_only_what_a_restart_heals_is_restartable() -> None:
    healed = {reason for reason in StopReason if error_of(Stop(reason, ""), query="q", epoch=0).restartable}

    assert healed == {
        StopReason.DELAYED,
        StopReason.EXCHANGED,
        StopReason.LATE,
        StopReason.LOST,
        StopReason.MOVED,
        StopReason.OVERTAKEN,
        StopReason.RESTORED,
        StopReason.UNSYNCED,
    }
