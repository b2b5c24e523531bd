"""Stores under test: the base classes, and a module for each store."""
