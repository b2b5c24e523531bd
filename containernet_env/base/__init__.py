"""Shared by all rooms: errors, units, time, programs, files, HTTP and progress."""
