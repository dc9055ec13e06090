"""What a logical plan of Spark's promises of its rows, and what it reads. Driver, classic session; once a run."""

from __future__ import annotations

from typing import Any

# What Spark calls deterministic though it keeps any row of several, or takes rows in the order in which they come.
_BY_ORDER = frozenset(
    {
        "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit", "LocalLimit", "Sample", "Offset", "Tail",
        "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark",
        "TransformWithStateInPandas", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "MapGroups",
    }
)  # fmt: skip
# Aggregates whose result does not depend on the order of arrival, unless it is a float.
_IN_ANY_ORDER = frozenset(
    {"Count", "CountIf", "Sum", "Min", "Max", "BitAndAgg", "BitOrAgg", "BitXorAgg", "BoolAnd", "BoolOr"}
)
_FLOATS = ("float", "double")
_NODES_MAX = 2000


def may_differ(plan: Any) -> str:  # noqa: ANN401  a Java object
    """Say why a plan may give other rows when it is run again over the same input; empty where it promises the same."""
    if not plan.deterministic():
        return "the plan is not deterministic (uuid, rand, a function that says so)"
    for node in below(plan):
        name = str(node.nodeName())
        if name in _BY_ORDER:
            return f"{name} depends on the order of rows"
        for expression in every(node.expressions()):
            found = _unordered(expression)
            if found:
                return found
    return ""


def _unordered(expression: Any) -> str:  # noqa: ANN401
    """Say why an aggregate depends on the order in which its rows come."""
    for each in below(expression):
        if _kind(each) != "AggregateExpression":
            continue
        function = each.aggregateFunction()
        if _kind(function) not in _IN_ANY_ORDER:
            return f"{function.prettyName()} may depend on the order of rows"
        if str(each.dataType().typeName()) in _FLOATS:
            return f"{function.prettyName()} of floats depends on the order of rows"
    return ""


def below(root: Any) -> list[Any]:  # noqa: ANN401
    """Return a node of a tree and all below it."""
    found: list[Any] = []
    waiting = [root]
    while waiting:
        if len(found) > _NODES_MAX:
            message = "the plan is too large to be looked at"
            raise ValueError(message)
        found.append(waiting.pop())
        waiting += every(found[-1].children())
    return found


def every(sequence: Any) -> list[Any]:  # noqa: ANN401  Scala's Seq
    """Return what a sequence of Scala's holds."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _kind(node: Any) -> str:  # noqa: ANN401
    return str(node.getClass().getSimpleName())
