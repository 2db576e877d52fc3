"""The paper's figures and tables, one command each: `python -m reproduce NAME`.

How an experiment is written
----------------------------
One file, `experiments/<name>.py` (a hyphen in the name is an underscore in the file), which ends in
`EXPERIMENT = Experiment(...)`; its name goes into `catalogue.NAMES`. It has three parts:

- **A scale**: a frozen dataclass derived from `experiment.Scale` with every size as a field, made
  by `size("what it counts", default)`. There is one instance for `cpu` and one for `paper`. Fields
  are options (`python -m reproduce clean images=500 lams=0,0.2`), and where `cpu` has another
  value than `paper` the caption says so by itself: no reduction can be forgotten.
- **needs(scale)**: the models, as `Need("0.25", selector=True)` or `Need("universal-1.00")`. What
  is missing is told in one sentence, or trained through the presets at `paper` scale.
- **run(context, scale) → Result**: a preset on top of evaluation and report. `context.certify`,
  `context.predict` and `context.attack` are ordinary evaluation runs in the shared store: their
  folder is named by what was asked, so they are resumed, never repeated, and shared between
  experiments; the votes of certificates are shared too. `context.model(need)` names the model,
  `context.images(...)` an evenly spaced subset. A `Figure` holds plots, made of the functions of
  `report.figures` (a new kind of plot belongs there); tables are `report.tables`.

A `Result` holds figures, tables, claims and the `Outcomes` behind them (they become the compact
records). A `Claim` says what the paper states, what was measured, and a verdict: held, partly, not
or untested, with the reason; `claims.verdict_of` decides it from paired differences. Captions need
not mention sizes: `writing` adds the scale, its reductions and how the models were trained.

catalogue: the names; experiment: what an experiment is; context: models, images and runs;
levels, replay: one table of votes serves every λ, D and clip; writing, claims: the results folder.
"""
