"""What programs are told of the memory limit of their host."""

from __future__ import annotations

# Leaves Go's runtime a tenth for what its collector does not count: stacks, the binary, kernel buffers.
_GO_SHARE = (9, 10)


def go_environment(memory_bytes: int | None) -> dict[str, str]:
    """The environment of a Go program below a memory limit; ``None`` is no limit."""
    share, whole = _GO_SHARE
    return {"GOMEMLIMIT": f"{memory_bytes * share // whole}B"} if memory_bytes else {}
