"""Fig. 8: g_v* without and with clipping of h, against g, under the strong attack."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from reproduce.attacked import (
    CLIPPED,
    FIXED_CPU,
    G_V_STAR,
    Arena,
    Attacks,
    FixedScale,
    G,
    Point,
    fixed_arena,
    fixed_needs,
)
from reproduce.certified import CLIP_PERCENTILES, TABLE_2, clip_of
from reproduce.claims import shown_difference, verdict_of
from reproduce.comparing import (
    clean_gap,
    dominating,
    lines_of,
    lowered,
    points_table,
    records_of,
    robust_gap,
    weakest,
)
from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, Verdict, size
from reproduce.levels import CPU as CERTIFY_CPU
from reproduce.levels import CertifyScale, held_out_medians
from reproduce.tradeoffs import plot_tradeoff
from varsmooth.report.statistics import PairedDifference
from varsmooth.report.tables import Cell, Table


@dataclass(frozen=True, kw_only=True)
class ClippingScale(FixedScale):
    """The paper attacks with 500 iterations; its γ is not told."""

    eps: float = size("γ", 0.3)
    held_out: int = size("held-out images", 5000)
    held_out_draws: int = size("selector draws per held-out image", 1001)


Clips = dict[tuple[float, float], tuple[float, float]]


def run(context: Context, scale: ClippingScale) -> Result:
    attacks = Attacks(context, scale, scale.eps)
    clips = clips_of(context, scale)

    def clipped(need: Need, lam: float) -> Point:
        return attacks.g_v_star(need, lam, clips[float(need.level), lam])

    methods = {G_V_STAR: attacks.g_v_star, CLIPPED: clipped}
    arenas = [fixed_arena(attacks, scale, sigma, methods) for sigma in scale.sigmas]
    titles = {G_V_STAR: "without clipping", CLIPPED: "with clipping"}
    figure = Figure(
        "clipping",
        f"Clean against robust accuracy of g_v* and g under PGD through f, noise and h, γ = "
        f"{scale.eps:g}. A line for each σ_a, from its larger point on: λ grows along g_v*, σ_s "
        "along g, named where σ_s = σ_a. Pale bars: 95 % intervals over images; all points share "
        "images, so their differences are more certain.",
        [
            partial(plot_tradeoff, lines=lines_of(arenas, (G, method)), title=title)
            for method, title in titles.items()
        ],
        height=4.6,
    )
    low, high = CLIP_PERCENTILES
    return Result(
        [figure],
        [
            points_table("clipping", "g_v* without and with clipping, and g.", arenas),
            clip_table(clips),
        ],
        [better_claim(arenas), alike_claim(arenas)],
        records_of(arenas),
        [f"Clip: percentiles {low} and {high} of σ_s on held-out images, for each λ"],
    )


def clips_of(context: Context, scale: ClippingScale) -> Clips:
    """h_l and h_u for each σ_a and λ, by the rule of `certified`, on held-out images."""
    sizes = CertifyScale(
        data=scale.data,
        seed=scale.seed,
        held_out=scale.held_out,
        held_out_draws=scale.held_out_draws,
    )
    return {
        (sigma, lam): clip_of(held_out_medians(context, sizes, sigma, lam))
        for sigma in scale.sigmas
        for lam in scale.lams_of(sigma)
    }


def clip_table(clips: Clips) -> Table:
    rows = []
    for (sigma, lam), (low, high) in clips.items():
        theirs = TABLE_2.get((sigma, lam))
        rows.append(
            [
                Cell(f"{sigma:g}", sigma),
                Cell(f"{lam:g}", lam),
                Cell("–" if theirs is None else f"{theirs[0]:.2f}, {theirs[1]:.2f}"),
                Cell(f"{low:.4f}", low),
                Cell(f"{high:.4f}", high),
            ]
        )
    return Table(
        "clip-thresholds",
        "h_l and h_u: those of the paper's Table 2, which belong to its models, and ours.",
        ["σ_a", "λ", "Table 2", "our h_l", "our h_u"],
        rows,
    )


def better_claim(arenas: Sequence[Arena]) -> Claim:
    """g_v* beats g at σ_s = σ_a in clean and robust accuracy, clipped or not."""
    told, verdicts, numbers = [], list[Verdict](), {}
    for method in (G_V_STAR, CLIPPED):
        gaps = list[PairedDifference]()
        for arena in arenas:
            chosen = dominating(arena.methods[method], arena.baseline)
            clean, robust = (gap(chosen, arena.baseline) for gap in (clean_gap, robust_gap))
            gaps += [clean, robust]
            told.append(
                f"{method}, {arena.title}, {chosen.knob}: clean {shown_difference(clean)}, "
                f"robust {shown_difference(robust)}"
            )
            numbers[f"{method}, {arena.title}"] = [clean.value, robust.value]
        verdicts.append(verdict_of(gaps))
    return Claim(
        "Regardless of clipping, g_v* has better clean and robust accuracy than the baselines",
        "Fig. 8",
        "g_v* less g at σ_s = σ_a, points: " + "; ".join(told),
        weakest(verdicts),
        "at the λ whose smaller gain is largest, with hindsight; the verdict is the weaker of that "
        f"without clipping ({verdicts[0]}) and that with ({verdicts[1]})",
        numbers,
    )


def alike_claim(arenas: Sequence[Arena]) -> Claim:
    """What clipping changes under attack, over all λ."""
    gaps = {
        f"{arena.title}, {free.knob}": robust_gap(clipped, free)
        for arena in arenas
        for free, clipped in zip(arena.methods[G_V_STAR], arena.methods[CLIPPED], strict=True)
    }
    return Claim(
        "Clipping, which helps the certificate, costs no robust accuracy",
        "Fig. 8",
        "clipped less not clipped, robust, points: "
        + "; ".join(f"{title}: {shown_difference(gap)}" for title, gap in gaps.items()),
        "not" if lowered(gaps) else "held",
        "held if nowhere the interval lies below 0",
        {title: gap.value for title, gap in gaps.items()},
    )


EXPERIMENT = Experiment(
    "clipping",
    "Fig. 8",
    "clean against robust accuracy of g_v* without and with clipping, and of g",
    {
        "cpu": ClippingScale(
            **FIXED_CPU,
            held_out=CERTIFY_CPU["held_out"],
            held_out_draws=CERTIFY_CPU["held_out_draws"],
        ),
        "paper": ClippingScale(),
    },
    {"cpu": "1 h, half of it shared with strong-attack", "paper": "10 h on a GPU after training"},
    fixed_needs,
    run,
)
