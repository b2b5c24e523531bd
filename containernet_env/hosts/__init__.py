"""Hosts as this machine holds them: the Docker engine, limits, namespaces, programs in a host."""
