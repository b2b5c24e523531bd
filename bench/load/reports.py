"""Reads what the two tools print, and refuses a report that is not one of a run in which all went well."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from containernet_env.base.errors import RunError


@dataclass(frozen=True)
class Report:
    """What one run says of itself: requests that were answered well, the time they took, latencies in seconds."""

    ok: int
    total_s: float
    requests_per_s: float
    p50_s: float | None
    p99_s: float | None


def parse_ours(text: str, asked: int) -> Report:
    """The JSON report of benchmark-client, of which ``asked`` requests were wanted. RunError if any is missing."""
    try:
        fields = json.loads(text)
        ok, failed, reason = int(fields["ok"]), int(fields["failed"]), fields["reason"]
        percentiles = fields["percentiles_s"] or {}
        report = Report(
            ok=ok,
            total_s=float(fields["total_s"]),
            requests_per_s=float(fields["requests_per_s"]),
            p50_s=percentiles.get("50"),
            p99_s=percentiles.get("99"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"benchmark-client gave no report that can be read: {text[-300:]!r}") from error
    if ok != asked or failed != 0 or reason is not None:
        raise RunError(f"benchmark-client: {ok} of {asked} requests ok, {failed} failed, {reason}: {fields['errors']}")
    return report


def parse_etcd(text: str, asked: int) -> Report:
    """The text report of etcd's tool, run with ``--precise``. RunError if it names errors or requests are missing.

    That tool ends with status 0 whatever happens, so the report is all there is: failed requests stand in an error
    distribution only, and the rows of the histogram add up to those that were answered.
    """
    if "Error distribution:" in text:
        raise RunError(f"etcd's tool: {text.split('Error distribution:')[1].strip()[:300]}")
    summary = text.partition("Summary:")[2].partition("Response time histogram:")
    histogram, _, latencies = summary[2].partition("Latency distribution:")
    counts = re.findall(r"^ +\S+ \[(\d+)\]\t\|", histogram, re.MULTILINE)
    total = re.search(r"Total:\t(\S+) secs", summary[0])
    rate = re.search(r"Requests/sec:\t(\S+)", summary[0])
    if total is None or rate is None or not counts:
        raise RunError(f"etcd's tool gave no report that can be read: {text[-300:]!r}")
    ok = sum(map(int, counts))
    if ok != asked:
        raise RunError(f"etcd's tool: {ok} of {asked} requests answered")
    percentiles = {
        name: float(value) for name, value in re.findall(r"^ +(\S+)% in (\S+) secs", latencies, re.MULTILINE)
    }
    return Report(ok, float(total[1]), float(rate[1]), percentiles.get("50"), percentiles.get("99"))
