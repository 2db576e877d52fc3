"""varsmooth: randomized smoothing with a noise level of its own for every input."""
