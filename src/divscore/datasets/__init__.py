"""Collections that are published, and the one that comes with divscore."""
