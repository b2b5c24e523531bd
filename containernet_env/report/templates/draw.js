"use strict";
// The figures: each kind is a function of the data, its place in it and what was chosen, and gives Plotly's traces and
// layout, the table of numbers behind it, and the controls that it has.
const Draw = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { cells, figures, bad } = data;
  const BAD = "does not count";
  const MOST_SHOWN = 8;
  const plain = Look.plain;
  const narrow = () => innerWidth < 760;
  const latencies = () => figures.map((figure, index) => [index, figure.name]).slice(1)
    .filter(([index]) => cells.median[index].some((value) => value !== null) ||
      bad.some((row) => row[1][index] !== null));

  function bars(figure, indices) {
    const away = (side) => indices.map((index) => {
      const [median, end] = [cells.median[figure][index], cells[side][figure][index]];
      return median === null || end === null ? 0 : Math.abs(end - median);
    });
    return { type: "data", symmetric: false, array: away("high"), arrayminus: away("low"), thickness: 1.5, width: 4 };
  }

  function hover(index, figure) {
    const [median, low, high] = ["median", "low", "high"].map((name) => cells[name][figure][index]);
    const range = low === null ? "" : ` (${number(low)} to ${number(high)})`;
    const [n, rows] = countsOf(index);
    return `${plain(cells.label[index])}<br>${plain(figures[figure].title)}: ${number(median)}${range}, ` +
      `${n} ${n === 1 ? "repetition" : "repetitions"}${rows > n ? ` of ${rows} rows` : ""}`;
  }

  // By fraction digits; making one takes longer than using it a hundred times.
  const FORMS = Object.fromEntries([0, 1, 3].map((most) => [
    most, new Intl.NumberFormat("en", { maximumFractionDigits: most }),
  ]));

  function number(value) {
    if (value === null || value === undefined) return "-";
    const size = Math.abs(value);
    return FORMS[size >= 1000 ? 0 : size >= 10 ? 1 : 3].format(value);
  }

  const COUNTS = ["repetitions", "rows"];

  function countsOf(cell) {
    return [cells.n[cell], cells.rows[cell]];
  }

  function numbers(name, columns, rows) {
    return { name, columns, rows };
  }

  function spreadColumns(title) {
    return [`${title}, median`, `${title}, low`, `${title}, high`];
  }

  function spreadOf(figure, index) {
    return [cells.median[figure][index], cells.low[figure][index], cells.high[figure][index]];
  }

  const LOGARITHMIC = ", logarithmic";

  function axisOf(axis, log) {
    if (!axis.numbers) {
      const categoryarray = axis.ticks.map(plain);
      return Look.axis(plain(axis.title), { type: "category", categoryorder: "array", categoryarray });
    }
    const few = axis.numbers.length <= 12 ? { tickvals: axis.numbers, ticktext: axis.ticks.map(plain) } : {};
    return Look.axis(plain(axis.title) + (log ? LOGARITHMIC : ""), { type: log ? "log" : "linear", ...few });
  }

  function lines(index, choice) {
    const { axis, lines: all } = data.lines[index];
    const options = latencies();
    const latency = Number(choice.latency ?? options[0]?.[0] ?? 1);
    const wanted = choice.show ?? "first";
    const log = axis.positive && (choice.x ?? data.x_scale) === "log";
    const at = (place) => (axis.numbers ? axis.numbers[place] : plain(axis.ticks[place]));
    const traces = [];
    const rows = [];
    let crosses = false;
    all.forEach((line, order) => {
      const { colour, marker, dash } = Look.line(order);
      const label = plain(line.label || "all");
      const visible = wanted === "all" || order < MOST_SHOWN ? true : "legendonly";
      const of = line.points.map(([, cell]) => cell);
      [0, latency].forEach((figure, panel) => {
        const suffix = panel ? String(panel + 1) : "";
        traces.push({
          type: "scatter", mode: "lines+markers", name: label, legendgroup: label, showlegend: !panel, visible,
          x: line.points.map(([place]) => at(place)), y: of.map((cell) => cells.median[figure][cell]),
          error_y: { ...bars(figure, of), color: colour }, text: of.map((cell) => hover(cell, figure)),
          hovertemplate: "%{text}<extra></extra>", line: { color: colour, dash, width: 2 },
          marker: { symbol: marker, size: 8, color: colour }, xaxis: `x${suffix}`, yaxis: `y${suffix}`,
        });
        const single = line.points.flatMap(([place, cell]) => bad
          .filter((row) => row[0] === cell && row[1][figure] !== null).map((row) => [place, row]));
        if (!single.length) return;
        traces.push({
          type: "scatter", mode: "markers", name: BAD, legendgroup: label, visible, showlegend: false,
          x: single.map(([place]) => at(place)), y: single.map(([, row]) => row[1][figure]),
          text: single.map(([, row]) => `${plain(cells.label[row[0]])}<br>${number(row[1][figure])}: ${plain(row[2])}`),
          hovertemplate: "%{text}<extra></extra>",
          marker: { symbol: "x-thin-open", size: 9, color: colour, line: { width: 2 } },
          xaxis: `x${suffix}`, yaxis: `y${suffix}`,
        });
        crosses = true;
      });
      line.points.forEach(([place, cell]) => rows.push(
        [axis.ticks[place], line.label, ...countsOf(cell), ...spreadOf(0, cell), ...spreadOf(latency, cell)]));
    });
    if (crosses) traces.push(legendCross());
    const side = narrow();
    const layout = Look.layout({
      height: (side ? 760 : 400) + 22 * Math.ceil(Math.min(all.length, 24) / (side ? 1 : 3)),
      grid: { rows: side ? 2 : 1, columns: side ? 1 : 2, pattern: "independent", xgap: 0.14, ygap: 0.2 },
      xaxis: axisOf(axis, log), xaxis2: axisOf(axis, log),
      yaxis: Look.axis(plain(figures[0].title), { rangemode: "tozero" }),
      yaxis2: scaled(plain(figures[latency].title), choice),
    });
    layout.legend.y = side ? -0.1 : -0.22;
    const controls = [{ name: "latency", label: "Latency", options, value: latency }, scaleControl(choice)];
    if (axis.positive) {
      controls.push({ name: "x", label: "Horizontal scale", options: SCALES, value: log ? "log" : "linear" });
    }
    if (all.length > MOST_SHOWN) {
      controls.push({ name: "show", label: `Lines (${all.length})`, value: wanted,
        options: [["first", `the first ${MOST_SHOWN}, others by the legend`], ["all", "all"]] });
    }
    const spreads = [figures[0].title, figures[latency].title].flatMap(spreadColumns);
    const columns = [axis.title, "line", ...COUNTS, ...spreads];
    return { traces, layout, controls, numbers: numbers("axis", columns, rows) };
  }

  function legendCross() {
    const color = Look.paper().muted;
    return {
      type: "scatter", mode: "markers", x: [null], y: [null], name: `${BAD}: in no median`, hoverinfo: "skip",
      marker: { symbol: "x-thin-open", size: 9, color, line: { width: 2, color } },
    };
  }

  // A vertical axis in the scale that was chosen.
  function scaled(title, choice, more) {
    const [words, form] = choice.scale === "log" ? [LOGARITHMIC, { type: "log" }] : ["", { rangemode: "tozero" }];
    return Look.axis(title + words, { ...form, ...more });
  }

  const SCALES = [["linear", "linear"], ["log", "logarithmic"]];

  function scaleControl(choice) {
    return { name: "scale", label: "Latency scale", value: choice.scale ?? "linear", options: SCALES };
  }

  function figureControl(value) {
    return { name: "figure", label: "Figure", options: figures.map((one, i) => [i, one.name]), value };
  }

  function grid(index, choice) {
    const { x, y, panels } = data.grids[index];
    const figure = Number(choice.figure ?? latencies()[0]?.[0] ?? 0);
    const panel = Number(choice.panel ?? 0);
    const table = panels[panel].cells;
    const values = table.map((row) => row.map((cell) => (cell < 0 ? null : cells.median[figure][cell])));
    const words = table.map((row) => row.map((cell) => {
      if (cell < 0) return "";
      return cells.median[figure][cell] === null ? "\u00d7" : number(cells.median[figure][cell]);
    }));
    const dark = Look.theme() === "dark";
    const shades = dark ? [[0, "#1d2a3a"], [1, "#56b4e9"]] : [[0, "#eef5fa"], [1, "#0072b2"]];
    const traces = [{
      type: "heatmap", x: x.ticks.map(plain), y: y.ticks.map(plain), z: values, colorscale: shades,
      xgap: 2, ygap: 2, hoverongaps: false,
      customdata: table.map((row) => row.map((cell) => (cell < 0 ? "not measured" : hover(cell, figure)))),
      hovertemplate: "%{customdata}<extra></extra>",
      colorbar: { title: { text: plain(figures[figure].title), side: "right" } },
    }];
    const known = values.flat().filter((value) => value !== null);
    const middle = (Math.min(...known) + Math.max(...known)) / 2;
    const strong = dark ? "#0b1420" : "#ffffff";
    const annotations = words.flatMap((row, j) => row.map((text, i) => ({
      x: i, y: j, text, showarrow: false,
      font: { size: 12, color: values[j][i] !== null && values[j][i] > middle ? strong : Look.paper().text },
    }))).filter((one) => one.text);
    const layout = Look.layout({
      height: 160 + 44 * y.ticks.length, annotations,
      xaxis: Look.axis(plain(x.title), { type: "category" }), yaxis: Look.axis(plain(y.title), { type: "category" }),
    });
    const controls = [figureControl(figure)];
    if (panels.length > 1) {
      controls.push({ name: "panel", label: "Of", options: panels.map((one, i) => [i, one.label]), value: panel });
    }
    const rows = table.flatMap((row, j) => row.flatMap((cell, i) => (cell < 0 ? [] :
      [[x.ticks[i], y.ticks[j], ...countsOf(cell), ...spreadOf(figure, cell)]])));
    const columns = [x.title, y.title, ...COUNTS, ...spreadColumns(figures[figure].title)];
    return { traces, layout, controls, numbers: numbers("grid", columns, rows) };
  }

  function curves(index, choice) {
    const all = data.curves;
    const spread = data.percents.map((percent) => 100 / (100 - percent));
    const rows = [];
    const traces = all.map((curve, order) => {
      const { colour, marker, dash } = Look.line(order);
      curve.ms.forEach((value, place) => {
        if (value === null) return;
        const counts = [curve.repetitions, curve.rows, curve.valid ? "yes" : "no"];
        rows.push([cells.label[curve.cell], data.percents[place], value, ...counts, curve.source]);
      });
      return {
        type: "scatter", mode: "lines+markers", name: plain(cells.label[curve.cell]) + (curve.valid ? "" : ` (${BAD})`),
        x: spread, y: curve.ms, visible: choice.show === "all" || order < MOST_SHOWN ? true : "legendonly",
        text: data.percents.map((percent) => `${percent} %`),
        hovertemplate: "%{text}: %{y:.3~f} ms<extra>%{fullData.name}</extra>",
        line: { color: colour, dash, width: 2 }, connectgaps: true,
        marker: {
          symbol: curve.valid ? marker : "x-thin-open", size: 7, color: colour,
          line: { width: curve.valid ? 0 : 2, color: colour },
        },
      };
    });
    const ticks = [10, 50, 90, 99, 99.9, 99.99, 99.999];
    const used = data.percents.map((percent, place) => [percent, place])
      .filter(([percent, place]) => ticks.includes(percent) && all.some((curve) => curve.ms[place] !== null));
    const layout = Look.layout({
      height: 460 + 22 * Math.ceil(Math.min(all.length, 24) / (narrow() ? 1 : 2)),
      xaxis: Look.axis("share of requests, by the logarithm of 1 / (1 - share)", {
        type: "log",
        tickvals: used.map(([, place]) => spread[place]),
        ticktext: used.map(([percent]) => `${percent} %`),
      }),
      yaxis: scaled("latency (ms)", choice),
    });
    const controls = [scaleControl(choice)];
    if (all.length > MOST_SHOWN) {
      controls.push({ name: "show", label: `Curves (${all.length})`, value: choice.show ?? "first",
        options: [["first", `the first ${MOST_SHOWN}, others by the legend`], ["all", "all"]] });
    }
    const columns = ["configuration", "percent", "latency (ms)", ...COUNTS, "counts", "from"];
    return { traces, layout, controls, numbers: numbers("percentiles", columns, rows) };
  }

  // A label in lines that leave room for the figure beside it.
  function wrapped(label) {
    const most = narrow() ? 24 : 64;
    const lines = [""];
    for (const word of String(label).split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length >= most) lines.push(word);
      else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    return lines;
  }

  // Names beside a horizontal scale: one line of the picture for each configuration.
  function beside(labels, series, title) {
    const place = labels.map((_, index) => labels.length - 1 - index);
    const traces = series.map(({ name, cells: of, figure, order, symbol, values }) => {
      const { colour } = Look.line(order);
      const x = values ?? of.map((cell) => cells.median[figure][cell]);
      return {
        type: "scatter", mode: "markers", name, x, y: place, hovertemplate: "%{text}<extra></extra>",
        text: of.map((cell, i) => (
          values ? `${plain(labels[i])}<br>${name}: ${number(values[i])} ms` : hover(cell, figure))),
        error_x: values ? undefined : { ...bars(figure, of), color: colour },
        marker: {
          symbol, size: symbol === "line-ns-open" ? 16 : 10, color: colour,
          line: { width: symbol.endsWith("open") ? 3 : 0, color: colour },
        },
      };
    });
    const names = labels.map(wrapped);
    const most = Math.max(1, ...names.map((lines) => lines.length));
    const layout = Look.layout({
      height: (narrow() ? 190 : 130) + (12 + 14 * most) * labels.length,
      margin: { l: 60, r: 16, t: narrow() ? 84 : 40, b: 48 },
      xaxis: Look.axis(title, { rangemode: "tozero" }),
      yaxis: Look.axis("", {
        tickvals: place, ticktext: names.map((lines) => lines.map(plain).join("<br>")),
        range: [-0.7, labels.length - 0.3], tickfont: { size: narrow() ? 9 : 12 },
      }),
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
    });
    return { traces, layout };
  }

  function pairs(index, choice) {
    const all = data.pairs;
    const figure = Number(choice.figure ?? latencies()[0]?.[0] ?? 1);
    const labels = all.map((pair) => pair.label);
    const drawn = beside(labels, [
      { name: "linearizable", cells: all.map((pair) => pair.l), figure, order: 0, symbol: "circle" },
      { name: "serializable", cells: all.map((pair) => pair.s), figure, order: 1, symbol: "diamond-open" },
    ], plain(figures[figure].title));
    const singles = all.flatMap((pair, i) => ["l", "s"].flatMap((kind) => bad
      .filter((row) => row[0] === pair[kind] && row[1][figure] !== null).map((row) => [i, kind, row])));
    if (singles.length) {
      drawn.traces.push({
        type: "scatter", mode: "markers", name: `${BAD}: in no median`, x: singles.map(([, , row]) => row[1][figure]),
        y: singles.map(([i]) => all.length - 1 - i), hovertemplate: "%{text}<extra></extra>",
        text: singles.map(([, kind, row]) => (
          `${kind === "l" ? "linearizable" : "serializable"}: ${number(row[1][figure])}, ${plain(row[2])}`)),
        marker: {
          symbol: "x-thin-open", size: 10, line: { width: 2 },
          color: singles.map(([, kind]) => Look.line(kind === "l" ? 0 : 1).colour),
        },
      });
    }
    const title = figures[figure].title;
    const numbersOf = (cell) => [...countsOf(cell), ...spreadOf(figure, cell)];
    const columnsOf = (kind) => [...COUNTS.map((word) => `${kind} ${word}`), ...spreadColumns(`${kind} ${title}`)];
    const rows = all.map((pair) => [pair.label, ...numbersOf(pair.l), ...numbersOf(pair.s)]);
    const columns = ["reads", ...columnsOf("linearizable"), ...columnsOf("serializable")];
    const controls = [figureControl(figure)];
    return { ...drawn, controls, numbers: numbers("consistency", columns, rows) };
  }

  function floors() {
    const median = figures.findIndex((figure) => figure.name === "p50");
    const of = data.floors.map(([cell]) => cell);
    const labels = of.map((cell) => cells.label[cell]);
    const drawn = beside(labels, [
      { name: "measured", cells: of, figure: median, order: 0, symbol: "circle" },
      { name: "floor", cells: of, order: 1, symbol: "line-ns-open", values: data.floors.map(([, floor]) => floor) },
    ], plain(figures[median].title));
    const rows = data.floors.map(([cell, floor]) => (
      [cells.label[cell], ...countsOf(cell), floor, ...spreadOf(median, cell)]));
    const columns = ["configuration", ...COUNTS, "floor (ms)", ...spreadColumns(figures[median].title)];
    return { ...drawn, controls: [], numbers: numbers("floor", columns, rows) };
  }

  function timelines(index, choice) {
    const all = data.timelines;
    const which = Number(choice.row ?? 0);
    const one = all[which];
    const x = one.ok.map((_, step) => step * one.step_s);
    const perSecond = (counts) => counts.map((count) => count / one.step_s);
    const look = Look.paper();
    const series = [
      ["succeeded", perSecond(one.ok), "", 0, "solid"],
      ...(one.bad.length ? [["failed or unknown", perSecond(one.bad), "", 1, "dot"]] : []),
      ["p50", one.p50, "2", 2, "solid"],
      ...(one.p99.length ? [["p99", one.p99, "2", 3, "dash"]] : []),
    ];
    const traces = series.map(([name, y, suffix, order, dash]) => ({
      type: "scatter", mode: suffix || x.length === 1 ? "lines+markers" : "lines",
      name, x, y, xaxis: "x", yaxis: `y${suffix}`,
      line: { color: Look.line(order).colour, dash, width: 2, shape: suffix ? "linear" : "hv" },
      marker: { symbol: Look.line(order).marker, size: x.length > 100 ? 3 : 5 },
      hovertemplate: `%{x:.1f} s: %{y:,.4~r}${suffix ? " ms" : " requests/s"}<extra>${name}</extra>`,
    }));
    const dashes = { struck: "dash", undone: "dot", noticed: "dashdot" };
    const shapes = one.events.map(([at, , kind]) => ({
      type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1,
      line: { color: kind === "struck" ? look.bad : look.muted, dash: dashes[kind], width: 1.5 },
    }));
    const annotations = one.events.map(([at, text], order) => ({
      x: at, yref: "paper", y: 1.02 + 0.06 * (order % 3), yanchor: "bottom", xanchor: "left",
      text: plain(text.slice(0, 60)),
      showarrow: false, font: { size: 11, color: look.text },
    }));
    const layout = Look.layout({
      height: 540, shapes, annotations, margin: { l: 60, r: 16, t: one.events.length ? 84 : 12, b: 48 },
      xaxis: Look.axis("seconds since the start of the load", { anchor: "y2", rangemode: "tozero" }),
      yaxis: Look.axis("requests/s", { domain: [0.54, 1], rangemode: "tozero" }),
      yaxis2: scaled("latency (ms)", choice, { domain: [0, 0.44] }),
    });
    layout.legend.y = -0.16;
    const options = all.map((row, i) => [i, (row.why ? "\u00d7 " : "") + row.label]);
    const controls = [{ name: "row", label: "Row", options, value: which }, scaleControl(choice)];
    const rows = x.map((second, i) => [second, one.ok[i], one.bad[i] ?? 0, one.p50[i], one.p99[i] ?? null]);
    const events = one.events.map(([at, text]) => `${at} s: ${text}`).join("; ");
    const note = [one.why ? `This row ${BAD}: ${one.why}.` : "", events].filter(Boolean).join(" ");
    const columns = ["second", "succeeded", "failed or unknown", "p50 (ms)", "p99 (ms)"];
    return { traces, layout, controls, note, numbers: numbers("timeline", columns, rows) };
  }

  return { data, number, kinds: { lines, grid, curves, pairs, floors, timelines } };
})();
