"use strict";
// How figures look: colours, markers and dashes, each of which alone tells lines apart, in light and in dark.
const Look = (() => {
  // Plotly sets style attributes as text, which the page's policy refuses wherever it comes from. Set as properties of
  // an element, which only scripts can do, the same styles are allowed.
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };

  const COLOURS = {
    light: ["#0072b2", "#c44e00", "#00795a", "#a8407f", "#5b4fa2", "#7a5c00"],
    dark: ["#56b4e9", "#ff9a4d", "#3dd6a5", "#f29ac8", "#b3a8f5", "#f0d75a"],
  };
  const PAPER = {
    light: { text: "#1b1f24", grid: "#d9dde2", back: "#ffffff", muted: "#5c6570", bad: "#a02020" },
    dark: { text: "#e6e8eb", grid: "#3a414a", back: "#16191d", muted: "#a4adb8", bad: "#ff8a80" },
  };
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "star", "hexagon", "triangle-down"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
  const PRINT_WIDTH = 680; // px: what A4 and Letter have between the usual margins, whatever the window has
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  let chosen = "auto";
  let printing = false;

  function theme() {
    if (printing) return "light";
    return chosen === "auto" ? (wanted.matches ? "dark" : "light") : chosen;
  }

  function choose(name) {
    chosen = name;
    document.documentElement.dataset.theme = name;
  }

  // Colours, markers and dashes have different cycle lengths: the first 210 lines have no two alike.
  function line(index) {
    return {
      colour: COLOURS[theme()][index % COLOURS.light.length],
      marker: MARKERS[index % MARKERS.length],
      dash: DASHES[index % DASHES.length],
    };
  }

  function paper() {
    return PAPER[theme()];
  }

  function axis(title, more) {
    const look = paper();
    return {
      title: { text: title, standoff: 8 },
      gridcolor: look.grid,
      linecolor: look.muted,
      zerolinecolor: look.grid,
      automargin: true,
      ...more,
    };
  }

  function layout(more) {
    const look = paper();
    return {
      font: { color: look.text, family: "system-ui, sans-serif", size: 13 },
      paper_bgcolor: look.back,
      plot_bgcolor: look.back,
      margin: { l: 60, r: 16, t: 12, b: 48 },
      hoverlabel: {
        bgcolor: look.back, bordercolor: look.muted, font: { color: look.text }, align: "left", namelength: -1,
      },
      legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0, font: { size: 12 } },
      ...(printing ? { width: PRINT_WIDTH } : { autosize: true }),
      ...more,
    };
  }

  // Plotly takes some tags in texts for HTML of its own: text from files is never that.
  function plain(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function print(on) {
    printing = on;
  }

  return { axis, choose, layout, line, paper, plain, print, theme, wanted };
})();
