"""Sweeps: many cells of a design, each measured once for each repetition, however often they are started."""
