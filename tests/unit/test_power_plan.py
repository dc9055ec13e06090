"""Which cuts are made of a recorded run: every ordinal, every style, and each state once."""

from __future__ import annotations

import pytest

from onceonly_proof.power import plan
from onceonly_proof.power.audits import Judged
from onceonly_proof.power.outcome import Result
from onceonly_proof.power.plan import Cut
from onceonly_proof.power.task import PIPELINES, Done, Pipeline
from onceonly_proof.power.tree import ROOT, STYLES, Keep, Op, Tree, cut

FILE, FOLDER = 0o100644, 0o040755
OPS = [
    Op("create", ino=10, folder=ROOT, name="offsets", mode=FOLDER),
    Op("create", ino=11, folder=10, name=".7.4c2d7c1e-8f4b-4b43-9f6c-0a6a2f0c9d1e.tmp", mode=FILE),
    Op("write", ino=11, data=b"v1"),
    Op("rename", folder=10, name=".7.4c2d7c1e-8f4b-4b43-9f6c-0a6a2f0c9d1e.tmp", to_folder=10, to_name="7"),
    Op("sync", ino=11),
    Op("sync", ino=10),
    Op("sync", ino=ROOT),
]


def test_every_ordinal_and_style_is_in_the_plan_and_each_state_once() -> None:
    states = plan.states(Tree(), OPS, seed=1)
    cuts = [each for state in states for each in state.cuts]
    assert {each.at for each in cuts} == set(range(len(OPS) + 1))
    assert {each.keep.style for each in cuts} == set(STYLES)
    digests = [plan.fingerprint(cut(Tree(), OPS[: each.first.at], each.first.keep)) for each in states]
    assert len(digests) == len(set(digests))


def test_all_cuts_of_a_state_leave_the_same_files() -> None:
    for state in plan.states(Tree(), OPS, seed=2):
        assert len({plan.fingerprint(cut(Tree(), OPS[: each.at], each.keep)) for each in state.cuts}) == 1


def test_ordinals_are_hit_before_any_is_hit_again() -> None:
    states = plan.states(Tree(), OPS, seed=3)
    hit: set[int] = set()
    for state in states:
        fresh = {each.at for each in state.cuts} - hit
        if not fresh:
            break
        hit |= fresh
    assert hit == set(range(len(OPS) + 1))


def test_few_states_hit_every_ordinal() -> None:
    """The largest first would take three: what it leaves, one state hits alone."""
    keep = Keep("nothing", 0)
    sizes = ({1, 2, 3, 4}, {1, 2, 5}, {5, 6}, {3, 4, 6})
    every = [plan.State(tuple(Cut(at, keep) for at in sorted(each))) for each in sizes]
    order = [{each.at for each in state.cuts} for state in plan.spread(every)]
    assert order[:2] == [{1, 2, 3, 4}, {5, 6}]
    assert len(order) == len(every)


def test_a_link_and_a_copy_are_two_states() -> None:
    tree, other = Tree(), Tree()
    first = [Op("create", ino=11, folder=ROOT, name="a", mode=FILE), Op("write", ino=11, data=b"x")]
    for op in [*first, Op("link", ino=11, folder=ROOT, name="b")]:
        tree.apply(op)
    copy = [Op("create", ino=12, folder=ROOT, name="b", mode=FILE), Op("write", ino=12, data=b"x")]
    for op in [*first, *copy]:
        other.apply(op)
    assert plan.fingerprint(tree) != plan.fingerprint(other)


def test_operations_are_named_without_numbers_and_ids() -> None:
    assert plan.words(Tree(), OPS) == [
        "create offsets", "create offsets/.#.*.tmp", "write offsets/.#.*.tmp", "rename to offsets/#",
        "sync offsets/#", "sync offsets/", "sync .",
    ]  # fmt: skip


def test_a_pipeline_is_found_by_its_name() -> None:
    assert [Pipeline.named(each.name) for each in PIPELINES] == list(PIPELINES)
    assert len(PIPELINES) == 30
    assert Pipeline.named("kafka-none-kafka-foreachBatch").way == "foreachBatch"
    with pytest.raises(ValueError, match="there is no pipeline files-none-disk: files-none-files"):
        Pipeline.named("files-none-disk")


def test_a_result_is_clean_only_if_nothing_was_lost_and_nobody_was_needed() -> None:
    fine, lost = Judged(10, 0, 0, 0, 0), Judged(10, 1, 0, 1, 0, ("lost: 1",))
    result = Result()
    assert not result.is_clean
    result.pipeline("a").add("cut 1", Done(ok=True, starts=2), fine, cuts=3)
    assert result.is_clean
    assert (result.cuts, result.states, result.pipeline("a").restarts) == (3, 1, 1)
    result.pipeline("b").add("cut 2", Done(ok=False, code="LOG", what="gone"), fine, cuts=1)
    assert not result.is_clean
    assert result.pipeline("b").examples == ["cut 2: LOG gone"]
    result.pipeline("b").by_hand = 0
    result.pipeline("b").add("cut 3", Done(ok=True), lost, cuts=1)
    assert not result.is_clean
    assert (result.pipeline("b").lost, result.pipeline("b").examples[-1]) == (1, "cut 3: lost: 1")


@pytest.mark.parametrize("drawn", ["0a6a2f0c", "12345678", "deadbeef", "0a6a2f0c4d1e"])
def test_a_drawn_name_is_of_the_same_kind_as_any_other(drawn: str) -> None:
    name = f".links.json.4211-{drawn}.tmp"
    ops = [Op("create", ino=10, folder=ROOT, name=name, mode=FILE), Op("sync", ino=10)]
    assert plan.words(Tree(), ops) == ["create .links.json.#-*.tmp", "sync .links.json.#-*.tmp"]
