"""The demo's data: all flights, in the order of the calendar, and a watermark that drops none."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from onceonly.errors import ConfigurationError
from onceonly_proof.demo import data

DAY_S = 86_400


def test_all_flights_are_read_once_and_days_come_in_order() -> None:
    rows = data.read_flights(data.EVENTS_MAX)
    assert sorted(rows["id"]) == list(range(data.EVENTS_MAX))
    assert int(rows["user"].isna().sum()) == 2_512
    assert data.checked(rows) == timedelta(hours=22)


def test_an_event_without_a_user_has_no_such_field() -> None:
    assert json.loads(data.Flight(7, "UA", None, 3_600).to_json()) == {
        "id": 7, "app_id": "UA", "event_time": 3_600,
    }  # fmt: skip
    assert json.loads(data.Flight(7, "UA", "N1", 0).to_json())["user"] == "N1"


def test_lateness_is_the_worst_way_behind_a_newer_event() -> None:
    assert data.lateness([]) == timedelta(0)
    assert data.lateness([1, 2, 3]) == timedelta(0)
    assert data.lateness([10, 3, 12, 9]) == timedelta(seconds=7)
    assert data.lateness([3, 10], displaced=1) == timedelta(seconds=7)


def test_events_that_the_watermark_would_drop_are_refused() -> None:
    rows = data.read_flights(1_000)
    rows.loc[rows.index[-1], "hour"] -= 10 * DAY_S
    with pytest.raises(ConfigurationError, match="late"):
        data.checked(rows)
