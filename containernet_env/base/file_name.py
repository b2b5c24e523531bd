"""Names of files that are made of texts: of scenarios, keys, hosts."""

from __future__ import annotations

import hashlib
import re

NAME_MAX = 160
"""Characters of a name at most; what is appended to it has to fit in the 255 bytes of a file system's names."""
_DIGEST = 10
_SAFE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.:@+-]*")
_UNSAFE = re.compile(r"[^0-9A-Za-z_.:@+-]+")


def file_name(text: str) -> str:
    """``text`` as the name of a file in its folder, and never as a path.

    A short one of ordinary characters is kept as it is. Any other becomes a readable part of it and a digest of all of
    it, so that two texts do not share a name.
    """
    if len(text) <= NAME_MAX and _SAFE.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    readable = _UNSAFE.sub("-", text)[: NAME_MAX - _DIGEST - 1].strip(".-")
    return f"{readable}-{digest}" if readable else digest
