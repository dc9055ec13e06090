"""What a session's Hadoop was told of stores: asked of the JVM in one call, as there are a thousand settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

log = logging.getLogger("onceonly")

_DEFAULTS = "-default.xml"


def hadoop_of(spark: SparkSession) -> Hadoop:
    """Return the settings that somebody made, with those of the session itself. Driver.

    Never fails: where they cannot be had, the machine's own credentials are used, and paths are local.
    """
    try:
        # As the query itself makes it for its checkpoint.
        configuration = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined,unused-ignore]  # noqa: SLF001
        writer = spark.sparkContext._jvm.java.io.StringWriter()  # type: ignore[union-attr]  # noqa: SLF001
        configuration.writeXml(writer)
        return Hadoop(read(str(writer.toString()), configuration.get))
    except Exception as error:  # noqa: BLE001  a session of another make
        log.debug("The settings of Hadoop are not known: %s", type(error).__name__)
        return Hadoop()


def read(text: str, get: Callable[[str], Any]) -> dict[str, str]:
    """Read the settings that are not Hadoop's own defaults. ``get`` gives the value of one that names others. Pure."""
    found: dict[str, str] = {}
    for each in ET.fromstring(text):  # noqa: S314  of the JVM beside us
        name, value = each.findtext("name", ""), each.findtext("value", "")
        sources = [source.text or "" for source in each.findall("source")]
        if name and not (sources and sources[-1].endswith(_DEFAULTS)):
            found[name] = str(get(name) or "") if "${" in value else value
    return found
