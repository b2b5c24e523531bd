"""A sweep of many cells on many machines that fail: simulated cells and clock, the real bookkeeping."""
