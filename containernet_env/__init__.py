"""containernet-env: measure consistent stores on an emulated network, and prove the network it was measured on."""

__version__ = "0.1.0"
