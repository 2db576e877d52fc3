"""How fast varsmooth certifies, beside what a user would run instead: `make bench`."""
