"""Pure values and pure rules: what is configured and what was measured, free of files, processes and machines."""
