"""What a job gives to Hadoop, read from the files in which operators have it; and nothing of it is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError
from onceonly.stores.access import Hadoop
from onceonly.stores.configuration import settings

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("fs.s3a.endpoint", "fs.s3a.access.key", "fs.s3a.secret.key", "fs.defaultFS", "dfs.nameservices")


def told(hadoop: Hadoop) -> dict[str, str]:
    return {name: value for name in NAMES if (value := hadoop.get(name))}


def site(path: Path, **values: str) -> Path:
    properties = "".join(
        f"<property><name> {name.replace('_', '.')} </name>\n<value>{value}</value></property>"
        for name, value in values.items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<?xml version="1.0"?>\n<configuration>{properties}</configuration>', encoding="utf-8")
    return path


def test_settings_of_spark_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# a comment\n! another\n\nspark.master yarn\n"
        "spark.hadoop.fs.s3a.endpoint   http://minio:9000  \r\n"
        "  spark.hadoop.fs.s3a.access.key=a:k=1\n"
        "spark.hadoop.fs.s3a.secret.key: s\\\\k\\u002f#+\\\n   more==\n"
        "spark.hadoop.fs.defaultFS",
        encoding="utf-8",
    )
    assert told(settings([file], {})) == {
        "fs.s3a.endpoint": "http://minio:9000",
        "fs.s3a.access.key": "a:k=1",
        "fs.s3a.secret.key": "s\\k/#+more==",
    }


def test_the_folder_of_the_environment_comes_first_and_what_is_given_wins(tmp_path: Path) -> None:
    site(tmp_path / "conf/core-site.xml", fs_s3a_endpoint="a", fs_defaultFS="hdfs://ns")
    site(tmp_path / "conf/hdfs-site.xml", dfs_nameservices="ns")
    environment = {"HADOOP_CONF_DIR": str(tmp_path / "conf")}
    assert told(settings([], environment)) == {
        "fs.s3a.endpoint": "a", "fs.defaultFS": "hdfs://ns", "dfs.nameservices": "ns",
    }  # fmt: skip
    other = site(tmp_path / "given.xml", fs_s3a_endpoint="b")
    assert told(settings([other], environment))["fs.s3a.endpoint"] == "b"
    folder = site(tmp_path / "folder/core-site.xml", fs_s3a_endpoint="c").parent
    assert told(settings([other, folder], environment))["fs.s3a.endpoint"] == "c"


def test_a_folder_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert settings([], {"HADOOP_CONF_DIR": str(tmp_path / "none")}) == Hadoop()
    assert settings([], {}) == Hadoop()


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("${env.KEY}", "from outside"),
        ("${env.NONE:-x-y}", "x-y"),
        ("${env.NONE-z}", "z"),
        ("${env.NONE}", "${env.NONE}"),
        ("http://${fs.s3a.access.key}:1", "http://me:1"),
        ("${a}", "me!"),
        ("${loop}", "${loop}"),
        ("${nobody.knows}", "${nobody.knows}"),
        ("$HOME {x}", "$HOME {x}"),
    ],
)
def test_what_a_value_names_is_put_in_as_hadoop_does(tmp_path: Path, value: str, means: str) -> None:
    file = site(
        tmp_path / "core-site.xml",
        **{"fs.s3a.endpoint": value, "fs.s3a.access.key": "me", "a": "${b}!", "b": "${fs.s3a.access.key}",
           "loop": "${loop}"},
    )  # fmt: skip
    assert settings([file], {"KEY": "from outside"}).get("fs.s3a.endpoint") == means


BAD = [
    (b"<configuration><property>hunter2</name>", "no XML, line 1"),
    (b"spark.hadoop.fs.s3a.secret.key hunter2\xff\xfe", "no text"),
]


@pytest.mark.parametrize(("data", "why"), BAD)
def test_a_file_that_cannot_be_read_is_named_and_not_shown(tmp_path: Path, data: bytes, why: str) -> None:
    file = tmp_path / "conf"
    file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=re.escape(f"{file} cannot be read: it is {why}")) as caught:
        settings([file], {})
    assert "hunter2" not in str(caught.value) + caught.value.next_step
    assert "--hadoop-conf" in caught.value.next_step


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_bytes(b"\xef\xbb\xbffs.s3a.endpoint e")
    (tmp_path / "b.xml").write_bytes(
        b"\xef\xbb\xbf<configuration><property><name>fs.s3a.access.key</name><value>k</value></property>"
        b"</configuration>"
    )
    found = settings([tmp_path / "a.conf", tmp_path / "b.xml"], {})
    assert told(found) == {"fs.s3a.endpoint": "e", "fs.s3a.access.key": "k"}
    assert repr(found) == "Hadoop(2 settings)"
