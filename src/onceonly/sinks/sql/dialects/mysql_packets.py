"""Rows that go to a MariaDB or MySQL server in statements, of which it takes no longer ones than a packet. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onceonly.sinks.sql.dialects.mysql_tables import LONGER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.sinks.sql.types import Table

_HUNG_UP: Final = {(2006,), (2013,)}
_TOO_LONG: Final = 1153


def send(cursor: Any, insert: str, values: Sequence[Sequence[Any]], table: Table) -> None:  # noqa: ANN401  PyMySQL's
    """Insert rows. Raises PyMySQL's errors: code 1153 where a row is longer than a packet, however that was told.

    A server that is sent too much says so and hangs up; who still sends then hears of the second alone.
    """
    from pymysql import err

    try:
        cursor.executemany(insert, values)
    except err.Error as error:
        packet = table.large * LONGER
        longest = max((len(cursor.mogrify(insert, row)) for row in values), default=0)
        if error.args[:1] not in _HUNG_UP or longest <= packet:
            raise
        said = f"a row of {longest} bytes is more than max_allowed_packet ({packet}): {error.args[-1]}"
        raise err.OperationalError(_TOO_LONG, said) from error
