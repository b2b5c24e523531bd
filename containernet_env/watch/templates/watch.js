"use strict";
// Shows what the server tells of a run. Whatever it says of files is set as text and never as HTML.
(() => {
  const at = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [600, 220, 62, 20, 10];
  const MOST_MARKS = 60;
  let state = null;
  let over = false;

  function make(name, ...children) {
    const element = document.createElement(name);
    element.append(...children);
    return element;
  }

  function draw(name, attributes, ...children) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function number(value) {
    if (value === null || value === undefined) return "-";
    const size = Math.abs(value);
    return value.toLocaleString("en", { maximumFractionDigits: size >= 1000 ? 0 : size >= 10 ? 1 : 3 });
  }

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
    return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  }

  const counts = (row) => row.valid === "yes" && !row.error;

  function mark(kind, row, x, y, title) {
    const shapes = {
      first: () => draw("circle", { cx: x, cy: y, r: 4 }),
      second: () => draw("path", { d: `M${x} ${y - 5}L${x + 5} ${y + 4}L${x - 5} ${y + 4}Z` }),
      cross: () => draw("path", { d: `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x + 4} ${y - 4}L${x - 4} ${y + 4}` }),
    };
    const parts = counts(row) ? [kind] : kind === "second" ? ["second", "cross"] : ["cross"];
    return parts.map((part) => {
      const shape = shapes[part]();
      shape.setAttribute("class", part);
      shape.append(draw("title", {}, title));
      return shape;
    });
  }

  function chart(title, unit, series, rows) {
    const values = series.flatMap(([, key]) => rows.map((row) => row[key])).filter((value) => value > 0);
    const low = values.length ? Math.floor(Math.log10(Math.min(...values))) : 0;
    const high = values.length ? Math.ceil(Math.log10(Math.max(...values)) + 1e-9) : 1;
    const top = high > low ? high : low + 1;
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (Math.log10(value) - low) / (top - low));
    const x = (place) => LEFT + 10 + (WIDTH - LEFT - 20) * (rows.length > 1 ? place / (rows.length - 1) : 0.5);
    const parts = [];
    for (let decade = low; decade <= top; decade += 1) {
      const height = y(10 ** decade);
      parts.push(draw("line", { x1: LEFT, x2: WIDTH, y1: height, y2: height, class: "line" }));
      parts.push(draw("text", { x: LEFT - 6, y: height + 4, "text-anchor": "end" }, number(10 ** decade)));
    }
    rows.forEach((row, place) => series.forEach(([name, key, kind]) => {
      const words = `${row.number}: ${row.name}\n${name} ${number(row[key])} ${unit}`;
      if (row[key] > 0) parts.push(...mark(kind, row, x(place), y(row[key]), words));
    }));
    if (rows.length) {
      parts.push(draw("text", { x: x(0), y: HEIGHT - 4, "text-anchor": "middle" }, `row ${rows[0].number}`));
      const last = `row ${rows[rows.length - 1].number}`;
      if (rows.length > 1) parts.push(draw("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, last));
    }
    const words = `${title} of the last rows; the table below has the numbers`;
    const seen = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words };
    const picture = draw("svg", seen, ...parts);
    return make("figure", make("h3", `${title}, logarithmic`), picture);
  }

  const COLUMNS = [
    ["row", (row) => row.number, true], ["what", (row) => row.name], ["repetition", (row) => row.repetition, true],
    ["requests/s", (row) => number(row.requests_per_s), true], ["p50 (ms)", (row) => number(row.p50_ms), true],
    ["p99 (ms)", (row) => number(row.p99_ms), true], ["errors", (row) => row.errors, true],
    ["valid", (row) => row.valid],
    ["why", (row) => [row.error, row.reasons, row.advice].filter(Boolean).join("; ") || "-"],
  ];

  function table(rows, count) {
    const head = make("tr", ...COLUMNS.map(([title]) => Object.assign(make("th", title), { scope: "col" })));
    const lines = rows.map((row) => {
      const line = make("tr", ...COLUMNS.map(([, of, numeric]) => (
        Object.assign(make("td", String(of(row))), { className: numeric ? "number" : "" }))));
      if (!counts(row)) line.className = "bad";
      return line;
    });
    const which = rows.length < count ? `The last ${rows.length} of ${count} rows` : `All ${count} rows`;
    const caption = make("caption", which);
    return make("table", caption, make("thead", head), make("tbody", ...lines));
  }

  function clock() {
    if (!state) return;
    const left = state.end_s === null ? "" : `, about ${duration(state.end_s - Date.now() / 1000)} left`;
    const noun = state.what === "sweep" ? "measurements" : "scenarios";
    at("standing").textContent = state.all === null ? `${state.done} ${noun} done` :
      `${state.done} of ${state.all} ${noun} done${left}`;
    if (over) return;
    const began = state.now_began_s === null ? "" : `, for ${duration(Date.now() / 1000 - state.now_began_s)}`;
    at("now").textContent = state.now === null ? (state.step || "-") : `${state.now}${began}`;
  }

  function show() {
    const last = state.rows.slice(-MOST_MARKS);
    at("course").textContent = state.told;
    at("problem").hidden = state.problem === null;
    at("problem").textContent = state.problem ?? "";
    at("progress").max = Math.max(1, state.all ?? 1);
    at("progress").value = state.done;
    at("step").textContent = state.run === null ? "" : `run ${state.run}${state.now === null ? "" : `: ${state.step}`}`;
    at("charts").replaceChildren(
      chart("Requests/s", "/s", [["", "requests_per_s", "first"]], last),
      chart("Latency: p50 \u25cf and p99 \u25b3 (ms)", "ms",
        [["p50", "p50_ms", "first"], ["p99", "p99_ms", "second"]], last));
    const place = at("rows").scrollTop;
    at("rows").replaceChildren(table([...state.rows].reverse(), state.row_count));
    at("rows").scrollTop = place;
    clock();
  }

  const source = new EventSource("events");
  source.addEventListener("message", (event) => {
    state = JSON.parse(event.data);
    over = state.course !== "on";
    if (over) {
      source.close();
      at("now").textContent = state.course === "killed" ? "\u00d7 killed" : "ended";
      at("course").className = state.course === "killed" ? "problem" : "lead";
    }
    show();
    document.documentElement.dataset.drawn = String(Math.round(performance.now()));
  });
  source.addEventListener("error", () => {
    if (over) return;
    at("course").textContent =
      "the connection is lost: containernet-env watch was ended, or its pages are too many; trying again";
  });
  setInterval(clock, 1000);
})();
