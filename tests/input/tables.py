"""Results files, and what is not quite one."""

from __future__ import annotations

from hypothesis import strategies as st

from containernet_env.results.columns import COLUMNS, SEED_COLUMNS
from tests.input.texts import spoilt

_CELLS = (
    *("1", "0", "-", "", "0.01", "1e999", "-1e999", "nan", "inf", "-inf", "9" * 30, "9" * 400, "1_000", "0x10"),
    *('"', '"a', 'a"b', '""', '"a,b"', "'", "\\", "[red]", "[/]", "=1+1", "yes", "True", "None", "NA", "1,5", " 1 "),
    *("\t", "\r", "\x00", "\x1b[31m", "\uff11", "\u202e", "\u2028", "\x85", "x" * 300, "x" * 140_000),
    "1" + "0" * 320 + ".5",
)
_HEADERS = (",".join(COLUMNS), ",".join(SEED_COLUMNS))
_FOREIGN = (
    *("a,b,c", "", "{}", _HEADERS[0].replace(",", ";"), _HEADERS[1].upper(), _HEADERS[0] + ",x", _HEADERS[1][:-1]),
    *('"' + _HEADERS[1], _HEADERS[0] + " ", "\ufeff" + _HEADERS[0], "x," * 100_000, "x" * 300_000),
)
# Strategies that are the same each time are made once: hypothesis examines each new one.
_ENDS = st.sampled_from(("\n", "\n", "\n", "\r\n", "\r", "", "\n\n", "\x0b"))
_FEW_CELLS = st.lists(st.sampled_from(_CELLS) | st.text(max_size=4), min_size=1, max_size=4)


@st.composite
def _rows(draw: st.DrawFn, columns: int) -> str:
    count = draw(st.sampled_from((columns, columns, columns, columns - 1, columns + 1, 1, 100_000)))
    # A few cells that repeat: drawing each of 70 would make the generator what is tested.
    few = draw(_FEW_CELLS)
    if count > columns + 1:
        few = ["1"]
    return ",".join(few[index % len(few)] for index in range(count)) + draw(_ENDS)


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a file, and options of `results`."""
    header = draw(st.sampled_from((*_HEADERS, *_HEADERS, draw(st.sampled_from(_FOREIGN)))))
    columns = header.count(",") + 1 if header in _HEADERS else 3
    rows = draw(st.lists(_rows(columns), max_size=4))
    text = header + draw(_ENDS) + "".join(rows)
    content = draw(spoilt(text.encode(errors="surrogatepass"), draw(st.sampled_from((0, 0, 2)))))
    by = draw(st.sampled_from(((), (), ("--by", "TestType"), ("--by", "50%", "--by", "Error"), ("--by", "x"))))
    return content, (*by, *draw(st.sampled_from(((), (), ("--json",), ("--csv",)))))
