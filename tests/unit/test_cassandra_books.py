"""The books of the Cassandra sink without a server: what many queries leave in them, and what an older version has."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from onceonly.errors import UnavailableError
from onceonly.families.keyed import Origin
from onceonly.sinks.cassandra.books import Books, Query, State

if TYPE_CHECKING:
    from onceonly.families.staged.area import Names
    from onceonly.sinks.cassandra.target import Target

JOB = "batch-job-{:012x}"


class Rows:
    """The table of the books, as the books ask for it."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[int, str]] = {}

    def book(self, query: str) -> tuple[int, str]:
        return self.held.get(query, (0, ""))

    def put_book(self, query: str, revision: int, text: str) -> bool:
        is_ours = self.book(query)[0] == revision
        if is_ours:
            self.held[query] = revision + 1, text
        return is_ours

    def put_older(self, query: str, names: Names, *, newest: int = 0, void: Names | None = None) -> None:
        """Leave what an older version would have noted."""
        own = Query(generation=1, newest=newest, applied={newest: list(names)}, life="an id")
        held = State(generation=1, queries={f"{query}/s": own}, void=list(void or ()))
        self.held[""] = self.book("")[0] + 1, msgspec.json.encode(held).decode()


@pytest.fixture
def rows() -> Rows:
    return Rows()


def books_of(rows: Rows) -> Books:
    return Books(cast("Target", rows))


def names_of(query: str, slots: int, epoch: int = 0) -> Names:
    return {f"{epoch}.{slot}.{uuid.uuid4().hex}.arrow": {"folder": f"{query}/s"} for slot in range(slots)}


def noted(rows: Rows, query: str, names: Names, epoch: int = 0) -> None:
    books = books_of(rows)
    books.generation(query, "s", 0)
    origin = Origin(query=query, sink="s", epoch=epoch, version=1, life="an id")
    assert books.note(origin, names, since=-1) is None


def test_no_row_grows_with_the_number_of_queries(rows: Rows) -> None:
    jobs = {JOB.format(number): names_of(JOB.format(number), 200) for number in range(100)}
    for query, names in jobs.items():
        noted(rows, query, names)
    sizes = {row: len(text) for row, (_, text) in rows.held.items()}
    assert sizes.pop("") < 100
    assert max(sizes.values()) < 200 * 50
    for query, names in jobs.items():
        assert books_of(rows).applied(names) == set(names)
        assert books_of(rows).newest(query, "s") == 0
        assert books_of(rows).life(query, "s") == "an id"
    assert {books_of(rows).generation(query, "s", 0) for query in jobs} == set(
        range(books_of(rows).generations() - 99, books_of(rows).generations() + 1)
    )


@pytest.mark.parametrize("query", [JOB.format(7), "27598924-b44d-41ad-9f57-5066e59461aa"])
def test_what_an_older_version_noted_is_known(rows: Rows, query: str) -> None:
    names, void = names_of(query, 3), names_of(query, 1)
    rows.put_older(query, names, void=void)
    books = books_of(rows)
    assert books.applied({**names, **void}) == set(names)
    assert books.void(names) == set()
    assert (books.newest(query, "s"), books.life(query, "s")) == (0, "an id")
    assert books.generation(query, "s", 0) == 1
    with pytest.raises(UnavailableError, match="given up"):
        noted(rows, query, void)
    noted(rows, query, names_of(query, 1, epoch=1), epoch=1)
    assert books_of(rows).applied(names) == set(names)


def test_what_an_older_version_goes_on_to_note_is_known(rows: Rows) -> None:
    query, names = JOB.format(7), names_of(JOB.format(7), 3)
    drawn = books_of(rows).generation(query, "s", 0)  # by this one, which has died then
    rows.put_older(query, names)
    books = books_of(rows)
    assert books.applied(names) == set(names)
    assert (books.newest(query, "s"), books.life(query, "s")) == (0, "an id")
    assert books.generation(query, "s", 0) == drawn


def test_of_two_who_draw_a_generation_at_once_both_get_the_same(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = rows.book, list[int]()

    def between(query: str) -> tuple[int, str]:
        if query == "" and not others:  # between the look at the query's row and the draw
            others.append(0)
            others[0] = books_of(rows).generation("q", "s", 0)
        return real(query)

    monkeypatch.setattr(rows, "book", between)
    assert books_of(rows).generation("q", "s", 0) == others[0] > 0


def test_what_was_given_up_cannot_be_applied_and_what_is_applied_is_not_given_up(rows: Rows) -> None:
    job, other = JOB.format(1), JOB.format(2)
    given_up, applied, theirs = names_of(job, 2), names_of(job, 2), names_of(other, 2)
    noted(rows, other, theirs)
    assert books_of(rows).void({**given_up, **theirs}) == set(given_up)
    with pytest.raises(UnavailableError, match="given up"):
        noted(rows, job, given_up)
    noted(rows, job, applied)
    assert books_of(rows).void(applied) == set()
    assert books_of(rows).applied({**given_up, **applied, **theirs}) == {*applied, *theirs}


def test_what_was_given_up_long_ago_is_forgotten(rows: Rows) -> None:
    query = str(uuid.uuid4())
    books_of(rows).void(names_of(query, 2, epoch=1))
    noted(rows, query, names_of(query, 1, epoch=12), epoch=12)
    assert msgspec.json.decode(rows.book(query)[1], type=State).void == []
