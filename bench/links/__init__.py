"""Accuracy and speed of links: the link emulator, vde2's wirefilter and HTB + netem, compared in one run."""
