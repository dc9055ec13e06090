"""A campaign's report as one HTML file without anything from outside: no script, no network, light and dark.

From the top: the verdict, the figures, the guarantee matrix, every round, what recovery took, how often each fault
fired, what the auditor looked for and what it found, and how to run all or one round of it again.
"""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.campaign import drawings
from onceonly_proof.campaign.folding import listed, spread
from onceonly_proof.campaign.result import save

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from onceonly_proof.campaign.values import Result, Round, Row

_WHY_MAX = 12
_ROUNDS_MAX = 50
"""Of those that are not clean, told in full."""
_WORDS = {
    "clean": ("Clean", "After every crash the output is what the guarantee promises."),
    "anomalies": ("Anomalies", "The output is not what the guarantee promises."),
    "inconclusive": ("Inconclusive", "Nothing wrong was seen, and that is not enough for a proof."),
}


def write(path: Path, result: Result) -> None:
    """Write the page. Raises ``UnavailableError`` where that is not possible."""
    save(path, draw(result).encode())


def draw(result: Result) -> str:
    """Return the page. Pure, but for the style sheet, which is read from beside this module."""
    style = resources.files("onceonly_proof.campaign").joinpath("page.css").read_text(encoding="utf-8")
    attack = _attack(result) if result.rounds else []
    parts = [_hero(result), *attack, _section("Run it again", _again(result))]
    title = f"onceonly verify · {result.verdict}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{style}</style></head><body>
{"".join(parts)}
</body></html>
"""


def _attack(result: Result) -> list[str]:
    return [
        _tiles(result),
        _section("The guarantee matrix", _matrix(result)),
        _section("Every round", drawings.strip(result), "A cell is a round; rest on it to see what it was."),
        _section("From a death to the first new row", drawings.recovery(result)),
        _section("Every fault, and how often it fired", drawings.faults(result)),
        _section("What the auditor looks for", _anomalies(result)),
    ]


# --- the head ---------------------------------------------------------------------------------------------


def _hero(result: Result) -> str:
    word, meaning = _WORDS[result.verdict]
    crashes, rows = result.crashes, sum(each.rows for each in result.rounds)
    found = sum(result.anomalies.values())
    facts = f"{crashes:,} {'crash' if crashes == 1 else 'crashes'} · {rows:,} rows checked · "
    facts += f"{found:,} {'anomaly' if found == 1 else 'anomalies'}"
    why = "".join(f"<li>{escape(each)}</li>" for each in result.why[:_WHY_MAX])
    more = len(result.why) - _WHY_MAX
    why += f"<li>and {more:,} more</li>" if more > 0 else ""
    return (
        f'<header class="hero {result.verdict}"><p class="brand">onceonly verify</p>'
        f'{drawings.seal(result.verdict)}<div><h1>{word}</h1><p class="facts">{facts}</p><p>{meaning}</p>'
        f'{f"<ul>{why}</ul>" if why else ""}<p class="hint">{_when(result)}</p></div></header>'
    )


def _when(result: Result) -> str:
    if not result.rounds:
        return ""
    first, last = result.rounds[0].started, max(each.started for each in result.rounds)
    days = first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"
    seeds = ", ".join(str(seed) for seed in sorted({each.seed for each in result.rounds}))
    return f"{escape(days)} · seed {escape(seeds)} · onceonly {escape(result.versions.get('onceonly', '?'))}"


def _tiles(result: Result) -> str:
    median, worst = spread(s for each in result.rounds for s in each.recovery_s)
    tiles = [
        ("crashes", f"{result.crashes:,}"),
        ("faults fired, of armed", f"{sum(result.faults.values()):,} / {sum(result.armed.values()):,}"),
        ("rows checked", f"{sum(each.rows for each in result.rounds):,}"),
        ("epochs", f"{sum(each.epochs for each in result.rounds):,}"),
        ("rounds", f"{len(result.rounds):,}"),
        ("recovery, median", _seconds(median)),
        ("recovery, worst", _seconds(worst)),
        ("under attack for", _span(sum(each.seconds for each in result.rounds))),
    ]
    cells = (f"<div><b>{value}</b><span>{name}</span></div>" for name, value in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


# --- the matrix -------------------------------------------------------------------------------------------


def _matrix(result: Result) -> str:
    most = max(1, *(row.crashes for row in result.matrix))
    head = "<th>connector</th><th>guarantee</th><th>crashes survived</th>" + "".join(
        f'<th class="n">{name}</th>' for name in ("faults", "epochs", "rows checked", "anomalies")
    )
    rows = "".join(_row(row, most) for row in result.matrix)
    notes = "".join(
        f'<p class="hint">{escape(row.connector)} under {escape(row.guarantee)} may have, and had: '
        f"{escape(listed(row.allowed))}.</p>"
        for row in result.matrix
        if sum(row.allowed.values())
    )
    return f"<table><thead><tr>{head}<th>verdict</th></tr></thead><tbody>{rows}</tbody></table>{notes}"


def _row(row: Row, most: int) -> str:
    found = sum(row.anomalies.values())
    cells = "".join(f'<td class="n">{n:,}</td>' for n in (sum(row.faults.values()), row.epochs, row.rows))
    return (
        f"<tr><th>{drawings.dot(row.connector)}{escape(row.connector)}</th><td>{escape(row.guarantee)}</td>"
        f'<td class="bar"><i style="width:{100 * row.crashes / most:.1f}%"></i><b>{row.crashes:,}</b></td>{cells}'
        f'<td class="n {"bad" if found else "good"}" title="{escape(listed(row.anomalies))}">{found:,}</td>'
        f'<td><span class="pill {row.verdict}">{row.verdict}</span></td></tr>'
    )


# --- anomalies --------------------------------------------------------------------------------------------


def _anomalies(result: Result) -> str:
    sentences = {str(anomaly): anomaly.sentence for anomaly in Anomaly}
    bad = [each for each in result.rounds if each.verdict != "clean"]
    more = (
        f'<p class="hint">And {len(bad) - _ROUNDS_MAX:,} more rounds.</p>' if len(bad) > _ROUNDS_MAX else ""
    )
    cards = "".join(
        f'<div class="{"bad" if count else "good"}"><b>{count:,}</b>'
        f"<div><strong>{escape(name.replace('_', ' '))}</strong><p>{escape(sentences.get(name, ''))}</p></div></div>"
        for name, count in sorted(result.anomalies.items(), key=lambda each: (-each[1], each[0]))
    )
    return f'<div class="looked">{cards}</div>{_findings(bad[:_ROUNDS_MAX])}{more}'


def _findings(rounds: Iterable[Round]) -> str:
    """Show each round that is not clean, with what was seen and how to see it again."""
    parts = []
    for each in rounds:
        seen = [listed(each.anomalies), *each.examples, *each.doubts]
        lines = "".join(f"<li>{escape(line)}</li>" for line in seen if line)
        parts.append(
            f'<article class="{each.verdict}"><h3>{escape(each.name)} · {escape(each.connector)}, '
            f"{escape(each.guarantee)}</h3><ul>{lines}</ul><pre>{escape(each.command)}</pre></article>"
        )
    return "".join(parts)


# --- again ------------------------------------------------------------------------------------------------


def _again(result: Result) -> str:
    calls: dict[tuple[int, str, bool], list[Round]] = {}
    for each in result.rounds:
        calls.setdefault((each.seed, each.guarantee, each.dear), []).append(each)
    lines = "\n".join(_call(rounds) for _, rounds in sorted(calls.items()))
    commits = sorted({each.commit for each in result.rounds if each.commit})
    facts = {**result.versions, **({"commits": ", ".join(commits)} if len(commits) > 1 else {})}
    return (
        f"<pre>{escape(lines or f'onceonly verify --crashes 1000 --seed {result.seed}')}</pre>"
        '<p class="hint">The same seed gives the same workloads and faults. Calls with the same <code>--json</code> '
        "add up; one that was interrupted goes on where it was.</p>"
        f'<div class="facts-of">{_facts("Machine", result.machine)}{_facts("Versions", facts)}</div>'
    )


def _call(rounds: list[Round]) -> str:
    """Return the call that runs these rounds: sinks take turns in the order in which they are named."""
    sinks = dict.fromkeys(each.connector for each in sorted(rounds, key=lambda each: each.number))
    words = [
        "onceonly verify",
        *(f"--sink {sink}" for sink in sinks),
        f"--guarantee {rounds[0].guarantee}",
        f"--crashes {sum(each.crashes for each in rounds)} --seed {rounds[0].seed}",
        *([] if rounds[0].dear else ["--no-dear"]),
        "--json result.json --html result.html",
    ]
    return " ".join(words)


def _facts(title: str, facts: Mapping[str, str | int | float]) -> str:
    rows = "".join(
        f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(str(value))}</dd>"
        for name, value in facts.items()
    )
    return f"<div><h3>{title}</h3><dl>{rows}</dl></div>"


# --- pieces -----------------------------------------------------------------------------------------------


def _section(title: str, content: str, hint: str = "") -> str:
    note = f'<p class="hint">{escape(hint)}</p>' if hint else ""
    return f"<section><h2>{escape(title)}</h2>{note}{content}</section>"


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f} s"


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004
