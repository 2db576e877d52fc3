"""Whole data sets through predict, certify, attack and verify.

options: what can be asked, as plain values (no torch, the command line reads it for its help);
models, images: from options to a smoothed classifier and a data set; running: blocks of images,
processes, resume; predicting, certifying, attacking, searching, verifying: one verb each.
"""
