"""What ``onceonly.register`` refuses before it touches a session."""

from __future__ import annotations

import pytest

import onceonly
from onceonly.errors import SetupError


def test_a_session_of_spark_connect_is_refused_by_name() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(SetupError, match="Spark Connect") as caught:
        onceonly.register(session)
    assert "classic" in caught.value.what
