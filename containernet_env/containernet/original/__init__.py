"""Runs on the original Containernet, where it is installed."""
