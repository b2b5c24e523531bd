"""How much of a sweep's wall time is load, beside running `run` once for each cell."""
