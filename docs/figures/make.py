"""Make the pictures of the documentation from the embedded images.

    python docs/figures/make.py            # draw everything from the stored votes
    python docs/figures/make.py --votes    # first count the votes anew (a few minutes)

noise.png    three embedded images under growing noise
radii.svg    certified radius against σ, image by image
minmax.svg   the sound certificate of a worked example, level by level

The votes behind radii.svg are kept in votes.json. They are of a released classifier on the embedded
images of the split `val`, which it has not been trained on; --model takes another one (a released
name, or a folder).
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from varsmooth import FixedSelector, SmoothedClassifier, bounds, load_dataset
from varsmooth._util.fingerprints import fingerprint
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.noise import NoiseStream

HERE = Path(__file__).parent
LEVELS = [round(float(s), 4) for s in np.geomspace(0.06, 1.0, 9)]
ALPHA, VOTES, SEED = 1e-3, 200, 0
COLOURS = ("#e4572e", "#2a9d8f", "#7b61c9", "#c98a00")  # readable on white and on black


def noise_sheet() -> None:
    """Rows: three images; columns: σ = 0, 0.12, 0.25, 0.5, 1. Values outside [0,1] are clipped."""
    data = load_dataset("cifar10-sample")
    chosen = [3, 207, 905]
    x, _, ids = data.batch(chosen)
    noise = NoiseStream.make(len(x), SEED, ids)
    (_, epsilon), *_ = noise.batches(x, "picture", 1)
    columns = [
        noise.perturb(x, torch.full((len(x),), sigma), epsilon).clamp(0, 1)
        for sigma in (0.0, 0.12, 0.25, 0.5, 1.0)
    ]
    sheet = torch.stack(columns, dim=1)  # (rows, columns, C, H, W)
    rows, across, _, height, width = sheet.shape
    pixels = sheet.permute(0, 3, 1, 4, 2).reshape(rows * height, across * width, 3)
    Image.fromarray((255 * pixels).round().byte().numpy()).save(HERE / "noise.png", optimize=True)


def count_votes(model: torch.nn.Module, name: str) -> None:
    """Votes of the model on every image of `val`, at every level; kept in votes.json."""
    data = load_dataset("cifar10-sample", "val")
    assert data.labels is not None
    counts: dict[str, list[list[int]]] = {}
    for level in LEVELS:
        g = SmoothedClassifier(model, FixedSelector(level))
        rows: list[list[int]] = []
        for x, _, ids in data.batches(20):
            rows += g.votes(x, VOTES, noise=g.noise(len(x), SEED, ids)).tolist()
        counts[str(level)] = rows
    votes = {
        "model": name,
        "fingerprint": fingerprint(model),
        "ids": data.ids.tolist(),
        "labels": data.labels.tolist(),
        "votes": counts,
    }
    (HERE / "votes.json").write_text(json.dumps(votes, separators=(",", ":")) + "\n")


def radii_from_votes() -> tuple[np.ndarray, list[int]]:
    """Certified radii (images, levels) of the true class, 0 where none, and the labels."""
    stored = json.loads((HERE / "votes.json").read_text())
    labels = np.array(stored["labels"])
    radii = []
    for level in LEVELS:
        counts = np.array(stored["votes"][str(level)])
        top = counts[np.arange(len(labels)), labels]
        radius = bounds.class_radius(top, VOTES, level, ALPHA)
        radii.append(np.maximum(radius, 0))
    return np.stack(radii, axis=1), stored["labels"]


class Drawing:
    """A small SVG in the colours of the page it is in: text and axes are `currentColor`."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{title}" font-family="inherit" font-size="13" color="currentColor">',
            f"<title>{title}</title>",
        ]

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str = "currentColor",
        width: float = 1.0, dash: str = "", opacity: float = 1.0,
    ) -> None:  # fmt: skip
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        faint = f' opacity="{opacity:g}"' if opacity < 1 else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="{width:g}"{dashed}{faint}/>'
        )

    def path(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{steps}" fill="none" stroke="{colour}" stroke-width="2.2"/>'
        )

    def dot(self, x: float, y: float, colour: str, radius: float = 4) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>')

    def bar(self, x: float, y: float, w: float, h: float, colour: str, opacity: float) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'fill="{colour}" opacity="{opacity:g}"/>'
        )

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", colour: str = "currentColor",
        weight: str = "normal",
    ) -> None:  # fmt: skip
        # Bold labels stand on lines: a halo in the page's own colour keeps them readable.
        bold = (
            f' font-weight="{weight}" paint-order="stroke" stroke-width="4" '
            'stroke="var(--md-default-bg-color, #fff)"'
            if weight != "normal"
            else ""
        )
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{bold}>'
            f"{words}</text>"
        )

    def save(self, name: str) -> None:
        (HERE / name).write_text("\n".join([*self.parts, "</svg>", ""]))


def draw_radii() -> None:
    """Left: radius against σ for images that differ. Right: how often each level is the best."""
    radii, labels = radii_from_votes()
    names = load_dataset("cifar10-sample", "val").class_names
    best, reach = radii.argmax(axis=1), radii.max(axis=1)
    some = reach > 0
    # The image with the largest radius among those whose best level is a given one.
    chosen = [max(np.flatnonzero(some & (best == j)), key=lambda i: reach[i]) for j in (2, 4, 6)]
    drawing = Drawing(760, 300, "Certified radius against noise level for three images")
    left, bottom, width, height, top = 50, 250, 360, 205, max(reach[i] for i in chosen) * 1.1

    def at(level: float, radius: float) -> tuple[float, float]:
        share = np.log(level / LEVELS[0]) / np.log(LEVELS[-1] / LEVELS[0])
        return left + width * float(share), bottom - height * radius / top

    drawing.line(left, bottom, left + width, bottom)
    drawing.line(left, bottom, left, bottom - height)
    for level in LEVELS[::2]:
        drawing.text(at(level, 0)[0], bottom + 18, f"{level:.2g}", "middle")
    for radius in np.arange(0.25, top, 0.25):
        drawing.text(left - 6, at(LEVELS[0], radius)[1] + 4, f"{radius:g}", "end")
        drawing.line(left - 3, at(LEVELS[0], radius)[1], left, at(LEVELS[0], radius)[1])
    drawing.text(left + width / 2, bottom + 38, "noise level σ", "middle")
    drawing.text(left - 40, bottom - height - 18, "certified radius R")
    for colour, image in zip(COLOURS, chosen, strict=False):
        drawing.path([at(s, r) for s, r in zip(LEVELS, radii[image], strict=True)], colour)
        x, y = at(LEVELS[best[image]], reach[image])
        drawing.dot(x, y, colour)
        drawing.text(x, y - 10, names[labels[image]], "middle", colour, "600")

    left, width = 480, 260
    share = np.bincount(best[some], minlength=len(LEVELS)) / some.sum()
    drawing.line(left, bottom, left + width, bottom)
    drawing.text(left, bottom - height - 18, "share of images whose best level it is")
    for j, part in enumerate(share):
        x, tall = left + 6 + j * width / len(LEVELS), (height - 10) * part / share.max()
        drawing.bar(x, bottom - tall, width / len(LEVELS) - 8, tall, COLOURS[1], 0.8)
        drawing.text(x + 10, bottom - tall - 5, f"{100 * part:.0f}", "middle")
        if j % 2 == 0:
            drawing.text(x + 10, bottom + 18, f"{LEVELS[j]:.2g}", "middle")
    drawing.text(left + width / 2, bottom + 38, f"σ, {some.sum()} certified images, %", "middle")
    drawing.save("radii.svg")


def draw_minmax() -> None:
    """R = min_j max(D_j, R_j) for 8 levels, a linear h and an f that fails under much noise."""
    levels = np.geomspace(0.12, 1, 8)
    thresholds = np.sqrt(levels[:-1] * levels[1:])
    below = bounds.normal_cdf((thresholds - 0.4) / (0.35 * 0.25))  # h(x) = 0.4, slope 0.35
    z = np.maximum(
        bounds.normal_quantile([0.0, *below]), bounds.normal_quantile([*(1 - below), 0.0])
    )
    entry = 0.25 * np.maximum(0, z)
    p = np.array([0.993, 0.993, 0.993, 0.985, 0.95, 0.82, 0.55, 0.35])
    reach = levels * bounds.normal_quantile(p)
    radius = float(np.maximum(entry, reach).min())
    drawing = Drawing(760, 330, "Entry distances and class radii of eight noise levels")
    left, width, first, step, most = 90, 600, 40, 30, 0.8

    def at(distance: float) -> float:
        return left + width * min(max(distance, 0), most) / most

    foot = first + step * len(levels)
    drawing.line(left, foot, left + width, foot)
    for distance in np.arange(0, most + 0.05, 0.1):
        drawing.text(at(distance), foot + 18, f"{distance:.1f}", "middle")
        drawing.line(at(distance), foot, at(distance), foot + 4)
    drawing.text(left + width / 2, foot + 38, "distance of x' from x", "middle")
    drawing.text(left - 10, first - 14, "level", "end")
    for j, level in enumerate(levels):
        y = first + step * (len(levels) - 1 - j) + step / 2
        drawing.text(left - 10, y + 4, f"{level:.2f}", "end")
        drawing.line(left, y, left + width, y, opacity=0.15)
        drawing.bar(left, y - 9, at(entry[j]) - left, 18, COLOURS[1], 0.30)
        drawing.bar(left, y - 4, at(reach[j]) - left, 8, COLOURS[2], 0.85)
        if max(entry[j], reach[j]) < most:
            drawing.dot(at(max(entry[j], reach[j])), y, COLOURS[0], 5)
    drawing.line(at(radius), first - 8, at(radius), foot, COLOURS[0], 2, "5 4")
    shown = np.floor(1e3 * radius) / 1e3
    drawing.text(at(radius), first - 14, f"R = {shown}", "middle", COLOURS[0], "600")
    drawing.save("minmax.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--votes", action="store_true", help="count the votes anew")
    parser.add_argument("--model", default="cifar10-universal-1.00", help="whose votes to count")
    options = parser.parse_args()
    if options.votes:
        model = load_checkpoint(options.model).classifier
        assert model is not None
        count_votes(model, options.model)
    noise_sheet()
    draw_minmax()
    draw_radii()


if __name__ == "__main__":
    main()
