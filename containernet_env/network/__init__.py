"""Links and switches: apply, read back, clear."""
