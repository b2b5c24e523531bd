"""`compare` on simulated repetitions, where the truth is known."""
