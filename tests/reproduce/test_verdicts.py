"""How claims are decided, on differences whose answer is known."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from reproduce.counterexample import (
    ATTACKED,
    CENTRE,
    DIMENSIONS,
    SHELL,
    SLOPE,
    right,
    three_level_radius,
)
from reproduce.verdicts import (
    AnyOf,
    Difference,
    MeanDifference,
    Trial,
    images_needed,
    judged,
    shown_gap,
    weakest,
)
from varsmooth.evaluation.report.statistics import PairedDifference

CLEAR, UNCLEAR = PairedDifference(30, 5, 100), PairedDifference(6, 4, 100)
AGAINST, NONE = PairedDifference(5, 30, 100), PairedDifference(0, 0, 100)
BARELY, REVERSE = PairedDifference(9, 1, 100), PairedDifference(1, 9, 100)


def verdict(*gaps: Difference, margin: float | None = None) -> str:
    """On a claim with one difference for each case."""
    cases = {str(i): gap for i, gap in enumerate(gaps)}
    return judged("s", "Fig. 0", cases, "d", margin=margin).verdict


def test_a_verdict_needs_an_interval_that_excludes_zero() -> None:
    assert verdict(CLEAR) == "confirmed"
    assert verdict(AGAINST) == "refuted"
    assert verdict(UNCLEAR) == verdict(NONE, NONE) == "undecided"
    assert verdict(CLEAR, UNCLEAR) == "confirmed"
    assert verdict(CLEAR, AGAINST) == "partly"
    assert verdict(UNCLEAR, AGAINST) == "refuted"
    assert verdict() == "untested"


def test_looking_often_does_not_make_a_claim_hold() -> None:
    assert verdict(BARELY) == "confirmed"
    assert verdict(BARELY, *[NONE] * 9) == "undecided"


def test_a_setting_chosen_with_hindsight_needs_a_clearer_difference() -> None:
    """The best of ten λ that differ from g by chance looks better than g; and so does its rival."""
    for gap, chosen, expected in ((BARELY, "ours", "confirmed"), (REVERSE, "theirs", "refuted")):
        other = {"ours": "theirs", "theirs": "ours"}[chosen]
        assert judged("s", "Fig. 0", {"a": gap}, "d", **{other: 10}).verdict == expected  # type: ignore[arg-type]
        claim = judged("s", "Fig. 0", {"a": gap}, "d", **{chosen: 10})  # type: ignore[arg-type]
        assert claim.verdict == "undecided"
        assert "[−" in claim.number
        assert "+" in claim.number.split("[")[1]
    some = AnyOf([{"a": BARELY}, *({str(i): NONE} for i in range(9))])
    assert judged("s", "Fig. 0", [some], "d").verdict == "undecided"
    some = AnyOf([{"a": CLEAR}, *({str(i): AGAINST} for i in range(9))])
    assert judged("s", "Fig. 0", [some], "d").verdict == "confirmed"


def test_what_must_hold_together_must_hold_in_the_same_case() -> None:
    """Clean accuracy gains at one σ_a and robust accuracy at another: that is no gain in both."""
    apart = [{"clean 1": CLEAR, "robust 1": UNCLEAR}, {"clean 2": UNCLEAR, "robust 2": CLEAR}]
    assert judged("s", "Fig. 0", apart, "d").verdict == "undecided"
    both = {"clean 3": CLEAR, "robust 3": CLEAR}
    assert judged("s", "Fig. 0", [*apart, both], "d").verdict == "confirmed"
    assert judged("s", "Fig. 0", [*apart, both], "d", every=True).verdict == "undecided"
    assert judged("s", "Fig. 0", [both, {"a": CLEAR, "b": AGAINST}], "d").verdict == "partly"
    by_lam = [AnyOf(apart)]
    assert judged("s", "Fig. 0", by_lam, "d").verdict == "undecided"
    assert judged("s", "Fig. 0", [AnyOf([*apart, both])], "d").verdict == "confirmed"


def test_some_lambda_is_refuted_only_if_every_lambda_is() -> None:
    bad, open_ = {"clean": CLEAR, "robust": AGAINST}, {"clean ": UNCLEAR, "robust ": UNCLEAR}
    assert judged("s", "Fig. 0", [AnyOf([bad, open_])], "d").verdict == "undecided"
    assert judged("s", "Fig. 0", [AnyOf([bad, bad])], "d").verdict == "refuted"


def test_one_of_many_differences_refutes_only_by_the_interval_for_all() -> None:
    assert verdict(REVERSE) == "refuted"
    cases = [{"a": REVERSE}, *({str(i): CLEAR} for i in range(9))]
    assert judged("s", "Fig. 0", cases, "d").verdict == "confirmed"
    one = {"a": REVERSE} | {str(i): CLEAR for i in range(9)}
    assert judged("s", "Fig. 0", [one], "d").verdict == "undecided"
    every = {str(i): BARELY for i in range(9)}
    assert judged("s", "Fig. 0", every, "d", every=True).verdict == "confirmed"


def test_not_worse_means_every_interval_above_the_margin() -> None:
    alike, worse = PairedDifference(5, 5, 1000), PairedDifference(10, 80, 1000)
    assert verdict(alike, margin=0.02) == "confirmed"
    assert verdict(UNCLEAR, margin=0.02) == "undecided"
    assert verdict(alike, UNCLEAR, margin=0.02) == "undecided"
    assert verdict(worse, margin=0.02) == "refuted"
    assert verdict(alike, worse, margin=0.02) == "partly"


def test_the_images_that_it_would_take_decide_four_times_out_of_five() -> None:
    rng = np.random.default_rng(0)
    gap = PairedDifference(24, 16, 400)
    needed = math.ceil(images_needed(gap, 0.0, 0.95, 1))
    decided = 0
    for _ in range(2000):
        first, second, _same = rng.multinomial(needed, [0.06, 0.04, 0.9])
        decided += PairedDifference(int(first), int(second), needed).interval().low > 0
    assert 0.75 < decided / 2000 < 0.85
    assert images_needed(NONE, 0.0, 0.95, 1) == math.inf
    assert images_needed(gap, 0.0, 0.95, -1) == math.inf  # it seems to be above
    assert images_needed(CLEAR, 0.0, 0.95, 1) == 0


def test_a_claim_shows_the_difference_that_decides() -> None:
    claim = judged("s", "Fig. 0", {"a": UNCLEAR, "b": CLEAR}, "accuracy of one minus the other")
    assert claim.verdict == "confirmed"
    assert claim.number.startswith("b: +25.0 [")
    assert claim.cases == "1 of 2 holds"
    assert claim.measured.startswith("accuracy of one minus the other, points: a: +2.0 [")
    assert claim.numbers == {"a": 0.02, "b": 0.25}
    undecided = judged("s", "Fig. 0", {"a": UNCLEAR}, "accuracy")
    assert "images to confirm" in undecided.number
    flipped = judged("s", "Fig. 0", {"a": PairedDifference(4, 6, 100)}, "accuracy")
    assert "images to refute" in flipped.number
    mixed = judged("s", "Fig. 0", {"a": AGAINST, "b": CLEAR}, "accuracy")
    assert mixed.number.startswith("a: −25.0")
    assert mixed.cases == "1 of 2 holds, 1 of 2 fails"
    assert judged("s", "Fig. 0", {"b": CLEAR}, "accuracy").cases == ""
    assert judged("s", "Fig. 0", {}, "accuracy").verdict == "untested"
    assert judged("s", "Fig. 0", {"a": UNCLEAR}, "a", margin=0.02).why.endswith("2 points, ours")


def test_of_a_case_the_weaker_difference_is_shown() -> None:
    both = {"a": CLEAR, "b": BARELY}
    assert judged("s", "Fig. 0", [both], "d").number.startswith("b: +8.0 [")
    claim = judged("s", "Fig. 0", [{"a": CLEAR, "b": UNCLEAR}], "d")
    assert claim.number.startswith("b: +2.0 [")
    assert claim.numbers == {"a": 0.25, "b": 0.02}
    best = [AnyOf([{"first": UNCLEAR}, {"second": CLEAR}])]
    assert judged("s", "Fig. 0", best, "d").numbers == {"second": 0.25}
    assert judged("s", "Fig. 0", [], "d").number == "–"


def test_the_page_has_the_difference_that_the_summary_shows() -> None:
    """Of two settings the better is on the page, and the one that fewer images would decide."""
    steady, noisy = PairedDifference(2, 1, 100), PairedDifference(27, 25, 100)
    settings = [{"better": noisy}, {"sooner": steady}]
    claim = judged("s", "Fig. 0", [AnyOf(settings)], "d")
    assert claim.number.startswith("sooner: ")
    assert set(claim.numbers) == {"better", "sooner"}


def test_statements_together_are_as_good_as_the_weakest() -> None:
    assert weakest(["confirmed", "undecided"]) == "undecided"
    assert weakest(["confirmed", "refuted", "undecided"]) == "refuted"
    assert weakest(["confirmed", "untested", "refuted"]) == weakest([]) == "untested"


def test_a_mean_difference_has_the_interval_of_its_values() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, 400)
    low, high = MeanDifference(values.tolist()).interval()
    assert low < 0.3 < high
    assert high - low == pytest.approx(2 * 1.966 * values.std(ddof=1) / 20, rel=1e-3)


def test_shares_that_never_differed_are_not_certain_to_be_equal() -> None:
    """As for a single pair of runs, where the interval is Bonett and Price's."""
    never = MeanDifference((0.0,) * 100, bound=1.0)
    low, high = never.interval()
    assert low < 0 < high
    assert high == pytest.approx(NONE.interval().high, rel=0.05)
    assert verdict(never, margin=0.02) == "undecided"
    assert "no difference seen" in judged("a", "b", {"c": never}, "d").number


def test_a_number_says_what_it_is_and_never_looks_like_zero_where_it_is_not() -> None:
    assert judged("s", "Fig. 0", {"a": CLEAR}, "g minus g_v").difference == "g minus g_v"
    tiny = MeanDifference([1e-4 + 1e-6 * (-1) ** k for k in range(100)])
    assert shown_gap(tiny) == "+0.010 [+0.009, +0.011]"  # outward
    assert shown_gap(MeanDifference([0.0] * 9)) == "+0.0, the same on every image"


@pytest.mark.parametrize("settings", [1, 5])
@pytest.mark.parametrize("every", [False, True])
def test_a_claim_without_a_difference_is_seldom_decided(settings: int, every: bool) -> None:
    """Four cases whose clean accuracy gains, while robust accuracy does not differ at any λ."""
    rng = np.random.default_rng(settings)
    trials, n, verdicts = 400, 500, []
    for _ in range(trials):
        cases = []
        for _ in range(4):
            counts = rng.multinomial(n, [0.05, 0.05, 0.9], size=settings)
            gaps = [PairedDifference(int(a), int(b), n) for a, b, _ in counts]
            gain = PairedDifference(n // 5, 0, n)
            cases.append([{"clean": gain, "robust": gap} for gap in gaps])
        verdicts.append(Trial(cases, every=every).verdict)
    for decided in ("confirmed", "refuted"):
        assert binom.sf(verdicts.count(decided) - 1, trials, 0.05) > 1e-6
    if settings == 1 and not every:
        assert len(set(verdicts)) > 1  # it can err


def test_a_threshold_takes_the_place_of_0() -> None:
    """The number shown is the difference itself; the threshold stands beside it."""
    small = MeanDifference([0.002, 0.003, 0.004] * 10)
    claim = judged("s", "ours", {"a": small}, "a", line=0.01, unit="%")
    assert claim.verdict == "refuted"
    assert claim.number.startswith("a: +0.3 [+0.2, +0.4] %; threshold 1 %")
    assert judged("s", "ours", {"a": small}, "a", line=0.001, unit="%").verdict == "confirmed"
    assert judged("s", "ours", {"a": small}, "a", line=0.003, unit="%").verdict == "undecided"


def test_an_undecided_claim_knows_how_many_images_would_decide_it() -> None:
    claim = judged("s", "Fig. 0", {"a": UNCLEAR}, "a")
    assert claim.images > UNCLEAR.n
    assert f"about {claim.images:,} images" in claim.number
    decided = MeanDifference([0.2, 0.3] * 10)
    assert judged("s", "Fig. 0", {"a": decided}, "a").images == 0


def test_three_levels_are_refuted_by_sampling_too() -> None:
    """The probabilities of the counterexample against noise that was drawn."""
    assert three_level_radius(1000, 1e-3) == pytest.approx(0.394, abs=0.001)
    rng, moved = np.random.default_rng(0), CENTRE + SLOPE * ATTACKED
    for sigma, distance in ((moved, ATTACKED), (0.36, 0.0), (CENTRE, 0.0), (0.3, 12.5)):
        z = sigma * rng.standard_normal((2000, DIMENSIONS))
        z[:, 0] += distance
        scaled = np.linalg.norm(z, axis=1) / DIMENSIONS**0.5
        hit = ((scaled >= SHELL[0]) & (scaled <= SHELL[1])).mean()
        assert right(sigma, distance) == pytest.approx(1 - hit, abs=0.04)
