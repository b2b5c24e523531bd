"use strict";
// Draws the figures of the page, whose traces and layouts are Plotly's but for colours and measured values, and sorts,
// filters and saves tables.
(() => {
  // Plotly sets style attributes as text, which the page's policy refuses wherever it comes from. Set as properties of
  // an element, which only scripts can do, the same styles are allowed.
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };

  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const MOST_SHOWN = 8;
  const STEP = 200; // rows of the table that are shown at first
  const PRINT_WIDTH = 680; // px: what A4 and Letter have between the usual margins, whatever the window has
  // Nothing that leaves the page, and nothing that selects points, which there is no use for.
  const BUTTONS = {
    responsive: true, displaylogo: false, showSendToCloud: false,
    modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d"],
  };
  const darkWanted = matchMedia("(prefers-color-scheme: dark)");
  const narrow = () => innerWidth < 760;
  let printing = false;

  // By fraction digits; making one takes longer than using it a hundred times.
  const FORMS = [0, 1, 3].map((most) => new Intl.NumberFormat("en", { maximumFractionDigits: most }));

  function number(value) {
    const size = Math.abs(value);
    return FORMS[size >= 1000 ? 0 : size >= 10 ? 1 : 2].format(value);
  }

  // --- figures -------------------------------------------------------------------------------------------------------

  // Plotly takes some tags in texts for HTML of its own: text from files is never that.
  const TAGS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "\n": "<br>" };
  const plain = (text) => text.replace(/[&<>\n]/g, (sign) => TAGS[sign]);
  const escaped = (value) => (
    JSON.parse(JSON.stringify(value), (_, part) => (typeof part === "string" ? plain(part) : part)));

  function look() {
    const dark = at("theme").value === "auto" ? darkWanted.matches : at("theme").value === "dark";
    return data.themes[dark && !printing ? "dark" : "light"];
  }

  // What a trace or an axis shows of points: the number of a column of theirs.
  const columnOf = (item, chosen) => Number(item.figure === "figure" ? chosen.figure : item.figure);

  function hover(point, column) {
    const { label, median, low, high, repetitions, rows } = data.points;
    const ends = [low, high].map((values) => values[column][point]);
    const range = ends[0] === null ? "" : ` (${ends.map(number).join(" to ")})`;
    const n = repetitions[point];
    const of = rows[point] > n ? ` of ${rows[point]} rows` : "";
    const counts = n === null ? "" : `, ${n} repetition${n === 1 ? "" : "s"}${of}`;
    return plain(`${label[point]}\n${data.points.title[column]}: ${number(median[column][point])}${range}${counts}`);
  }

  // The values of a trace's points, with bars from low to high.
  function valuesOf(trace, column) {
    const [median, low, high] = ["median", "low", "high"].map((name) => data.points[name][column]);
    if (trace.type === "heatmap") {
      const each = (value, hole) => trace.of.map((row) => row.map((point) => (point < 0 ? hole : value(point))));
      return {
        z: each((point) => median[point], null), customdata: each((point) => hover(point, column), "not measured"),
        text: each((point) => (median[point] === null ? "\u00d7" : number(median[point])), ""),
        texttemplate: "%{text}", hovertemplate: "%{customdata}<extra></extra>", hoverongaps: false, xgap: 2, ygap: 2,
        colorscale: look().shades,
        colorbar: { title: { text: plain(data.points.title[column]), side: "right" } },
      };
    }
    const [along, across] = trace.along === "x" ? ["x", "y"] : ["y", "x"];
    const away = (ends) => trace.of.map((point) => (ends[point] === null ? 0 : Math.abs(ends[point] - median[point])));
    const bars = { type: "data", symmetric: false, array: away(high), arrayminus: away(low), thickness: 1.5, width: 4 };
    return {
      [along]: trace.of.map((point) => median[point]), [across]: trace.at, [`error_${along}`]: bars,
      text: trace.of.map((point) => hover(point, column)), hovertemplate: "%{text}<extra></extra>",
    };
  }

  function traceOf(trace, chosen) {
    const colours = look();
    const color = colours[trace.colour] ?? colours.lines[(trace.order ?? 0) % colours.lines.length];
    const made = { type: "scatter", ...escaped(trace), ...(trace.of && valuesOf(trace, columnOf(trace, chosen))) };
    if (made.type === "heatmap") return made;
    const hidden = trace.order >= MOST_SHOWN && chosen.show !== "all";
    const open = made.marker.symbol.endsWith("open");
    made.visible = hidden ? "legendonly" : true;
    made.line = { ...made.line, color };
    made.marker = { ...made.marker, color, line: { width: open ? 2 : 0, ...made.marker.line, color } };
    for (const bars of [made.error_x, made.error_y]) if (bars) bars.color = color;
    if (trace.hover) made.hovertemplate = `${trace.hover}<extra>%{fullData.name}</extra>`;
    return made;
  }

  function layoutOf(drawing, traces, chosen) {
    const colours = look();
    const width = printing ? { width: PRINT_WIDTH } : { autosize: true };
    const layout = { ...escaped(drawing.layout), template: colours.template, ...width };
    const side = narrow();
    const wide = layout.grid?.columns === 2 && !side;
    const entries = traces.filter((trace) => trace.name && trace.showlegend !== false).length;
    const labels = drawing.layout.yaxis.labels;
    layout.height += 22 * Math.ceil(Math.min(entries, 24) / (side ? 1 : 3));
    layout.legend = { y: side ? -0.1 : -0.22 };
    if (layout.grid?.columns === 2 && !wide) {
      Object.assign(layout.grid, { rows: 2, columns: 1 });
      layout.height += 360;
    }
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      const axis = layout[name];
      if (axis.figure !== undefined) axis.title = { text: plain(data.points.title[columnOf(axis, chosen)]) };
      if (chosen[axis.scale] === "log") Object.assign(axis, { type: "log", rangemode: "normal" });
      if (chosen[axis.scale] === "log") axis.title.text += ", logarithmic";
    }
    if (labels) {
      const ends = new RegExp(`(.{1,${side ? 24 : 64}})(?: +|$)`, "g");
      const names = labels.map((label) => plain(label.replace(ends, "$1\n").trim()));
      const most = Math.max(...names.map((name) => name.split("<br>").length));
      const tickvals = names.map((_, place) => names.length - 1 - place);
      layout.height += (side ? 60 : 0) + (12 + 14 * most) * names.length;
      Object.assign(layout.yaxis, { tickvals, ticktext: names, tickfont: { size: side ? 9 : 12 } });
      Object.assign(layout, { margin: { t: side ? 84 : 40 }, legend: { y: 1, yanchor: "bottom" } });
    }
    for (const shape of layout.shapes ?? []) shape.line.color = colours[shape.colour];
    return layout;
  }

  const isOf = (chosen) => (item) => Object.entries(item.when ?? {}).every(([name, value]) => chosen[name] === value);

  // A row for each value that is drawn.
  function* numbersOf(drawing, traces, chosen) {
    const { label, median, low, high, repetitions, rows } = data.points;
    const { yaxis, yaxis2 } = drawing.layout;
    for (const trace of traces.filter((one) => one.order !== undefined || one.type === "heatmap")) {
      const column = columnOf(trace, chosen);
      const title = data.points.title[column] ?? (trace.yaxis === "y2" ? yaxis2 : yaxis).title.text;
      const of = (point) => [title, ...[median, low, high].map((values) => values[column][point]),
        repetitions[point], rows[point], repetitions[point] === null ? "no" : "yes"];
      if (trace.type === "heatmap") {
        for (const [y, row] of trace.of.entries()) {
          for (const [x, point] of row.entries()) if (point >= 0) yield [trace.x[x], trace.y[y], ...of(point)];
        }
      } else if (trace.of) {
        for (const [place, point] of trace.of.entries()) {
          const first = yaxis.labels ? yaxis.labels[yaxis.labels.length - 1 - trace.at[place]] : trace.at[place];
          if (median[column][point] !== null) yield [first ?? label[point], trace.name, ...of(point)];
        }
      } else {
        for (const [place, value] of trace.y.entries()) {
          const first = trace.text?.[place] ?? +(trace.dx * place).toFixed(6);
          if (value !== null) yield [first, trace.name, title, value, ...(trace.each ?? [])];
        }
      }
    }
  }

  function draw(figure) {
    const drawing = data.figures[figure.dataset.figure];
    const chosen = Object.fromEntries([...figure.querySelectorAll("select")].map((one) => [one.name, one.value]));
    const traces = drawing.traces.filter(isOf(chosen));
    const layout = layoutOf(drawing, traces, chosen);
    for (const name of ["shapes", "annotations"]) layout[name] = layout[name]?.filter(isOf(chosen));
    const [note] = (drawing.notes ?? []).filter(isOf(chosen));
    const words = figure.querySelector(".note");
    words.hidden = !note;
    words.textContent = note?.text ?? "";
    figure.numbers = () => [...numbersOf(drawing, traces, chosen)];
    fill(figure);
    const plot = figure.querySelector(".plot");
    // Plotly takes a new width from the element when the window changes, and the height with it.
    plot.style.height = `${layout.height}px`;
    const options = { ...BUTTONS, toImageButtonOptions: { format: "svg", filename: drawing.name } };
    Plotly.react(plot, traces.map((trace) => traceOf(trace, chosen)), layout, options);
  }

  // The table of numbers below a figure, while it is open.
  function fill(figure) {
    const details = figure.querySelector("details");
    const { columns } = data.figures[figure.dataset.figure];
    const cellOf = (name) => (value) => (
      Object.assign(make(name, shown(value)), { className: typeof value === "number" ? "number" : "" }));
    const line = (name, values) => make("tr", ...values.map(cellOf(name)));
    const lines = details.open ? figure.numbers().map((row) => line("td", row)) : [];
    const head = line("th", columns);
    for (const heading of head.children) heading.scope = "col";
    const caption = make("caption", figure.querySelector("h3").textContent);
    details.querySelector("div").replaceChildren(make("table", caption, make("thead", head), make("tbody", ...lines)));
  }

  // --- tables --------------------------------------------------------------------------------------------------------

  function make(name, ...children) {
    const element = document.createElement(name);
    element.append(...children);
    return element;
  }

  const shown = (value) => (value === null || value === undefined ? "-" : String(value));
  const isNumber = (text) => /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);

  function csv(columns, rows) {
    const field = (value) => {
      // Texts that a spreadsheet would take for a formula become inert; numbers and dashes stay.
      const text = shown(value);
      const inert = text === "-" || isNumber(text) || !/^[=+\-@\t\r]/.test(text) ? text : `'${text}`;
      return /[",\r\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
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

  // A name without what makes no difference: the column's or the key's of files, as at the command line.
  const simple = (name) => name.toLowerCase().replace(/[^a-z0-9.%/]/g, "").replace(/%$/, "");

  function sortable(table) {
    const headings = [...table.tHead.rows[0].cells];
    const titles = headings.map((heading) => heading.textContent);
    const all = [...table.tBodies[0].rows].map((line) => {
      const texts = [...line.cells].map((cell) => cell.textContent);
      return { line, texts, text: texts.join("\u0001").toLowerCase(), bad: line.className === "bad" };
    });
    const numeric = titles.map((_, place) => all.every(({ texts }) => texts[place] === "-" || isNumber(texts[place])));
    for (const { line } of all) numeric.forEach((yes, place) => { if (yes) line.cells[place].className = "number"; });
    let limit = STEP;

    function test(word) {
      const [, name, sign, wanted] = /^([^:<>=]+)(:|<=|>=|<|>|=)(.+)$/.exec(word) ?? [];
      const meant = (title, place) => data.names[place].includes(simple(name)) || title.toLowerCase().startsWith(name);
      const place = name ? titles.findIndex(meant) : -1;
      if (place < 0) return ({ text }) => text.includes(word);
      return ({ texts }) => {
        const [text, value, size] = [texts[place].toLowerCase(), Number(texts[place]), Number(wanted)];
        if (sign === ":") return text.includes(wanted);
        if (sign === "=") return text === wanted;
        return { "<": value < size, ">": value > size, "<=": value <= size, ">=": value >= size }[sign];
      };
    }

    // Numbers by size, words by letters, missing values last in both directions.
    function order(place, up) {
      const words = new Intl.Collator("en", { numeric: true });
      const compare = numeric[place] ? (a, b) => a - b : words.compare;
      return ({ texts: { [place]: a } }, { texts: { [place]: b } }) => (
        a === "-" || b === "-" ? (a === "-") - (b === "-") : (up ? 1 : -1) * compare(a, b));
    }

    const kept = () => {
      const tests = at("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean).map(test);
      return all.filter((row) => tests.every((one) => one(row)) && !(at("only").checked && row.bad));
    };

    function show() {
      const rows = kept();
      table.tBodies[0].replaceChildren(...rows.slice(0, limit).map(({ line }) => line));
      const cut = rows.length > limit ? `, the first ${limit} are shown` : "";
      at("found").textContent = `${rows.length} of ${all.length} rows${cut}`;
      at("more").hidden = rows.length <= limit;
    }

    headings.forEach((heading, place) => {
      const button = Object.assign(make("button", titles[place]), { type: "button" });
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = heading.getAttribute("aria-sort") !== "ascending";
        all.sort(order(place, up));
        for (const other of headings) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", up ? "ascending" : "descending");
        show();
      });
    });
    const anew = (most) => () => { limit = most; show(); };
    for (const name of ["filter", "only"]) at(name).addEventListener("input", anew(STEP));
    at("more").addEventListener("click", anew(Infinity));
    at("save").addEventListener("click", () => save("rows", titles, kept().map(({ texts }) => texts)));
    show();
  }

  // --- the page ------------------------------------------------------------------------------------------------------

  const figures = [...document.querySelectorAll("figure[data-figure]")];
  const redraw = () => figures.forEach(draw);
  for (const section of document.querySelectorAll("main > section")) {
    const link = Object.assign(make("a", section.querySelector("h2").textContent), { href: `#${section.id}` });
    at("contents").append(make("li", link));
  }
  at("theme").addEventListener("input", () => {
    document.documentElement.dataset.theme = at("theme").value;
    redraw();
  });
  darkWanted.addEventListener("change", redraw);
  at("print").addEventListener("click", () => print());
  for (const [event, on] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      printing = on;
      redraw();
    });
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if ((width < 760) !== (innerWidth < 760)) redraw();
    width = innerWidth;
  });
  sortable(document.querySelector("#rows table"));
  // All of them before the page counts as loaded: screenshots of the whole page and prints wait for no scrolling.
  for (const figure of figures) {
    const { name, columns } = data.figures[figure.dataset.figure];
    figure.querySelector(".plot").replaceChildren();
    figure.querySelector(":scope > button").addEventListener("click", () => save(name, columns, figure.numbers()));
    figure.querySelector("details").addEventListener("toggle", () => fill(figure));
    for (const select of figure.querySelectorAll("select")) select.addEventListener("input", () => draw(figure));
    draw(figure);
  }
  document.documentElement.dataset.drawn = String(Math.round(performance.now()));
})();
