"""Network engines: what makes hosts, switches and links of a plan real (`--engine`).

``base`` says what a run needs of one, ``builtin`` is the project's own, ``original*`` drive the original Containernet
where it is installed, ``select`` makes the one that was asked for.
"""
