"""Shared by all rooms: errors, units, time, programs, files, HTTP and progress."""

VERSION = "0.1.0"
"""The release of this project."""
