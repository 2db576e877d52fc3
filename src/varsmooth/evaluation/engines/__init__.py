"""Who computes the blocks of a run, and where.

shards: workers without a connection; local: this process, or several that Lightning Fabric or
torchrun connects; recording: rows to the record, with progress, whoever computed them.
"""
