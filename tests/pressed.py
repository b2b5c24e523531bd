"""A program that is the command, and presses Ctrl-C where a function is first called after Ctrl-C is heard."""

from __future__ import annotations


def program(function: str, whom: str, *words: str) -> str:
    """Its code, as ``python -c`` takes it.

    ``function`` is a qualified name, ``whom`` the call that sends SIGINT, ``words`` those of the command line; without
    any they are the program's own.
    """
    return f"""
import os, signal, sys

heard = False

def press(frame, event, arg):
    global heard
    name = frame.f_code.co_qualname
    heard = heard or (name, event) == ("hear_ctrl_c", "return")
    if heard and (name, event) == ({function!r}, "call"):
        sys.setprofile(None)
        {whom}

sys.argv[1:] = {words!r} or sys.argv[1:]
sys.setprofile(press)
from containernet_env.__main__ import main
sys.exit(main())
"""
