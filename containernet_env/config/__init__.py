"""From the files that users write to a plan: strict JSON with comments, values, and everything a run will do."""
