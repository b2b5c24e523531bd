"""What the log of a member with a proxy tells of its end; etcd and the proxy write into one."""

from __future__ import annotations

import re

from containernet_env.base.programs import crash_line, how_ended, one_line
from containernet_env.stores.etcd import last_words as etcd
from containernet_env.stores.etcd.log import LINE

# proxy_image/start-etcd-and-proxy.
_ENDED = re.compile(r"^the proxy ended with status ([0-9]+)$", re.MULTILINE)


def last_words(log: str, killed: bool) -> str:
    """See ``base.endings.LastWords``: that the proxy ended, and its own words, where that came first; else etcd's."""
    if (ended := _ENDED.search(log)) is None:
        return etcd.last_words(log, killed)
    before = log[: ended.start()]
    if any(line["message"] == etcd.SIGNALLED for line in LINE.finditer(before)):
        return etcd.last_words(log, killed)
    status = int(ended[1])
    own = [line for line in LINE.sub("", before).splitlines() if line.strip()]
    words = crash_line(before) or (own[-1] if own and status <= 128 else "")
    return one_line(f"the proxy ended: {': '.join(filter(None, (how_ended(status), words)))}")
