"use strict";
// Tables of numbers: that of all rows, which sorts and filters, those behind figures, and what is saved of them as CSV.
const Table = (() => {
  const STEP = 200;

  function make(name, ...children) {
    const element = document.createElement(name);
    element.append(...children);
    return element;
  }

  function button(text, action) {
    const element = make("button", text);
    element.type = "button";
    element.addEventListener("click", action);
    return element;
  }

  const shown = (value) => (value === null || value === undefined ? "-" : String(value));

  // A name without what makes no difference: the column's or the key's of files, as at the command line.
  const plain = (name) => name.toLowerCase().replace(/[^a-z0-9.%/]/g, "").replace(/%$/, "");

  // What a spreadsheet would take for a formula is text; numbers and what is missing stay.
  function inert(text) {
    const stays = text === "-" || /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || !/^[=+\-@\t\r]/.test(text);
    return stays ? text : `'${text}`;
  }

  function csv(columns, rows) {
    const field = (value) => {
      const text = inert(shown(value));
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [columns, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
  }

  function save(name, columns, rows) {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([csv(columns, rows)], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function body(rows, numeric) {
    const lines = document.createDocumentFragment();
    for (const row of rows) {
      const line = make("tr");
      row.forEach((value, place) => {
        const cell = make("td", shown(value));
        if (numeric?.[place]) cell.className = "number";
        line.append(cell);
      });
      lines.append(line);
    }
    return lines;
  }

  function simple(caption, columns, rows) {
    const head = make("tr", ...columns.map((column) => Object.assign(make("th", column), { scope: "col" })));
    const numeric = columns.map((_, i) => rows.every((row) => typeof row[i] === "number" || row[i] === null));
    const lines = make("tbody", body(rows, numeric));
    const table = make("table", make("caption", caption), make("thead", head), lines);
    const wide = make("div", table);
    Object.assign(wide, { className: "wide", tabIndex: 0 });
    return wide;
  }

  // Numbers by size, words by letters, what is missing last whichever way round.
  function compare(a, b, numeric) {
    if (a === null || b === null) return a === b ? 0 : a === null ? Infinity : -Infinity;
    return numeric ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function rows(place, data) {
    const { columns, values, total } = data;
    const all = (values[0] ?? []).map((_, index) => values.map((column) => column[index]));
    const texts = all.map((row) => row.map(shown).join("\u0001").toLowerCase());
    const numeric = columns.map((column) => column.number);
    const counts = columns.findIndex((column) => column.title === "counts");
    let sorted = null;
    let up = true;
    let limit = STEP;

    const placeholder = "words, or column:word, or column>5";
    const words = Object.assign(make("input"), { type: "search", id: "filter", placeholder });
    const only = Object.assign(make("input"), { type: "checkbox", id: "only" });
    const status = make("p");
    status.setAttribute("role", "status");
    const more = button("Show all of them", () => { limit = Infinity; show(); });
    const saving = button("Save these as CSV", () => save("rows", columns.map((column) => column.title), found()));
    const head = make("tr");
    const lines = make("tbody");
    const caption = make("caption", total > all.length ? `The first ${all.length} of ${total} rows` : "All rows");
    const table = make("table", caption, make("thead", head), lines);
    const wide = Object.assign(make("div", table), { className: "wide", tabIndex: 0 });
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", "Table of rows");

    columns.forEach((column, place) => {
      const heading = make("th", button(column.title, () => {
        up = sorted === place ? !up : true;
        sorted = place;
        show();
      }));
      heading.scope = "col";
      head.append(heading);
    });

    function tests() {
      return words.value.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
        const [, name, sign, wanted] = /^([^:<>=]+)(:|<=|>=|<|>|=)(.+)$/.exec(word) ?? [];
        const meant = (column) => column.names.includes(plain(name)) || column.title.toLowerCase().startsWith(name);
        const place = name ? columns.findIndex(meant) : -1;
        if (place < 0) return (row, text) => text.includes(word);
        const size = Number(wanted);
        if (sign === ":") return (row) => shown(row[place]).toLowerCase().includes(wanted);
        if (sign === "=") return (row) => shown(row[place]).toLowerCase() === wanted;
        const than = {
          "<": (a) => a < size, ">": (a) => a > size, "<=": (a) => a <= size, ">=": (a) => a >= size,
        }[sign];
        return (row) => row[place] !== null && than(Number(row[place]));
      });
    }

    function found() {
      const wanted = tests();
      const kept = all.filter((row, index) => (
        wanted.every((test) => test(row, texts[index])) && (!only.checked || row[counts] === "yes")));
      if (sorted !== null) {
        kept.sort((a, b) => {
          const order = compare(a[sorted], b[sorted], numeric[sorted]);
          return Math.abs(order) === Infinity || up ? order : -order;
        });
      }
      return kept;
    }

    function show() {
      const kept = found();
      lines.replaceChildren(body(kept.slice(0, limit), numeric));
      if (counts >= 0) {
        for (const line of lines.children) {
          if (line.children[counts].textContent !== "yes") line.className = "bad";
        }
      }
      [...head.children].forEach((heading, place) => {
        if (place === sorted) heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        else heading.removeAttribute("aria-sort");
      });
      const cut = kept.length > limit ? `, the first ${limit} are shown` : "";
      status.textContent = `${kept.length} of ${all.length} rows${cut}`;
      more.hidden = kept.length <= limit;
    }

    for (const control of [words, only]) control.addEventListener("input", () => { limit = STEP; show(); });
    const labels = [make("label", "Filter ", words), make("label", only, " only rows that count")];
    const controls = make("div", ...labels, saving, more);
    controls.className = "controls";
    place.append(controls, status, wide);
    show();
  }

  return { button, csv, make, rows, save, simple };
})();
