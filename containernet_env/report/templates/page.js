"use strict";
// Brings the page to life: contents, controls of figures, drawing, the switch of colours, printing.
(() => {
  const { make, button } = Table;
  const states = new Map(); // what was chosen, by figure
  // Nothing that leaves the page, and nothing that selects points, which there is no use for.
  const BUTTONS = {
    responsive: true, displaylogo: false, showSendToCloud: false,
    modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d"],
  };

  function controls(figure, list) {
    const state = states.get(figure);
    const place = figure.querySelector(".controls");
    if (place.childElementCount) return;
    for (const { name, label, options, value } of list) {
      const select = make("select", ...options.map(([id, text]) => Object.assign(make("option", text), { value: id })));
      select.value = value;
      select.addEventListener("input", () => {
        state[name] = select.value;
        draw(figure);
      });
      place.append(make("label", `${label} `, select));
    }
  }

  function numbersOf(figure) {
    const heading = figure.querySelector("h3").textContent;
    const details = make("details", make("summary", "Numbers"));
    const place = make("div");
    details.append(place);
    const fill = () => {
      const { columns, rows } = figure.numbers;
      place.replaceChildren(details.open ? Table.simple(heading, columns, rows) : "");
    };
    details.addEventListener("toggle", fill);
    const saving = button("Save the numbers as CSV", () => {
      const { name, columns, rows } = figure.numbers;
      Table.save(name, columns, rows);
    });
    figure.append(saving, details);
    figure.fillNumbers = fill;
  }

  function draw(figure) {
    const { kind, plot } = { kind: figure.dataset.figure, plot: figure.querySelector(".plot") };
    const made = Draw.kinds[kind](Number(figure.dataset.index), states.get(figure));
    controls(figure, made.controls);
    figure.numbers = made.numbers;
    const words = `${figure.querySelector("h3").textContent}. ${made.note ?? ""} The numbers follow below the figure.`;
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", words);
    let note = figure.querySelector(".note");
    if (made.note) {
      note ??= figure.insertBefore(Object.assign(make("p"), { className: "note" }), plot.nextSibling);
      note.textContent = made.note;
    } else {
      note?.remove();
    }
    figure.fillNumbers?.();
    // Plotly takes a new width from the element when the window changes, and the height with it.
    plot.style.height = `${made.layout.height}px`;
    const saved = { format: "svg", filename: made.numbers.name };
    Plotly.react(plot, made.traces, made.layout, { ...BUTTONS, toImageButtonOptions: saved });
  }

  function redraw() {
    figures.forEach(draw);
  }

  function contents() {
    const list = document.getElementById("contents");
    for (const section of document.querySelectorAll("main > section")) {
      const link = make("a", section.querySelector("h2").textContent);
      link.href = `#${section.id}`;
      list.append(make("li", link));
    }
  }

  const theme = document.getElementById("theme");
  theme.addEventListener("input", () => {
    Look.choose(theme.value);
    redraw();
  });
  Look.wanted.addEventListener("change", redraw);
  document.getElementById("print").addEventListener("click", () => print());
  for (const [event, on] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      Look.print(on);
      redraw();
    });
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if ((width < 760) !== (innerWidth < 760)) redraw();
    width = innerWidth;
  });

  contents();
  Table.rows(document.getElementById("table"), Draw.data.rows);
  const figures = [...document.querySelectorAll("[data-figure]")];
  // All of them before the page counts as loaded: screenshots of the whole page and prints wait for no scrolling.
  for (const figure of figures) {
    states.set(figure, {});
    figure.querySelector(".plot").replaceChildren();
    draw(figure);
    numbersOf(figure);
  }
  document.documentElement.dataset.drawn = String(Math.round(performance.now()));
})();
