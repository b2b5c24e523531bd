"""The load: the client of the benchmark server, and the relay that leads to it."""
