"""How exact and how fast links are: the link emulator, vde2's wirefilter and HTB + netem, side by side in one run."""
