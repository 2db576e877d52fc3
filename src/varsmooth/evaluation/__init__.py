"""Whole data sets through predict, certify, attack and verify.

options: plain values, without torch (the command line reads its help from them); building: from
options to a smoothed classifier and a data set; runner: blocks of images, processes, resume;
records: the folder of a run; predicting, certifying, attacking, verifying: the verbs.
"""
