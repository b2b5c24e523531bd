"""The stored results of a run: the columns of the CSV, its rows, and reading them back."""
