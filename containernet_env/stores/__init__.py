"""Stores under test: what a run needs of one, and etcd."""
