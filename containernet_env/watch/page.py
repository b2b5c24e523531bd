"""The page: the same for every run; what it shows comes to it as data, which its script only ever sets as text."""

from __future__ import annotations

from importlib import resources

from containernet_env.base.release import VERSION
from containernet_env.report.html import element, hash_of, trusted


def page(name: str) -> tuple[bytes, str]:
    """The page about a results file of this name, and its Content-Security-Policy."""
    style = _template("report", "page.css") + _template("watch", "watch.css")
    script = _template("watch", "watch.js")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {hash_of(script)}",
            f"style-src {hash_of(style)}",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"containernet-env {VERSION}"),
        element("title", f"{name} - containernet-env watch"),
        element("style", trusted(style)),
    )
    course = element("p", "connecting ...", class_="lead", id="course", role="status")
    now = (
        element("p", id="now"),
        element("p", id="standing"),
        element("progress", id="progress", aria_label="measured"),
        element("p", id="step", class_="hint"),
    )
    hint = (
        "One mark for each row, in the order of the table, the newest on the right. Both scales are logarithmic. A "
        "cross is a row that failed or is not certainly valid."
    )
    charts = element("p", hint, class_="hint"), element("div", id="charts", class_="beside")
    rows = {"tabindex": "0", "role": "region", "aria_label": "The last rows, the newest first"}
    main = element(
        "main",
        element("noscript", "This page needs JavaScript."),
        element("p", id="problem", class_="problem", hidden=True, role="alert"),
        element("section", element("h2", "Now"), *now),
        element("section", element("h2", "The last rows, drawn"), *charts),
        element("section", element("h2", "The last rows"), element("div", id="rows", class_="wide", **rows)),
    )
    script_element = element("script", trusted(script))
    body = element("body", element("header", element("h1", name), course), main, script_element)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n".encode(), policy


def _template(room: str, name: str) -> str:
    return (resources.files(f"containernet_env.{room}") / "templates" / name).read_text(encoding="utf-8")
