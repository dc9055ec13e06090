"""What a table of MySQL or MariaDB takes, by its INFORMATION_SCHEMA."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from onceonly.sinks.sql.types import UUID, Column, Table, bits, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Ask = Callable[..., list[Any]]

TYPES: Final[Mapping[str, str]] = {
    "bool": "BOOLEAN", "text": "LONGTEXT CHARACTER SET utf8mb4", "binary": "LONGBLOB", "date": "DATE",
    "local": "DATETIME(6)", "instant": "TIMESTAMP(6) NULL", "nested": "JSON",
}  # fmt: skip
"""What a column is made as, by what is given; decimals and numbers are not among them."""
KEYS: Final[Mapping[str, str]] = {
    "text": "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "binary": "VARBINARY(255)",
    "instant": "TIMESTAMP(6)",
}  # fmt: skip
"""What it is made as where it is a key."""
_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BYTES = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_TEXTS = frozenset({"varchar", "tinytext", "text", "mediumtext", "longtext", "char"})
_NOT_ASCII = "swe7"
"""The one charset of MariaDB's and MySQL's that lacks letters of ASCII: asked of a server, all others have them."""
_NO_END_SPACE = r"(?s)^(?:.*[^ ])?$"
_BLANK_AT_END = " $"
LONGER: Final = 8
"""What is sent of a value is not so many times as long: bytes in hexadecimal digits, JSON with escapes."""
_PADS_NOT = re.compile("nopad|_0900_")
"""Collations by which a text is another one with a blank at its end; by all others, it is the same."""
_REFERS = (
    "SELECT DISTINCT REFERENCED_TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s "
    "AND TABLE_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL"
)
_REFERRED = (
    "SELECT DISTINCT TABLE_NAME, REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE "
    "WHERE REFERENCED_TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME = %s ORDER BY TABLE_NAME"
)
_PLAIN: Final[Mapping[str, dict[str, Any]]] = {
    "date": {"takes": ("date",)},
    "uuid": UUID,
    "year": {"takes": ("int",), "low": 1901, "high": 2155},
}
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_SETTINGS = "SHOW VARIABLES WHERE Variable_name IN ('max_allowed_packet', 'innodb_page_size')"
_PAGE, _PAGE_MAX = 1 << 14, 1 << 15
"""Bytes of a page where nobody says other; of larger ones than the second, a row has no more."""
_INLINE, _POINTER, _NUMBER = 255, 40, 8
_BEGINNING: Final[Mapping[str, int]] = {"compact": 788, "redundant": 788}
"""How much of a long value stays in its row, by the row's format; of others, a pointer."""
EXPLAINED: Final[Mapping[str, str]] = {
    "SELECT": "SELECT {1} FROM {0}",
    "INSERT": "INSERT INTO {0} ({1}) VALUES (DEFAULT)",
    "UPDATE": "UPDATE {0} SET {1} = DEFAULT WHERE 1 = 0",
    "DELETE": "DELETE FROM {0} WHERE 1 = 0",
}
"""A statement on a table and one of its columns for which a right is needed."""
TEMPORARY = re.compile(r"CREATE TEMPORARY TABLES|ALL PRIVILEGES|GRANT [`'][^ ]* TO ")
"""What is granted by name, with everything, or perhaps with a role."""


def described(ask: Ask, schema: str, name: str, *, key: Sequence[str], deletes: bool) -> Table | None:
    """Look a table up, of which rows are replaced by ``key``; None where it is not there. In a transaction."""
    found = ask(
        "SELECT t.TABLE_NAME, t.TABLE_TYPE, t.ENGINE, e.TRANSACTIONS, t.CREATE_OPTIONS, t.ROW_FORMAT "
        "FROM information_schema.TABLES t LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
        "WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s", schema, name,
    )  # fmt: skip
    if not found:
        return None
    name, kind, engine, transactions, options, row_format = found[0]
    checks = _checks(ask, schema, name)
    told = [
        dict(zip(_ASKED, row, strict=True))
        for row in ask(
            f"SELECT {', '.join(_ASKED)} FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION", schema, name,
        )
    ]  # fmt: skip
    columns = tuple(_column(each, checks) for each in told)
    keys, doubts = _keys(ask, schema, name)
    doubts += [f"the check {text}" for text in checks if _json_of(text) is None]
    doubts += _others(ask, schema, name, key=key, deletes=deletes)
    # By ON DUPLICATE KEY UPDATE a row is taken for another one that such an index takes for the same.
    computed = {column.name for column in columns if column.computed}
    passing = [each for each in doubts if each.startswith(("the trigger ", "the index "))]
    passing += [f"the unique columns {', '.join(key)}" for key in sorted(keys) if computed & set(key)]
    doubts += ["partitions"] if "partitioned" in (options or "").lower() else []
    settings = dict(ask(_SETTINGS))
    doubts += _crowded(told, row_format or "", int(settings.get("innodb_page_size", _PAGE)))
    return Table(name=f"{schema}.{name}", columns=columns, keys=tuple(sorted(keys)), doubts=tuple(doubts),
                 passing=tuple(passing), wrong=_wrong(kind, engine, transactions),
                 large=int(settings["max_allowed_packet"]) // LONGER)  # fmt: skip


_ASKED = (
    "COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "IS_NULLABLE", "COLUMN_DEFAULT", "EXTRA", "CHARACTER_MAXIMUM_LENGTH",
    "CHARACTER_OCTET_LENGTH", "CHARACTER_SET_NAME", "COLLATION_NAME", "NUMERIC_PRECISION", "NUMERIC_SCALE",
    "DATETIME_PRECISION",
)  # fmt: skip


def _crowded(columns: Sequence[Mapping[str, Any]], row_format: str, page: int) -> list[str]:
    """Return a doubt where a row whose values fit may still be too long for a page, which has to hold two. Pure.

    What a value has beyond a beginning lies elsewhere, where its column may have more than 255 bytes.
    """
    beginning = _BEGINNING.get(row_format.lower(), _POINTER)
    longest = [int(each["CHARACTER_OCTET_LENGTH"] or _NUMBER) for each in columns]
    needed = sum(each if each <= _INLINE else min(each, beginning) for each in longest)
    half = min(page, _PAGE_MAX) // 2 - page // 32
    return [f"rows that are too long for a page of {page} bytes"] if needed > half else []


def automatic(ask: Ask, schema: str, name: str) -> set[str]:
    """Return the column to which the server gives a number of its own where none is written."""
    asked = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
    return {column for (column,) in ask(asked + "AND EXTRA LIKE '%%auto_increment%%'", schema, name)}


def _wrong(kind: str, engine: str | None, transactions: str | None) -> str:
    if "VIEW" in kind:
        return "is a view"
    if transactions != "YES":
        return f"is kept by the engine {engine}, which has no transactions: what it was given, nobody can take back"
    return ""


def _keys(ask: Ask, schema: str, name: str) -> tuple[set[tuple[str, ...]], list[str]]:
    """Return the sets of columns that are unique together, and indexes that are unique in another way."""
    indexes: dict[str, list[tuple[str | None, int | None]]] = {}
    keys, doubts = set(), list[str]()
    for index, column, part, collation in ask(
        "SELECT s.INDEX_NAME, s.COLUMN_NAME, s.SUB_PART, c.COLLATION_NAME FROM information_schema.STATISTICS s "
        "LEFT JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME "
        "AND c.COLUMN_NAME = s.COLUMN_NAME WHERE s.TABLE_SCHEMA = %s AND s.TABLE_NAME = %s AND s.NON_UNIQUE = 0 "
        "ORDER BY s.INDEX_NAME, s.SEQ_IN_INDEX", schema, name,
    ):  # fmt: skip
        indexes.setdefault(index, []).append((column, part))
        if collation and not collation.endswith("_bin"):
            doubts.append(f"the key {column}, which compares by {collation}")
    for index, parts in indexes.items():
        if any(column is None or part is not None for column, part in parts):
            doubts.append(f"the index {index}, of parts of columns")
        else:
            keys.add(tuple(str(column) for column, _ in parts))
    return keys, doubts


def _checks(ask: Ask, schema: str, name: str) -> list[str]:
    """Return the conditions of a table's checks.

    MySQL gives a name once in a schema, MariaDB once in a table, which it tells then.
    """
    told = ask(
        "SELECT 1 FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'information_schema' "
        "AND TABLE_NAME = 'CHECK_CONSTRAINTS' AND COLUMN_NAME = 'TABLE_NAME'"
    )
    same = "AND c.TABLE_NAME = t.TABLE_NAME " if told else ""
    return [
        text
        for (text,) in ask(
            "SELECT c.CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS c JOIN "
            "information_schema.TABLE_CONSTRAINTS t ON t.CONSTRAINT_SCHEMA = c.CONSTRAINT_SCHEMA "
            f"AND t.CONSTRAINT_NAME = c.CONSTRAINT_NAME {same}WHERE t.CONSTRAINT_TYPE = 'CHECK' "
            "AND t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s",
            schema,
            name,
        )
    ]


def _json_of(check: str) -> str | None:
    """Return the column of which a check says that it is JSON, as MariaDB has it for that type."""
    match = re.fullmatch(r"json_valid\(`(.+)`\)", check.strip(), re.IGNORECASE)
    return None if match is None else match[1].replace("``", "`")


def _others(ask: Ask, schema: str, name: str, *, key: Sequence[str], deletes: bool) -> list[str]:
    found = [
        f"the trigger {trigger}" for (trigger,) in ask(
            "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s "
            "AND EVENT_OBJECT_TABLE = %s", schema, name,
        )
    ]  # fmt: skip
    found += [f"a foreign key to {other}" for (other,) in ask(_REFERS, schema, name)]
    if key:
        # A child may refer to a column of any index, which changes when a row is replaced.
        kept = set() if deletes else {each.lower() for each in key}
        children = [other for other, column in ask(_REFERRED, schema, name) if column.lower() not in kept]
        found += [f"a foreign key of {other}" for other in dict.fromkeys(children)]
    return found


def _column(row: Mapping[str, Any], checks: list[str]) -> Column:
    extra = str(row["EXTRA"] or "").lower()
    default = row["COLUMN_DEFAULT"]
    is_json = row["DATA_TYPE"] == "json" or row["COLUMN_NAME"] in map(_json_of, checks)
    return Column(
        name=row["COLUMN_NAME"],
        declared="json" if is_json else row["COLUMN_TYPE"],
        required=row["IS_NULLABLE"] == "NO",
        filled="auto_increment" in extra or (default is not None and default != "NULL"),
        computed="generated" in extra and "default_generated" not in extra,
        **(_json() if is_json else _takes(row)),
    )


def _json() -> dict[str, Any]:
    return {"takes": ("nested", "text"), "doubt": "a text that must be JSON"}


def _takes(row: Mapping[str, Any]) -> dict[str, Any]:
    kind, declared = row["DATA_TYPE"], row["COLUMN_TYPE"]
    unsigned = "unsigned" in declared
    if kind in _BITS:
        takes = ("bool", "int") if declared.startswith("tinyint(1)") else ("int",)
        return {"takes": takes, **bits(_BITS[kind], signed=not unsigned)}
    if kind == "decimal":
        return _decimal(row, unsigned=unsigned)
    if kind in {"float", "double"}:
        found = _real(24 if kind == "float" else 53, unsigned=unsigned)
        if row["NUMERIC_SCALE"] is not None:  # DOUBLE(10,2) rounds, and calls that no error
            found |= {"takes": ("int",), **whole(int(row["NUMERIC_PRECISION"]) - int(row["NUMERIC_SCALE"]))}
        return found
    if kind in _TEXTS:
        return _text(row)
    if kind in _BYTES:
        return {"takes": ("binary",), "length": row["CHARACTER_MAXIMUM_LENGTH"]}
    if kind == "enum":
        values = [re.escape(each.replace("''", "'")) for each in _QUOTED.findall(declared)]
        return {"takes": ("text",), "form": f"^(?:{'|'.join(values)})$"}
    if kind in {"datetime", "timestamp"}:
        return _time(kind, row["DATETIME_PRECISION"])
    return _PLAIN.get(kind, {})


def _real(mantissa: int, *, unsigned: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "takes": ("float", "int"),
        "mantissa": mantissa,
        "no_nan": True,
        "no_infinity": True,
    }
    return {**found, "doubt": "an unsigned number"} if unsigned else found


def _time(kind: str, scale: int) -> dict[str, Any]:
    if kind == "datetime":
        return {"takes": ("local",), "scale": scale}
    return {"takes": ("instant",), "scale": scale, "low": 10**6, "high": 2**31 * 10**6 - 1}


def _decimal(row: Mapping[str, Any], *, unsigned: bool) -> dict[str, Any]:
    digits = int(row["NUMERIC_PRECISION"]) - int(row["NUMERIC_SCALE"])
    found: dict[str, Any] = {
        "takes": ("decimal", "int"),
        "digits": digits,
        "scale": int(row["NUMERIC_SCALE"]),
    }
    found |= whole(digits)
    if unsigned:
        found |= {"low": 0, "doubt": "an unsigned number"}
    return found


def _text(row: Mapping[str, Any]) -> dict[str, Any]:
    kind, charset = row["DATA_TYPE"], row["CHARACTER_SET_NAME"]
    found: dict[str, Any] = {"takes": ("text",)}
    if not _PADS_NOT.search(row["COLLATION_NAME"] or ""):
        found["alike"] = _BLANK_AT_END
    if kind in {"char", "varchar"}:
        found["length"] = row["CHARACTER_MAXIMUM_LENGTH"]
    elif kind != "longtext":
        found["octets"] = row["CHARACTER_OCTET_LENGTH"]
    if kind == "char":
        found["form"] = _NO_END_SPACE
    if charset == _NOT_ASCII:
        found["doubt"] = f"letters that {charset} does not have"
    elif charset != "utf8mb4":
        found["charset"] = charset
    return found
