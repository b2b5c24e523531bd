"""A run: bring-up, scenario matrix, tear-down, and what keeps runs apart."""
