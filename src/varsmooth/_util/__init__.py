"""Files, locks, fingerprints, progress and processes: what every layer but the core shares."""
