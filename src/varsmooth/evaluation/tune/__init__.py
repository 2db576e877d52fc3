"""Settings chosen on held-out images."""
