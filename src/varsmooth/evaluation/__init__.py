"""Whole data sets through predict, certify, attack and verify: one module for each of these verbs.

options: plain values, without torch (the command line reads its help from them); build: from
options to a smoothed classifier and a data set; runner and engines: blocks of images, processes,
resume; records and headers: the folder of a run.
"""
