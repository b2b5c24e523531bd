"use strict";
// Shows each state that the server sends, as HTML in which everything from files is escaped, and counts the seconds.
(() => {
  const at = (id) => document.getElementById(id);
  const source = new EventSource("events");
  let over = false;

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
    return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  }

  function clock() {
    const now = Date.now() / 1000;
    for (const place of document.querySelectorAll("[data-since]")) place.textContent = duration(now - place.dataset.since);
    for (const place of document.querySelectorAll("[data-until]")) place.textContent = duration(place.dataset.until - now);
  }

  source.addEventListener("message", (event) => {
    const { course, summary, problem, html } = JSON.parse(event.data);
    const table = () => document.querySelector("#rows .wide");
    const [focused, place] = [table() !== null && document.activeElement === table(), table()?.scrollTop ?? 0];
    at("live").replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    table().scrollTop = place;
    if (focused) table().focus();
    at("course").textContent = summary;
    at("problem").hidden = problem === null;
    at("problem").textContent = problem ?? "";
    over = course !== "on";
    if (over) source.close();
    if (course === "killed") at("course").className = "problem";
    clock();
    document.documentElement.dataset.drawn = String(Math.round(performance.now()));
  });
  source.addEventListener("error", () => {
    if (over) return;
    at("course").textContent =
      "the connection is lost: containernet-env watch was ended, or its pages are too many; trying again";
  });
  setInterval(clock, 1000);
})();
