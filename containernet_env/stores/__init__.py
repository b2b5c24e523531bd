"""Stores under test: the base classes, and a module or package for each store."""
