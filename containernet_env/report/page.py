"""Pages: Jinja2 templates with their styles and scripts in them, so that they need no network.

The Content-Security-Policy of a page allows the scripts and styles in it by their hashes, and nothing else. Templates
escape every value; `_own` alone marks text as safe, and only files of this package and of Plotly.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from containernet_env.base import VERSION
from containernet_env.base.errors import MissingRequirementError

if TYPE_CHECKING:
    from containernet_env.report.document import Document
    from containernet_env.report.network import Picture

BEGINNING = re.compile(rb'<!DOCTYPE html>\n.*<meta name="generator" content="containernet-env ', re.DOTALL)
"""What the first 4 kB of a page match."""
FIGURE = re.compile(rb"<svg [^>]*>\n<!-- made by containernet-env check -->")
"""What such a file of `figure_file` begins with."""
SECTIONS = {
    "axes": "Throughput and latency",
    "grids": "Heat maps",
    "curves": "Percentiles",
    "pairs": "Linearizable against serializable",
    "floors": "Floor",
    "timelines": "Timelines",
}
"""The sections with figures: id -> title."""
_THEMES = {
    "light": (["#0072b2", "#c44e00", "#00795a", "#a8407f", "#5b4fa2", "#7a5c00"], ["#eef5fa", "#0072b2"]),
    "dark": (["#56b4e9", "#ff9a4d", "#3dd6a5", "#f29ac8", "#b3a8f5", "#f0d75a"], ["#1d2a3a", "#56b4e9"]),
}
"""The colours of lines and of heat maps; the others are those of page.css."""
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Plotly adds a style for geographical maps unless the page has an element of its name: it has one, which is empty. It
# makes another empty style element, to which it adds its rules one by one.
_STYLE_OF_MAPS = re.compile(r'getElementById\("([0-9a-f]{64})"\)\)\{var e=document\.createElement\("style"\)')


def report_page(document: Document) -> str:
    """The report as one HTML file. Raises ``MissingRequirementError`` where Plotly is not as expected."""
    plotly, licence = _plotly()
    counts = document.counts
    lead = f"{counts['rows']:,} rows of {counts['configurations']:,} configurations, {counts['count']:,} used"
    for name, words in (("not valid", "are not certainly valid"), ("failed", "failed")):
        lead += f", {counts[name]:,} {words}" if counts[name] else ""
    return render(
        "report.html",
        ["report.js"],
        ["img-src data: blob:", "base-uri 'none'", "form-action 'none'"],
        libraries=[plotly],
        title=document.title,
        lead=lead,
        document=document,
        runs=[(run.run_id, run.began, run.proof, run.sync, run.command) for run in document.runs],
        rows=list(zip(*(column.values for column in document.table), strict=True)),
        bad=[value != "yes" for column in document.table if column.title == "counts" for value in column.values],
        sections=SECTIONS,
        figures=list(enumerate(document.figures)),
        licence=licence,
        data={
            "points": document.points.columns,
            "figures": [figure.drawing for figure in document.figures],
            "names": [column.names for column in document.table],
            "themes": {name: _theme(_colours(name), *own) for name, own in _THEMES.items()},
        },
        empty_styles=_STYLE_OF_MAPS.findall(plotly),
    )[0]


def render(
    name: str, own: Sequence[str], policy: Sequence[str], libraries: Sequence[Markup] = (), **values: object
) -> tuple[str, str]:
    """A page by its template, with ``own`` scripts after those of ``libraries``; and its Content-Security-Policy."""
    style, scripts = _own("page.css") + _own("picture.css"), [*libraries, *map(_own, own)]
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash, scripts))}",
        f"style-src {_hash(style)} {_hash('')}",
        *policy,
    ]
    allowed = "; ".join(rules)
    template = _environment().get_template(name)
    text = template.render(style=style, scripts=scripts, policy=allowed, version=VERSION, **values)
    return f"{text}\n", allowed


def figure_file(title: str, pictures: Sequence[Picture]) -> str:
    """Pictures below each other as one SVG file, in the light colours of pages."""
    light = _colours("light")
    style = re.sub(r"var\(--(\w+)\)", lambda name: light[name[1]], _file("picture.css"))
    tops = list(accumulate((one.height for one in pictures), initial=0))
    template = _environment().get_template("network.svg")
    return template.render(
        title=title,
        style=Markup(style),
        pictures=list(zip(tops, pictures, strict=False)),
        width=max(one.width for one in pictures),
        height=tops[-1],
    )


def live(**values: object) -> str:
    """The part of the page of `watch` that changes."""
    found: str = _environment().get_template("parts.html").module.live(**values)  # type: ignore[attr-defined]
    return str(found)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Without what no HTML can hold: control characters, and halves of surrogate pairs.
        finalize=lambda value: _NO_TEXT.sub("\ufffd", value) if type(value) is str else value,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _file(name: str) -> str:
    return (resources.files("containernet_env.report") / "templates" / name).read_text(encoding="utf-8")


def _own(name: str) -> Markup:
    return Markup(_file(name))


def _hash(text: str) -> str:
    """The name of an inline script or style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _plotly() -> tuple[Markup, str]:
    try:
        found = importlib.metadata.distribution("plotly")
        script = Path(str(found.locate_file("plotly/package_data/plotly.min.js"))).read_text(encoding="utf-8")
        licence = found.read_text("licenses/LICENSE.txt") or ""
    except (OSError, importlib.metadata.PackageNotFoundError) as error:
        raise MissingRequirementError(f"plotly cannot be read: {error}", "Install it: pip install plotly") from error
    # It would end its own element; a browser reads a line break as \n.
    if "</script" in script or "<!--" in script or not licence:
        raise MissingRequirementError(f"plotly {found.version} is not as expected", "Install the pinned one.")
    return Markup(script.replace("\r\n", "\n")), licence


def _colours(theme: str) -> dict[str, str]:
    """The colours of a theme by their names in page.css."""
    _, _, block = _file("page.css").partition(f':root[data-theme="{theme}"]')
    return dict(re.findall(r"--(\w+): (#\w+);", block.partition("}")[0]))


def _theme(colours: Mapping[str, str], lines: Sequence[str], shades: Sequence[str]) -> dict[str, object]:
    """The colours of a theme by name, those of lines and of heat maps, and Plotly's template."""
    axis = {
        "gridcolor": colours["line"],
        "linecolor": colours["muted"],
        "showline": True,
        "zerolinecolor": colours["line"],
        "automargin": True,
        "title": {"standoff": 8},
    }
    hover = {"bgcolor": colours["back"], "bordercolor": colours["muted"], "font": {"color": colours["text"]}}
    layout = {
        "font": {"color": colours["text"], "family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": colours["back"],
        "plot_bgcolor": colours["back"],
        "margin": {"l": 60, "r": 16, "t": 12, "b": 48},
        "hoverlabel": {**hover, "align": "left", "namelength": -1},
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0, "font": {"size": 12}},
        "annotationdefaults": {"font": {"size": 11}},
        "xaxis": axis,
        "yaxis": axis,
    }
    return {**colours, "lines": lines, "shades": list(enumerate(shades)), "template": {"layout": layout}}
