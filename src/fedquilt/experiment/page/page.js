"use strict";
// Draws the figures of a report, and changes them as the reader asks. A figure's charts are Vega-Lite; what of a chart can be
// changed is in its usermeta, written by figure.py and curves.py.

const WIDEST = 960; // of a chart: wider ones are hard to read when they are printed
const SMOOTHINGS = [1, 3, 5, 10, 20, 50];
const chosen = new Map(); // what the reader has chosen, by figure: it stays when the page is drawn again
const views = new Map();
let figures = JSON.parse(document.getElementById("figures").textContent);

function choices(name) {
  if (!chosen.has(name)) {
    chosen.set(name, { chart: null, along: null, logX: false, logY: null, smooth: 1, hidden: new Set() });
  }
  const state = chosen.get(name);
  const labels = Object.keys(figures[name].charts);
  if (!labels.includes(state.chart)) state.chart = labels[0];
  return state;
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Every encoding of a chart, of its layers and of the views it is made of.
function eachEncoding(spec, change) {
  if (spec.encoding) change(spec.encoding);
  for (const inner of [...(spec.layer || []), ...(spec.concat || []), ...(spec.vconcat || []), ...(spec.hconcat || []), ...(spec.spec ? [spec.spec] : [])]) {
    eachEncoding(inner, change);
  }
}

function smoothed(rows, count) {
  const before = new Map();
  return rows.map((row) => {
    if (row.value === undefined || row.line === undefined) return row;
    const last = before.get(row.line) || [];
    last.push(row);
    if (last.length > count) last.shift();
    before.set(row.line, last);
    const mean = (key) => last.reduce((sum, each) => sum + each[key], 0) / last.length;
    return { ...row, value: mean("value"), low: mean("low"), high: mean("high") };
  });
}

// The chart as the reader wants it; legends are buttons beside it on the page, and part of the chart in what is saved.
function changed(name, width, legends) {
  const state = choices(name);
  const spec = structuredClone(figures[name].charts[state.chart]);
  const about = spec.usermeta || {};
  const along = about.along || {};
  const x = state.along in along ? state.along : about.over;
  const logY = state.logY;
  for (const [key, given] of Object.entries(spec.datasets || {})) {
    let rows = given;
    if (about.legend) rows = rows.filter((row) => !state.hidden.has(row[about.legend.field]));
    if (about.smooth && state.smooth > 1) rows = smoothed(rows, state.smooth);
    if (about.log && state.logX) rows = rows.filter((row) => !(row[x] <= 0));
    if (about.log && logY) {
      rows = rows.filter((row) => !(row.value <= 0)).map((row) => (row.low <= 0 ? { ...row, low: row.value / 100 } : row));
    }
    spec.datasets[key] = rows;
  }
  eachEncoding(spec, (encoding) => {
    if (about.along && encoding.x && encoding.x.field === about.over) {
      if (x !== about.over || state.logX) {
        encoding.x = { ...encoding.x, field: x, title: along[x], axis: { grid: false, labelOverlap: true } };
        encoding.x.scale = state.logX ? { type: "log", nice: false } : { nice: false, zero: false };
      }
    }
    if (about.log && logY !== null && encoding.y) {
      encoding.y = { ...encoding.y, scale: logY ? { type: "log" } : { zero: false, nice: true } };
    }
    if (!legends && about.legend) {
      for (const channel of ["color", "strokeDash"]) if (encoding[channel] && encoding[channel].field) encoding[channel].legend = null;
    }
  });
  if (width) fit(spec, width);
  return spec;
}

// Make a chart as wide as there is room.
function fit(spec, width) {
  const axes = 76; // the vertical axis and its title
  if (spec.vconcat) for (const inner of spec.vconcat) inner.width = Math.max(width - axes, 150);
  else if (spec.facet) spec.spec.width = Math.max(width - axes, 150);
  else if (spec.concat) spec.columns = Math.max(Math.floor((width - 120) / (spec.concat[0].width + 30)), 1);
  else if (typeof spec.width === "number") {
    spec.width = width;
    spec.autosize = { type: "fit-x", contains: "padding" };
  }
  if (width < 500) {
    eachEncoding(spec, (encoding) => {
      for (const channel of ["x", "y"]) {
        const axis = encoding[channel] && encoding[channel].axis;
        if (axis && axis.labelLimit) axis.labelLimit = 110;
        if (axis && axis.values && channel === "x") delete axis.values;
      }
    });
    spec.config.axis = { ...spec.config.axis, labelLimit: 110 };
    spec.config.legend = { ...spec.config.legend, orient: "bottom" };
  }
}

async function draw(holder) {
  const name = holder.dataset.figure;
  const target = holder.querySelector(".chart");
  const spec = changed(name, Math.min(target.clientWidth, WIDEST), false);
  const height = target.offsetHeight;
  if (height) target.style.minHeight = `${height}px`; // the page does not jump while the chart is drawn anew
  const old = views.get(holder);
  const result = await vegaEmbed(target, spec, { actions: false, renderer: "svg", ast: false });
  if (old) old.finalize();
  views.set(holder, result);
  target.style.minHeight = "";
  holder.dataset.drawn = String(Number(holder.dataset.drawn || 0) + 1);
}

function select(words, options, value, change) {
  const made = element("select", { onchange: (event) => change(event.target.value) });
  for (const [key, text] of options) made.append(element("option", key === value ? { value: key, selected: "" } : { value: key }, text));
  return element("label", {}, words, made);
}

function check(words, value, change) {
  const box = element("input", { type: "checkbox", onchange: (event) => change(event.target.checked) });
  box.checked = value;
  return element("label", {}, box, words);
}

function isLog(spec) {
  let log = false;
  eachEncoding(spec, (encoding) => { if (encoding.y && encoding.y.scale && encoding.y.scale.type === "log") log = true; });
  return log;
}

function furnish(holder) {
  const name = holder.dataset.figure;
  const state = choices(name);
  const labels = Object.keys(figures[name].charts);
  const about = figures[name].charts[state.chart].usermeta || {};
  const controls = holder.querySelector(".controls");
  const again = () => { furnish(holder); draw(holder); };
  const pieces = [];
  if (labels.length > 1) {
    pieces.push(select("show", labels.map((label) => [label, label]), state.chart, (value) => { state.chart = value; state.logY = null; again(); }));
  }
  if (about.along && Object.keys(about.along).length > 1) {
    pieces.push(select("over", Object.entries(about.along), state.along || about.over, (value) => { state.along = value; again(); }));
  }
  if (about.smooth) {
    const options = SMOOTHINGS.map((count) => [String(count), count === 1 ? "none" : `last ${count}`]);
    pieces.push(select("smoothing", options, String(state.smooth), (value) => { state.smooth = Number(value); again(); }));
  }
  if (about.log) {
    pieces.push(check("log x", state.logX, (value) => { state.logX = value; again(); }));
    const log = state.logY === null ? isLog(figures[name].charts[state.chart]) : state.logY;
    pieces.push(check("log y", log, (value) => { state.logY = value; again(); }));
  }
  const save = (kind) => element("button", { type: "button", onclick: () => download(name, kind) }, kind.toUpperCase());
  pieces.push(element("span", { class: "save" }, "save", save("svg"), save("png")));
  controls.replaceChildren(...pieces);
  const legend = holder.querySelector(".legend");
  const entries = about.legend ? about.legend.entries : [];
  legend.replaceChildren(...(entries.length > 1 ? entries.map((entry) => swatch(entry, state, again)) : []));
}

function swatch(entry, state, again) {
  const shown = !state.hidden.has(entry.name);
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("width", entry.dash ? 30 : 12);
  drawing.setAttribute("height", 12);
  drawing.setAttribute("aria-hidden", "true");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", entry.dash ? "line" : "rect");
  const look = entry.dash
    ? { x1: 0, x2: 30, y1: 6, y2: 6, stroke: entry.colour, "stroke-width": 2.5, "stroke-dasharray": entry.dash[1] ? entry.dash.join(" ") : "none" }
    : { width: 12, height: 12, fill: entry.colour };
  for (const [key, value] of Object.entries(look)) mark.setAttribute(key, value);
  drawing.append(mark);
  const toggle = () => {
    if (shown) state.hidden.add(entry.name); else state.hidden.delete(entry.name);
    again();
  };
  return element("button", { type: "button", "aria-pressed": String(shown), title: shown ? "Click to hide" : "Click to show", onclick: toggle }, drawing, entry.name);
}

async function download(name, kind) {
  const spec = changed(name, 0, true);
  const aside = element("div", { style: "position:absolute;left:-9999px" });
  document.body.append(aside);
  const { view, finalize } = await vegaEmbed(aside, spec, { actions: false, renderer: "svg" });
  let address;
  if (kind === "svg") address = URL.createObjectURL(new Blob([await view.toSVG()], { type: "image/svg+xml" }));
  else address = await view.toImageURL("png", 2);
  const link = element("a", { href: address, download: `${name.replace(/^\d+-/, "")}.${kind}` });
  document.body.append(link);
  link.click();
  link.remove();
  finalize();
  aside.remove();
}

async function copy(button) {
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const before = button.textContent;
  button.textContent = "copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}

async function drawAll() {
  const holders = [...document.querySelectorAll("[data-figure]")];
  for (const holder of holders) {
    furnish(holder);
    await draw(holder);
  }
  document.body.dataset.ready = "yes";
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
});

let width = document.documentElement.clientWidth;
let waiting;
window.addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    drawAll();
  }, 150);
});

// A page that is served asks every two seconds whether there is more.
let version = null;
async function refresh() {
  try {
    const answer = await fetch("content", { headers: version ? { "If-None-Match": version } : {}, cache: "no-store" });
    if (answer.status === 200) {
      const first = version === null;
      version = answer.headers.get("ETag");
      const news = await answer.json();
      if (!first || news.changed) {
        const open = [...document.querySelectorAll("details[open]")].map((each) => each.id);
        const top = window.scrollY;
        document.getElementById("main").style.minHeight = `${document.getElementById("main").offsetHeight}px`;
        document.getElementById("main").innerHTML = news.body;
        figures = news.figures;
        for (const view of views.values()) view.finalize();
        views.clear();
        for (const id of open) document.getElementById(id)?.setAttribute("open", "");
        await drawAll();
        document.getElementById("main").style.minHeight = "";
        window.scrollTo(0, top);
      }
    }
    delete document.body.dataset.lost;
  } catch {
    document.body.dataset.lost = "yes"; // the server has ended: the page stays as it is
  }
  setTimeout(refresh, 2000);
}

drawAll().then(() => { if (document.body.hasAttribute("data-live")) refresh(); });
