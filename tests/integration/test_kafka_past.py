"""A cluster whose data were put back to what they had been: noticed at the next start."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from kafka_query import PROPERTIES, Query, wait_for

from onceonly.errors import TargetBehindError
from onceonly.model import Committed
from onceonly.sinks.kafka import KafkaSink
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


def test_a_restored_cluster_is_behind_and_names_the_epochs_that_it_lacks(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka", properties=PROPERTIES) as kafka:
        query = Query(kafka)
        assert query.commit(query.prepare("0")) == Committed()
        query.until_read("0")
        kafka.stop()
        shutil.copytree(kafka.directory / "data", tmp_path / "backup")
        kafka.start()
        for epoch in (1, 2):
            handle = query.prepare(str(epoch), epoch=epoch)
            assert query.commit(handle) == Committed()
        query.until_read("0", "1", "2")
        KafkaSink(query.options).look_back(query.context, 2, [handle])
        assert KafkaSink(query.options).newest_epoch(query.context) == 2
        kafka.stop()
        shutil.rmtree(kafka.directory / "data")
        shutil.move(tmp_path / "backup", kafka.directory / "data")
        kafka.start()
        wait_for(lambda: query.read() == ["0"], "the restored cluster")
        with pytest.raises(TargetBehindError, match="chk-1 to chk-2 are not there"):
            KafkaSink(query.options).look_back(query.context, 2, [handle])
        KafkaSink({**query.options, "onceonly.target.behind": "go-on"}).look_back(query.context, 2, [handle])
