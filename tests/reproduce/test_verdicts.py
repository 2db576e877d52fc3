"""How claims are decided, on differences whose answer is known."""

import numpy as np
import pytest

from reproduce.verdicts import (
    MeanDifference,
    images_needed,
    judged,
    shown_gap,
    verdict_of,
    weakest,
)
from varsmooth.report.statistics import PairedDifference

CLEAR, UNCLEAR = PairedDifference(30, 5, 100), PairedDifference(6, 4, 100)
AGAINST, NONE = PairedDifference(5, 30, 100), PairedDifference(0, 0, 100)


def test_a_verdict_needs_an_interval_that_excludes_zero() -> None:
    assert verdict_of([CLEAR]) == "confirmed"
    assert verdict_of([AGAINST]) == "refuted"
    assert verdict_of([UNCLEAR]) == verdict_of([NONE, NONE]) == "undecided"
    assert verdict_of([CLEAR, UNCLEAR]) == "confirmed"
    assert verdict_of([CLEAR, AGAINST]) == "partly"
    assert verdict_of([UNCLEAR, AGAINST]) == "refuted"
    assert verdict_of([]) == "untested"


def test_looking_often_does_not_make_a_claim_hold() -> None:
    barely = PairedDifference(9, 1, 100)
    assert verdict_of([barely]) == "confirmed"
    assert verdict_of([barely, *[NONE] * 9]) == "undecided"


def test_a_setting_chosen_with_hindsight_needs_a_clearer_difference() -> None:
    """The best of ten λ that differ from g by chance looks better than g; and so does its rival."""
    barely, reverse = PairedDifference(9, 1, 100), PairedDifference(1, 9, 100)
    for gap, chosen, verdict in ((barely, "ours", "confirmed"), (reverse, "theirs", "refuted")):
        other = {"ours": "theirs", "theirs": "ours"}[chosen]
        assert judged("s", "Fig. 0", {"a": gap}, "d", **{other: 10}).verdict == verdict  # type: ignore[arg-type]
        claim = judged("s", "Fig. 0", {"a": gap}, "d", **{chosen: 10})  # type: ignore[arg-type]
        assert claim.verdict == "undecided"
        assert "[−" in claim.number
        assert "+" in claim.number.split("[")[1]


def test_one_of_many_parts_refutes_only_by_the_interval_for_all() -> None:
    reverse = PairedDifference(1, 9, 100)
    assert judged("s", "Fig. 0", {"a": reverse}, "d").verdict == "refuted"
    parts = [{"a": reverse}, *({str(i): CLEAR} for i in range(9))]
    assert judged("s", "Fig. 0", parts, "d").verdict == "undecided"
    assert (
        judged("s", "Fig. 0", [{"a": PairedDifference(9, 1, 100)}] * 9, "d").verdict == "confirmed"
    )


def test_not_worse_means_every_interval_above_the_margin() -> None:
    alike, worse = PairedDifference(5, 5, 1000), PairedDifference(10, 80, 1000)
    assert verdict_of([alike], margin=0.02) == "confirmed"
    assert verdict_of([UNCLEAR], margin=0.02) == "undecided"
    assert verdict_of([alike, UNCLEAR], margin=0.02) == "undecided"
    assert verdict_of([worse], margin=0.02) == "refuted"
    assert verdict_of([alike, worse], margin=0.02) == "partly"


def test_the_images_that_it_would_take_do_decide() -> None:
    gap = PairedDifference(6, 4, 100)
    needed = images_needed([gap])
    assert needed is not None
    more = needed / 100
    assert verdict_of([PairedDifference(round(6 * more), round(4 * more), needed)]) == "confirmed"
    half = needed / 200
    fewer = PairedDifference(round(6 * half), round(4 * half), needed // 2)
    assert verdict_of([fewer]) == "undecided"
    assert images_needed([NONE]) is None
    assert images_needed([CLEAR, gap]) > 100  # type: ignore[operator]


def test_a_claim_shows_the_difference_that_decides() -> None:
    claim = judged("s", "Fig. 0", {"a": UNCLEAR, "b": CLEAR}, "accuracy of one minus the other")
    assert claim.verdict == "confirmed"
    assert claim.number.startswith("b: +25.0 [")
    assert claim.measured.startswith("accuracy of one minus the other, points: a: +2.0 [")
    assert claim.numbers == {"a": 0.02, "b": 0.25}
    undecided = judged("s", "Fig. 0", {"a": UNCLEAR}, "accuracy")
    assert "about " in undecided.number
    assert judged("s", "Fig. 0", {}, "accuracy").verdict == "untested"
    assert judged("s", "Fig. 0", {"a": UNCLEAR}, "a", margin=0.02).why.endswith("2 points")


def test_parts_are_as_good_as_the_weakest() -> None:
    assert weakest(["confirmed", "undecided"]) == "undecided"
    assert weakest(["confirmed", "refuted", "undecided"]) == "refuted"
    assert weakest(["confirmed", "untested", "refuted"]) == weakest([]) == "untested"


def test_a_mean_difference_has_the_interval_of_its_values() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, 400)
    low, high = MeanDifference(values.tolist()).interval()
    assert low < 0.3 < high
    assert high - low == pytest.approx(2 * 1.966 * values.std(ddof=1) / 20, rel=1e-3)


def test_two_that_never_differ_do_not_hide_how_many_images_the_others_need() -> None:
    never, unclear = MeanDifference((0.0,) * 50), MeanDifference((1.0, -1.0, 0.2) * 20)
    assert images_needed([never]) is None
    assert images_needed([never, unclear]) == images_needed([unclear, unclear])
    assert "no difference seen" in judged("a", "b", {"c": never}, "d").number


def test_the_weakest_part_gives_the_verdict_and_the_number() -> None:
    claim = judged("s", "Fig. 0", [{"a": CLEAR}, {"b": UNCLEAR}], "one minus the other")
    assert claim.verdict == "undecided"
    assert claim.number.startswith("b: +2.0 [")
    assert claim.numbers == {"a": 0.25, "b": 0.02}
    alone = judged("s", "Fig. 0", {"b": UNCLEAR}, "one minus the other")
    assert claim.number == alone.number  # the interval is of its part, not of all parts together
    assert judged("s", "Fig. 0", [{"a": CLEAR}, {"b": AGAINST}], "d").verdict == "refuted"
    assert judged("s", "Fig. 0", [], "d").number == "–"


def test_a_number_says_what_it_is_and_never_looks_like_zero_where_it_is_not() -> None:
    assert judged("s", "Fig. 0", {"a": CLEAR}, "g minus g_v").difference == "g minus g_v"
    tiny = MeanDifference([1e-4 + 1e-6 * (-1) ** k for k in range(100)])
    assert shown_gap(tiny) == "+0.010 [+0.010, +0.010]"
    assert shown_gap(MeanDifference([0.0] * 9)) == "+0.0, the same on every image"
