"""Models: networks, checkpoints, how a model is loaded by name, and the released weights."""
