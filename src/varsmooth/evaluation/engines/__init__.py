"""Engines compute the blocks of a run.

local: in this process, or in several that Lightning Fabric or torchrun connects; ray_tasks: on a
Ray cluster; shards: which blocks belong to a worker without a connection; recording: the rows of
any engine to the record, with progress.
"""
