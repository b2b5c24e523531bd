"""The page in a real browser: it draws, without a word on its console, and its table sorts and filters."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.report.network import CHARACTER
from containernet_env.report.page import report_page
from containernet_env.results.run_directory import RunDirectory
from tests.local.browser import CHROMIUM, Browser
from tests.unit.report_rows import EVIL, EVIL_NAMES, document, row, sweep, write
from tests.unit.test_network_figures import CONFIGS, run_on
from tests.unit.test_report import add_load
from tests.unit.test_run_directory import directory as run_directory

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
made_run = run_directory


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def made(path: Path) -> Path:
    written = path.with_suffix(".html")
    written.write_text(report_page(document(path)), encoding="utf-8")
    return written


def pictures(browser: Browser) -> list[int]:
    """How many paths the picture of each figure has: all are drawn before the page counts as loaded."""
    paths: list[int] = browser.js(
        "[...document.querySelectorAll('.plot')].map((one) => one.querySelectorAll('.main-svg path').length)"
    )
    return paths


def column(browser: Browser, title: str) -> list[str]:
    """What the table shows in a column."""
    find = f"[...document.querySelectorAll('#rows th')].findIndex((th) => th.textContent === '{title}')"
    texts: list[str] = browser.js(
        f"(() => {{ const at = {find}; return [...document.querySelectorAll('#rows tbody tr')]"
        ".map((line) => line.children[at].textContent); })()"
    )
    return texts


def test_a_sweep_is_drawn_sorted_filtered_and_silent(browser: Browser, tmp_path: Path) -> None:
    browser.open(made(write(tmp_path / "out.csv", sweep())))
    kinds = browser.js("[...document.querySelectorAll('figure')].map((one) => one.parentElement.id)")
    assert list(dict.fromkeys(kinds)) == ["axes", "grids", "curves", "pairs", "floors"]
    assert len(pictures(browser)) == len(kinds) and all(paths > 5 for paths in pictures(browser))
    assert browser.js("scrollY") == 0, "screenshots of the whole page show figures that were never scrolled to"
    assert browser.js("document.querySelectorAll('#grids .heatmap-label text').length") == 9

    assert len(column(browser, "p50 (ms)")) == 36
    click = "[...document.querySelectorAll('#rows th button')].find((one) => one.textContent === 'p50 (ms)').click()"
    for sign, state in ((1, "ascending"), (-1, "descending")):
        browser.js(click)
        values = [float(text) for text in column(browser, "p50 (ms)")]
        assert values == sorted(values, key=lambda value: sign * value)
        assert browser.js("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == state

    browser.js("filter.value = 'consistency:l p50<5'; filter.dispatchEvent(new Event('input'))")
    assert set(column(browser, "consistency")) == {"l"} and len(column(browser, "consistency")) == 6
    assert browser.js("document.querySelector('[role=status]').textContent") == "6 of 36 rows"
    for name in ("link_delay", "LinkDelay_ms", "link"):
        browser.js(f"filter.value = '{name}>2'; filter.dispatchEvent(new Event('input'))")
        assert set(column(browser, "link delay, one way (ms)")) == {"3"}, name
    browser.js("filter.value = ''; only.checked = true; only.dispatchEvent(new Event('input'))")
    assert len(column(browser, "counts")) == 35
    rows = browser.js("document.querySelector('figure').numbers()")
    assert len(rows) == 38 and [1, "linearizable, 1 Mbit/s", "latency, p50 (ms)", 4.15, 4.1, 4.2, 2, 2, "yes"] in rows
    assert [3, "serializable, 100 Mbit/s", "latency, p50 (ms)", 6.2, None, None, None, 1, "no"] in rows

    title = "document.querySelector('.plot').layout.xaxis.title.text"
    assert browser.js(title) == "link delay, one way (ms)"
    choose = "[...document.querySelectorAll('figure label')]"
    choose += ".find((one) => one.textContent.startsWith('Horizontal')).querySelector('select')"
    browser.js(f"((scale) => {{ scale.value = 'log'; scale.dispatchEvent(new Event('input')); }})({choose})")
    assert browser.js(title) == "link delay, one way (ms), logarithmic"

    browser.js("theme.value = 'dark'; theme.dispatchEvent(new Event('input'))")
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
    assert browser.js("document.querySelector('.plot')._fullLayout.paper_bgcolor") == "#16191d"
    assert browser.messages == []
    assert [url for url in browser.requested if not url.startswith(("file:", "data:", "blob:"))] == []


def test_tables_are_saved_as_csv_without_formulas(browser: Browser, tmp_path: Path) -> None:
    names = ["=1+1", "-2", "+1e5", "-", "-x", "+x", "@x", "a=b", 'x, "y"']
    rows = [row(Target=name, LinkDelay_ms=str(place)) for place, name in enumerate(names)]
    browser.open(made(write(tmp_path / "out.csv", rows)))
    browser.js("URL.createObjectURL = (blob) => { window.saved = blob.text(); return 'data:,'; }")
    browser.js("document.getElementById('save').click()")
    found = list(csv.DictReader(browser.js("saved").splitlines()))
    assert [line["target"] for line in found] == ["'=1+1", "-2", "+1e5", "-", "'-x", "'+x", "'@x", "a=b", 'x, "y"']
    browser.js("document.querySelector('#floors figure > button').click()")
    assert browser.js("saved").startswith(
        'configuration,series,figure,value,low,high,repetitions,rows,counts\n"\'-2, 1 ms",'
    )
    assert browser.messages == []


@pytest.mark.parametrize("width", [1280, 360])
def test_a_network_is_drawn_within_the_page_in_the_colours_of_its_theme(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    run_on(tmp_path, CONFIGS / "5regions.json", measured=True)
    browser.open(made(write(tmp_path / "out.csv", [row()])), width=width, dark=True)
    assert browser.js("[...document.querySelectorAll('#network svg')].map((one) => one.role)") == ["img", "img"]
    styles = "[...document.querySelectorAll('#network svg {}')].map((one) => getComputedStyle(one).fill)"
    assert set(browser.js(styles.format("text.strong"))) == {"rgb(230, 232, 235)"}
    assert set(browser.js(styles.format(".cell"))) == {"rgb(121, 184, 255)"}
    widest = "Math.max(...[...document.querySelectorAll('#network text')].map((one) => one.getComputedTextLength() / "
    assert 6 < browser.js(widest + "one.textContent.length))") <= CHARACTER, "boxes are as wide as their texts"
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.messages == []


def test_a_timeline_is_drawn_with_what_was_done(browser: Browser, made_run: RunDirectory) -> None:
    add_load(made_run.path)
    browser.open(made(write(made_run.path.parent.with_suffix(".csv"), [row()])))
    assert f"0.15 s: kill {EVIL}" in browser.js("document.querySelector('#timelines .note').textContent")
    assert browser.js("document.querySelector('#timelines .plot').layout.shapes.length") == 1
    assert browser.messages == []


def test_names_from_files_are_shown_and_never_run_also_where_it_is_narrow(browser: Browser, tmp_path: Path) -> None:
    """A value of an axis that is no number was taken for HTML: bold, or a link."""
    names = (*EVIL_NAMES, EVIL_NAMES[-1] + "<a href='https://example.com'>link</a>")
    rows = [
        row(Scenario=name, ScenarioHash=name, Target=name, Error=error, ClientCount=clients, LinkDelay_ms=name)
        for name in names
        for error in ("-", name)
        for clients in ("1", "10")
    ]
    browser.open(made(write(tmp_path / "out.csv", rows)), width=360)
    assert browser.js("document.querySelectorAll('img, b, main script, [onmouseover], [onerror]').length") == 0
    assert EVIL in column(browser, "scenario")
    legend = browser.js("[...document.querySelectorAll('.legendtext')].map((one) => one.textContent).join()")
    assert EVIL in legend and "<b>" in legend
    assert browser.js("document.documentElement.scrollWidth") <= 360
    rows = [
        row(LinkDelay_ms=delay, ClientCount=n, ConfigHash=delay) for delay in ("1", "2", names[-1]) for n in ("1", "10")
    ]
    browser.open(made(write(tmp_path / "ticks.csv", rows)))
    for section in ("axes", "grids"):
        find = f"[...document.querySelectorAll('#{section} [class$=tick] text')].map((one) => one.textContent)"
        ticks = browser.js(find)
        assert [text for text in ticks if "<b>" in text and "</a>" in text], (section, ticks)
    assert browser.js("document.querySelectorAll('.plot a[href], .plot [href*=example]').length") == 0
    assert browser.js("document.querySelectorAll('#grids .heatmap-label text').length") == 6
    assert browser.messages == []


def test_the_page_prints_whole_figures_in_light_whatever_is_chosen(browser: Browser, tmp_path: Path) -> None:
    """Figures as wide as the window lost their right half on paper."""
    browser.open(made(write(tmp_path / "out.csv", sweep(delays=2, bandwidths=2))), dark=True)
    layouts = (
        "[...document.querySelectorAll('.plot')].map((one) => [one._fullLayout.paper_bgcolor, one._fullLayout.width])"
    )
    before = browser.js(layouts)
    assert {colour for colour, _ in before} == {"#16191d"} and all(width > 1000 for _, width in before)
    browser.js(f"addEventListener('beforeprint', () => {{ window.printed = {layouts}; }})")
    browser.pdf(tmp_path / "page.pdf")
    assert browser.js("window.printed") == [["#ffffff", 680]] * len(before)
    assert browser.js(layouts) == before and all(pictures(browser))
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF") and browser.messages == []
