"""The radii of a run at another α, from its evidence."""

from pathlib import Path

from varsmooth.errors import require
from varsmooth.runs.records import Run


def recompute(folder: Path, alpha: float, out: Path | None = None) -> Run:
    """A new run with the radii that the stored evidence gives at `alpha`; nothing is sampled.

    A level that was never visited counts as unknown, so the radii stay true: see
    `Certificate.recompute`. Choose α before looking at the results, as always.
    out: by default beside the run, with α in its name.
    """
    run = Run.open(folder)
    name, verb = run.header["name"], run.header["verb"]
    require(verb == "certify", f"only certificates depend on alpha; {name} is a {verb} run")
    rows = run.rows()
    require(len(rows) > 0, f"run {name} has no row yet; let it finish an image first")
    require(
        all(row.get("evidence") for row in rows),
        f"run {name} was imported without evidence, so its radii cannot be recomputed",
    )
    folder = folder.resolve()
    out = out or folder.with_name(f"{folder.name}-alpha-{alpha:g}")
    require(not (out / "run.json").exists(), f"{out} is a run already; choose another --out")
    changed = []
    for row in rows:
        again = run.certificate(row).recompute(alpha)
        evidence = {k: v for k, v in again.to_dict().items() if k in row["evidence"]}
        result = {"prediction": again.prediction, "radius": again.radius, "evidence": evidence}
        changed.append(row | result)
    config = run.header["config"] | {"alpha": alpha, "recomputed_from": name}
    header = run.header | {"name": f"{name}, α = {alpha:g}", "config": config}
    new = Run.create(out, header)
    new.append(changed)
    return new
