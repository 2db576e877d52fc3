"""The paper's figures and tables, one command each: `python -m reproduce NAME`.

An experiment is an `Experiment` in the file of its family, listed in `__main__`:

- **A scale**: a frozen dataclass derived from `harness.Scale` with a field for every size,
  `size("what it counts", default)`; one instance for `cpu`, one for `paper`. Fields are options
  (`python -m reproduce clean --images 500 --lams 0,0.2`), and captions name every reduction.
- **needs(scale)**: the models, as `Need("0.25", selector=True)`.
- **run(context, scale) → Result**: figures, tables and claims, made of
  `context.run(name, make, key)` and `context.fact(name, make)`. Both look in the evidence first.
  While an experiment runs, `make` computes: ordinary evaluation runs in a shared store, resumed and
  never repeated; nor is a run whose name and key the committed records have. When a committed
  result is judged again (`python -m reproduce claims`), its records stand for the runs, and
  nothing is computed.

harness: what an experiment is, and its models, images, runs and evidence; replay: one table of
votes serves every λ, D and clip; certified, selection: the certificates; arenas, robustness,
clipping, universal: the attacks; ablation, conditioning, memorisation, tabulated, attainable: what
each idea is worth; cascade_rules, cascade_votes, cascade_attack, cascade_gate: beyond the paper;
verdicts: how claims are decided; plots; committed: the folder of a result; records: its runs,
image by image; pages: what is read of it.
"""
