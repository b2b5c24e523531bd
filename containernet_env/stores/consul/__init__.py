"""Consul: everything that only it knows."""
