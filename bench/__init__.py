"""Benchmarks of the project's own parts; none judges a machine."""
