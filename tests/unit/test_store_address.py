"""Addresses of checkpoints, as users write them and Hadoop reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError
from onceonly.log.place import home_of
from onceonly.stores.address import Kind, parse

if TYPE_CHECKING:
    from pathlib import Path

AZURE = "data@acc.dfs.core.windows.net"

MEANT = [
    # as written, kind, container, host, path, canonical
    ("/data/chk", Kind.FOLDER, "", "", "/data/chk", "file:///data/chk"),
    ("file:/data/chk/", Kind.FOLDER, "", "", "/data/chk", "file:///data/chk"),
    ("file:///data/chk", Kind.FOLDER, "", "", "/data/chk", "file:///data/chk"),
    ("/data/a:b", Kind.FOLDER, "", "", "/data/a:b", "file:///data/a:b"),
    ("/dbfs/chk", Kind.FOLDER, "", "", "/dbfs/chk", "file:///dbfs/chk"),
    ("s3a://bucket/chk", Kind.S3, "bucket", "", "chk", "s3://bucket/chk"),
    ("s3://bucket/a//b/./c/../d/", Kind.S3, "bucket", "", "a/b/d", "s3://bucket/a/b/d"),
    ("S3A://bucket", Kind.S3, "bucket", "", "", "s3://bucket"),
    ("s3a://my.bucket-1/a b%20c?d#e", Kind.S3, "my.bucket-1", "", "a b%20c?d#e", "s3://my.bucket-1/a b%20c?d#e"),
    ("gs://bucket_1/chk", Kind.GCS, "bucket_1", "", "chk", "gs://bucket_1/chk"),
    (f"abfss://{AZURE}/chk", Kind.AZURE, "data", "acc.dfs.core.windows.net", "chk", f"abfss://{AZURE}/chk"),
    (f"abfs://{AZURE}/chk", Kind.AZURE, "data", "acc.dfs.core.windows.net", "chk", f"abfss://{AZURE}/chk"),
    ("wasbs://data@acc.blob.core.windows.net/chk", Kind.AZURE, "data", "acc.dfs.core.windows.net", "chk",
     f"abfss://{AZURE}/chk"),
    ("hdfs://nn:8020/chk", Kind.HDFS, "nn", "", "chk", "hdfs://nn/chk"),
    ("hdfs://NN:9000/chk", Kind.HDFS, "nn:9000", "", "chk", "hdfs://nn:9000/chk"),
    ("hdfs://[::1]:8020/chk", Kind.HDFS, "[::1]", "", "chk", "hdfs://[::1]/chk"),
    ("hdfs:///chk", Kind.HDFS, "", "", "chk", "hdfs:///chk"),
    ("hdfs:/chk", Kind.HDFS, "", "", "chk", "hdfs:///chk"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "container", "host", "path", "canonical"), MEANT)
def test_an_address_is_read_as_hadoop_reads_it(
    text: str, kind: Kind, container: str, host: str, path: str, canonical: str
) -> None:
    found = parse(text)
    assert (found.kind, found.container, found.host, found.path) == (kind, container, host, path)
    assert found.text == canonical
    assert parse(found.text).text == canonical
    # By the scheme that was written, and in no other file system than it means here.
    assert parse(found.location, default="hdfs://other") == replace(found, scheme=found.scheme or "file")


REFUSED = [
    ("dbfs:/chk", "dbfs:", "external location"),
    ("viewfs://cluster/chk", "viewfs:", "hdfs://"),
    ("webhdfs://nn:9870/chk", "webhdfs:", "hdfs://"),
    ("oss://bucket/chk", "oss:", "S3 interface"),
    ("ftp://host/chk", "ftp:", "begins with s3a:"),
    ("s3n://bucket/chk", "s3n:", "s3a://"),
    ("s3a:///chk", "not an address of S3", "s3a://bucket/folder"),
    ("s3a://under_score!/chk", "not an address of S3", "s3a://bucket/folder"),
    ("s3a:bucket/chk", "not an address of S3", "s3a://bucket/folder"),
    ("abfss://data/chk", "not an address of Azure", "@account"),
    ("hdfs://user@nn:8020/chk", "not an address of HDFS", "hdfs://namenode"),
    ("s3a://bucket/../chk", "leads out", "without '..'"),
    ("", "names no folder", "/path"),
    ("file://host/chk", "not an absolute path", "file:///path"),
]


@pytest.mark.parametrize(("text", "what", "way_out"), REFUSED)
def test_what_no_store_is_known_for_is_refused_with_the_way_out(text: str, what: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        parse(text)
    assert way_out in caught.value.next_step


@pytest.mark.parametrize(
    "text", ["s3a://key:s3cr3t@bucket/chk", "ftp://me:s3cr3t@host/chk", "hdfs://u:s3cr3t@nn/chk"]
)
def test_a_password_in_an_address_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text)
    assert "s3cr3t" not in str(caught.value)


def test_a_path_without_a_scheme_is_in_hadoops_default_file_system() -> None:
    assert parse("/chk", default="hdfs://nn:8020/").text == "hdfs://nn/chk"
    assert parse("/chk", default="s3a://bucket").text == "s3://bucket/chk"
    assert parse("file:/chk", default="hdfs://nn:8020/").kind is Kind.FOLDER
    with pytest.raises(ConfigurationError, match="relative"):
        parse("chk", default="hdfs://nn:8020/")


def test_what_is_below_an_address_is_in_the_same_store() -> None:
    assert (
        parse("s3a://bucket").below("onceonly").below("links/1.json").text
        == "s3://bucket/onceonly/links/1.json"
    )
    assert parse("/").below("onceonly").text == "file:///onceonly"


def test_the_home_of_a_checkpoint_has_no_links_in_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert home_of(str(tmp_path / "link")) == f"file://{tmp_path.resolve() / 'real'}"
    assert home_of("s3a://bucket/chk/") == home_of("s3://bucket/chk") == "s3://bucket/chk"
