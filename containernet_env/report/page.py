"""The page: a document as one HTML file that needs no network.

Its Content-Security-Policy allows the scripts and styles that are in it, by their hashes, and nothing else.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from containernet_env.base.errors import MissingRequirementError
from containernet_env.report.document import Document
from containernet_env.report.html import Child, Html, element, hash_of, joined, json_block, trusted

SCRIPTS = ("look.js", "draw.js", "table.js", "page.js")
BEGINNING = re.compile(rb'<!DOCTYPE html>\n.*<meta name="generator" content="containernet-env ', re.DOTALL)
"""What the first 4 kB of a page match."""
_EMPTY = ""
"""Plotly makes an empty style element and adds its rules to that by itself."""
_STYLE_OF_MAPS = re.compile(r'getElementById\("([0-9a-f]{64})"\)\)\{var e=document\.createElement\("style"\)')
"""Plotly adds a style for geographical maps unless there is an element of its name: there is one, which is empty."""


def page(document: Document) -> str:
    """The whole page. Raises ``MissingRequirementError`` where Plotly is not as it is known here."""
    plotly, licence = _plotly()
    styles = _STYLE_OF_MAPS.findall(plotly)
    style = _template("page.css")
    look, *rest = map(_template, SCRIPTS)
    scripts = [look, plotly, *rest]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(hash_of, scripts))}",
            f"style-src {hash_of(style)} {hash_of(_EMPTY)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"containernet-env {document.version}"),
        element("title", f"{document.title} - containernet-env report"),
        element("style", trusted(style)),
        *(element("style", id=name) for name in styles),
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        _header(document),
        element("main", *_sections(document), id="content"),
        _footer(document, licence),
        json_block("data", document.data),
        *(element("script", trusted(script)) for script in scripts),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _template(name: str) -> str:
    """A file of the page; as a browser reads it, which counts for its hash."""
    return (resources.files("containernet_env.report") / "templates" / name).read_text(encoding="utf-8")


def _plotly() -> tuple[str, str]:
    """Plotly's script and its licence."""
    try:
        found = importlib.metadata.distribution("plotly")
        script = Path(str(found.locate_file("plotly/package_data/plotly.min.js"))).read_text(encoding="utf-8")
        licence = found.read_text("licenses/LICENSE.txt") or ""
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
        raise MissingRequirementError(f"plotly cannot be read: {error}", "Install it: pip install plotly") from error
    # It would end its own element; a browser reads a line break as \n.
    if "</script" in script or "<!--" in script or not licence:
        raise MissingRequirementError(f"plotly {found.version} is not as expected", "Install the pinned one.")
    return script.replace("\r\n", "\n"), licence


def _header(document: Document) -> Html:
    counts = document.counts
    parts = [f"{counts['rows']:,} rows of {counts['configurations']:,} configurations", f"{counts['count']:,} count"]
    parts += [f"{counts['not valid']:,} are not certainly valid"] if counts["not valid"] else []
    parts += [f"{counts['failed']:,} failed"] if counts["failed"] else []
    return element(
        "header",
        element("h1", document.title),
        element("p", ", ".join(parts), class_="lead"),
        element(
            "div",
            element(
                "label", "Colours ", _select("theme", [("auto", "as the system"), ("light", "light"), ("dark", "dark")])
            ),
            element("button", "Print", type="button", id="print"),
            class_="tools",
        ),
        element("nav", element("ul", id="contents"), aria_label="Sections"),
    )


def _select(name: str, options: Iterable[tuple[str, str]]) -> Html:
    return element("select", *(element("option", text, value=value) for value, text in options), id=name)


def _section(name: str, title: str, *children: Child) -> Html:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def _table(headings: Sequence[str], rows: Iterable[Sequence[Child]], caption: str, class_: str | None = None) -> Html:
    head = element("tr", *(element("th", heading, scope="col") for heading in headings))
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    table = element(
        "table", element("caption", caption), element("thead", head), element("tbody", *lines), class_=class_
    )
    return element("div", table, class_="wide", tabindex="0", role="region", aria_label=caption)


def _list(items: Iterable[str]) -> Html:
    return element("ul", *(element("li", item) for item in items))


def _figure(document: Document, kind: str, index: int, title: str, text: str) -> Html:
    """A place that draw.js fills; without scripts it says what would be there. What it leaves out is below it."""
    left_out = document.left_out.get((kind, index))
    return element(
        "figure",
        element("h3", title, id=f"{kind}-{index}"),
        element("figcaption", text),
        element("div", class_="controls"),
        element("div", element("noscript", "Figures need JavaScript."), class_="plot"),
        element("p", f"Not shown: {'; '.join(left_out)}.", class_="lacks") if left_out else None,
        data_figure=kind,
        data_index=index,
        aria_labelledby=f"{kind}-{index}",
    )


def _sections(document: Document) -> list[Html | None]:
    data = document.data
    medians = f"Points are medians over repetitions; bars {document.interval}."
    crosses = " A cross is a single row that does not count, in no median." if data["bad"] else ""
    lines = [
        _figure(
            document,
            "lines",
            index,
            _upper(f"throughput and latency against {one['axis']['title']}"),
            f"Nothing else varies along a line{_together(one['together'])}. {medians}{crosses}",
        )
        for index, one in enumerate(data["lines"])
    ]
    grids = [
        _figure(
            document,
            "grid",
            index,
            _upper(f"{one['x']['title']} and {one['y']['title']}"),
            f"Each field is the median of one configuration{_together(one['together'])}. A field without a number was "
            "not measured, or none of its rows counts.",
        )
        for index, one in enumerate(data["grids"])
    ]
    curves = _figure(
        document,
        "curves",
        0,
        "Latency by percentile",
        "Half of all requests were at or below the curve at 50 %, all but one in a thousand at 99.9 %: the axis is "
        "spread out towards the slowest, as wrk2 does. Each curve is the median over the repetitions of a "
        "configuration, at each percentage for itself; what any of its rows has too few requests for is left out.",
    )
    pairs = _figure(
        document,
        "pairs",
        0,
        "The same reads, linearizable and serializable",
        f"A linearizable read has a quorum agree, a serializable one is answered by one member alone. {medians}",
    )
    floors = _figure(
        document,
        "floors",
        0,
        "Median latency beside its floor",
        "The floor is the least median latency that links, disks and the store's protocol allow in an unloaded system; "
        f"what is above it is CPU time, waiting, windows and losses. {medians}",
    )
    times = _figure(
        document,
        "timelines",
        0,
        "A load, step by step",
        "Requests that succeeded and that did not, and the latencies of the former, from the start of the load. "
        "Vertical lines: what was done (dashed), undone (dotted) or noticed (dash-dotted).",
    )
    return [
        _summary(document),
        _measured(document),
        _bad(document) if document.bad else None,
        _section("axes", "Throughput and latency", *lines) if lines else None,
        _section("grids", "Heat maps", *grids) if grids else None,
        _section("curves", "Percentiles", curves) if data["curves"] else None,
        _section("pairs", "Linearizable against serializable", pairs) if data["pairs"] else None,
        _section("floors", "Floor", floors) if data["floors"] else None,
        _section("timelines", "Timelines", times) if data["timelines"] else None,
        _section(
            "rows",
            "Rows",
            element("p", "A heading sorts by its column, once more the other way round. ", class_="hint"),
            element("div", id="table"),
        ),
    ]


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _together(names: Sequence[str]) -> str:
    return f" but what is configured together with its axes or follows from them: {', '.join(names)}" if names else ""


def _summary(document: Document) -> Html | None:
    notes = [element("h3", "What was left out"), _list(document.notes)] if document.notes else []
    lacks = [element("h3", "What it lacks"), _list(document.lacks)] if document.lacks else []
    return _section("about", "About this report", *notes, *lacks) if notes or lacks else None


def _measured(document: Document) -> Html:
    facts = _table(
        ["what", "value"], [(name, _values(values)) for name, values in document.measured], "Measured on what"
    )
    varied = _table(["what", "values"], document.varied, "Configured, and varied") if document.varied else None
    constant = _table(["what", "value"], document.constant, "Configured, and the same in all rows")
    runs = [(run.run_id, run.began, run.proof, run.sync, element("code", run.command)) for run in document.runs]
    headings = ["run", "began", "proof of the network", "fdatasync of members, ms", "command"]
    told = _table(headings, runs, "Runs whose directories were found") if runs else None
    return _section(
        "measured",
        "What was measured on what",
        element("div", facts, varied, class_="beside"),
        _details("The same in all rows", constant) if document.constant else None,
        _details(f"Runs ({len(runs)})", told) if told else None,
    )


def _details(summary: str, *children: Child) -> Html:
    return element("details", element("summary", summary), *children)


def _values(values: Sequence[str]) -> Html:
    return joined(element("div", value) for value in values)


def _bad(document: Document) -> Html:
    told = _table(
        ["scenario", "repetition", "run", "why", "findings"], document.bad, "Rows that do not count", class_="reasons"
    )
    text = (
        "These rows failed, or their figures are not certainly those of the store under what was configured. They are "
        "in no median and in no interval; figures show them as crosses."
    )
    return _section(
        "bad", "Rows that do not count", element("p", text), _details(f"All of them ({len(document.bad)})", told)
    )


def _footer(document: Document, licence: str) -> Html:
    made = f"Made {document.made} by containernet-env {document.version} from {', '.join(document.files)}."
    about = "The figures are drawn by plotly.js, which is in this page under the MIT licence."
    return element(
        "footer",
        element("p", made),
        element("p", about),
        _details("Licence of plotly.js", element("pre", licence)),
    )
