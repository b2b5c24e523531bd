"""What a run leaves behind: the columns of the CSV, its rows, and reading them back."""
