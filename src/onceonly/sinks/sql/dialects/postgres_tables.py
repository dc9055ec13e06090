"""What a table of PostgreSQL takes, by its catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.sinks.sql.types import UUID, Column, Table, bits, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TEXT: Mapping[str, Any] = {"takes": ("text",), "no_nul": True}
# By the server's name of a type; one of somebody's own with such a name is another.
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "int2": {"takes": ("int",), **bits(16)},
    "int4": {"takes": ("int",), **bits(32)},
    "int8": {"takes": ("int",), **bits(64)},
    "numeric": {"takes": ("int", "decimal")},
    "float4": {"takes": ("int", "float"), "mantissa": 24},
    "float8": {"takes": ("int", "float"), "mantissa": 53},
    "bool": {"takes": ("bool",)},
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": {**_TEXT, "doubt": "blanks at the end, which count for nothing"},
    "citext": {**_TEXT, "doubt": "citext, which compares without case"},
    "bytea": {"takes": ("binary",)},
    "date": {"takes": ("date",)},
    "timestamp": {"takes": ("local",), "scale": 6},
    "timestamptz": {"takes": ("instant",), "scale": 6},
    "uuid": UUID,
    "json": {"takes": ("nested", "text"), "doubt": "json"},
    "jsonb": {"takes": ("nested", "text"), "doubt": "jsonb"},
}
_DESCRIBED = """
SELECT c.oid::text, c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
  (SELECT coalesce(json_agg(json_build_array(
     a.attname, format_type(a.atttypid, a.atttypmod),
     CASE WHEN b.typtype = 'b' AND (b.typnamespace = 'pg_catalog'::regnamespace OR b.typname = 'citext')
       THEN b.typname ELSE '' END, a.attnotnull,
     coalesce(nullif(a.atttypmod, -1), t.typtypmod), t.typtype, a.atthasdef OR a.attidentity <> '',
     a.attgenerated <> '' OR a.attidentity = 'a', a.attgenerated <> '',
     coalesce((SELECT NOT l.collisdeterministic FROM pg_collation l WHERE l.oid = a.attcollation), false),
     CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE '' END
   ) ORDER BY a.attnum), '[]')
   FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  (SELECT coalesce(json_agg(json_build_array(
     i.indexrelid::regclass::text, i.indisunique,
     i.indpred IS NULL AND i.indimmediate AND i.indisvalid AND i.indexprs IS NULL,
     (SELECT json_agg(a.attname ORDER BY k.place) FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
        LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number WHERE k.place <= i.indnkeyatts)
   )), '[]') FROM pg_index i WHERE i.indrelid = c.oid),
  (SELECT coalesce(json_agg(doubt), '[]') FROM (
     SELECT CASE contype WHEN 'c' THEN 'the CHECK ' WHEN 'x' THEN 'the exclusion ' ELSE 'the foreign key ' END
         || conname
       FROM pg_constraint WHERE conrelid = c.oid AND contype IN ('c', 'f', 'x')
     UNION ALL SELECT 'the foreign key ' || conname || ' of ' || conrelid::regclass
       FROM pg_constraint WHERE confrelid = c.oid AND contype = 'f' AND %s
     UNION ALL SELECT 'the trigger ' || tgname FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal
     UNION ALL SELECT 'the rule ' || rulename FROM pg_rewrite WHERE ev_class = c.oid AND ev_type <> '1'
     UNION ALL SELECT 'the child table ' || inhrelid::regclass
       FROM pg_inherits WHERE inhparent = c.oid AND c.relkind = 'r'
     UNION ALL SELECT 'policies of rows' WHERE row_security_active(c.oid)
     UNION ALL SELECT 'the partitions' WHERE c.relkind = 'p' OR c.relispartition
     UNION ALL SELECT 'the encoding ' || pg_encoding_to_char(encoding) FROM pg_database
       WHERE datname = current_database() AND pg_encoding_to_char(encoding) <> 'UTF8'
   ) d(doubt)),
  (SELECT json_build_array(p.relkind, p.oid::regclass::text)
   FROM pg_partition_tree(CASE c.relkind WHEN 'p' THEN c.oid END) t JOIN pg_class p ON p.oid = t.relid
   WHERE t.isleaf AND (p.relpersistence = 'u' OR p.relkind = 'f' AND pg_relation_is_updatable(p.oid, false) & 8 > 0)
   LIMIT 1)
FROM pg_class c WHERE c.oid = to_regclass(%s)"""
_PASSING_OVER = ("the trigger ", "the rule ", "the child table ", "policies of rows")
"""How doubts begin of what passes a row over: a policy calls no deletion an error that it does not permit."""
_WRONG = {
    "v": "is a view",
    "m": "is a materialized view",
    "f": "is a foreign table, whose rows no transaction holds",
}
_UNLOGGED = "is unlogged: after a crash of the server it would be empty, without a word"


def described(
    ask: Callable[..., list[Any]], name: tuple[str, ...], path: str, *, deletes: bool
) -> Table | None:
    """Look a table up by its path in SQL; None where it is not there. In a transaction."""
    found = ask(_DESCRIBED, (deletes, path))
    if not found:
        return None
    own_id, kind, persistence, has_policies, attributes, indexes, doubts, part = found[0]
    keys, indexed = set(), set[str]()
    for index, is_unique, is_plain, names in indexes:
        indexed.update(names)
        if is_unique and is_plain:
            keys.add(tuple(names))
        elif is_unique or None in names:
            doubts.append(f"the index {index}")
    columns = []
    for row in attributes:
        columns.append(_column(row[:8], indexed=row[0] in indexed, beneath=row[10]))
        doubts += [f"the generated column {row[0]}"] if row[8] else []
        doubts += [f"the collation of {row[0]}"] if row[9] else []
    wrong = _UNLOGGED if persistence == "u" else _WRONG.get(kind, "")
    if part is not None:
        wrong = f"has the partition {part[1]}, which {_WRONG.get(part[0], _UNLOGGED)}"
    return Table(
        name=".".join(name),
        columns=tuple(columns),
        keys=tuple(sorted(keys)),
        doubts=tuple(doubts),
        passing=tuple(each for each in doubts if each.startswith(_PASSING_OVER)),
        wrong=wrong,
        streams=not has_policies,
        id=own_id,
    )


def _column(row: list[Any], *, indexed: bool, beneath: str) -> Column:
    name, declared, base, required, modifier, kind, filled, computed = row
    known = dict(_TYPES.get(base, {}))
    if kind == "e":
        known = {**_TEXT, "doubt": f"the enumeration {declared}"}
    if kind == "d" and known:
        known["doubt"] = f"the domain {declared}"
    if base == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
        digits = max(precision - scale, 0)
        known |= {"digits": digits, "scale": max(scale, 0), **whole(digits)}
        if scale < 0 or scale > precision:
            known["takes"] = ()
    elif base in {"varchar", "bpchar"} and modifier >= 0:
        known["length"] = modifier - 4
    elif base in {"timestamp", "timestamptz"} and modifier >= 0:
        known["scale"] = modifier
    return Column(
        name=name,
        declared=declared,
        required=required,
        filled=filled,
        computed=computed,
        indexed=indexed,
        beneath=beneath,
        **known,
    )
