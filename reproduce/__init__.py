"""The paper's figures and tables, one command each: `python -m reproduce NAME`.

An experiment is an `Experiment` in the file of its family, listed in `__main__`:

- **A scale**: a frozen dataclass derived from `scales.Scale` with a field for every size,
  `size("what it counts", default)`; one instance for `cpu`, one for `paper`. Fields are options
  (`python -m reproduce clean --images 500 --lams 0,0.2`), and captions name every reduction.
- **needs(scale)**: the models, as `Need("0.25", selector=True)`.
- **run(context, scale) → Result**: figures and tables, made of `context.run(name, make, key)` and
  `context.fact(name, make)`. Both look in the evidence first. While an experiment runs, `make`
  computes: ordinary evaluation runs in a shared store, resumed and never repeated; nor is a run
  whose name and key the committed records have. When a committed result is redrawn
  (`python -m reproduce pages`), its records stand for the runs, and nothing is computed.

What the runs show is decided elsewhere: `comparisons` reads pairs of runs by name, `statistics`
pools them, `verdicts` names each number of results/README.md, which a person writes and a test
recomputes.

scales, harness: sizes, and models, images, runs and evidence; replay: one table of votes serves
every λ, D and clip; certified: the certificates, bounds of the selector, clean accuracy; attacks,
robustness: the attacks; cascade, readings: beyond the paper; figures; records, committed: what a
result consists of.
"""
