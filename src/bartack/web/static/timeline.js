// Draws the bars of a run beside the list of its workers: only rows that can be seen, when a frame is painted, never while hidden.
//
// The list carries names, focus and what screen readers read; the canvas carries bars only.
import { addKeys } from "./keys.js";
import { elapsed, now, on } from "./live.js";

/** @typedef {{ from: number, to: number, kind: number, state: string, count: number, seq: number, row: number, exact: boolean }} Bar */
/** @typedef {{ us: number, kind: string, seq: number, text: string }} Mark */

/** After this many bars that came by events the timeline is asked for again: the server merges what is narrower than a pixel. */
const MOST_NEW = 4000;
/** Workers that have ended and are shown without being asked for. */
const MOST_ENDED = 20;
/** Marks, by what they mean: a sign and a word. @type {Record<string, [string, string]>} */
const SIGNS = {
  crash: ["!", "crash"],
  resume: ["▸", "resumed"],
  failure: ["✗", "failure"],
  question: ["?", "question"],
  answer: ["✓", "answer"],
  end: ["■", "end"],
};
/** Marks that screen readers read; the newest. */
const MOST_READ = 50;
const AXIS = 28;
const FONT = "11px system-ui, sans-serif";
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];

const root = /** @type {HTMLElement} */ (document.getElementById("timeline"));
const scroll = /** @type {HTMLElement} */ (root.querySelector(".lanes-scroll"));
const canvas = /** @type {HTMLCanvasElement} */ (root.querySelector("canvas.bars"));
const axis = /** @type {HTMLCanvasElement} */ (root.querySelector("canvas.axis"));
const tip = /** @type {HTMLElement} */ (document.getElementById("tip"));
const meanings = JSON.parse(root.dataset.meanings ?? "{}");
const run = encodeURIComponent(root.dataset.run ?? "");

/** @type {Map<number, Bar[]>} */
let lanes = new Map();
/** Bars that are open, by row. @type {Map<number, Bar>} */
let open = new Map();
/** @type {Mark[]} */
let marks = [];
/** @type {string[]} */
let kinds = [];
let first = Number(root.dataset.first);
let last = Number(root.dataset.last);
/** What is looked at; `null`: all of it. @type {{ from: number, to: number } | null} */
let range = null;
let added = 0;
/** The entry that is shown, if it is a past one: a line is drawn there, and what lies after it is pale. */
let at = 0;
/** All marks that are known, whatever part is looked at. @type {Set<number>} */
const markPlaces = new Set();
const list = /** @type {HTMLElement} */ (root.querySelector(".lanes"));
/** Whether time passes: a process runs the run, and the page shows it as it is. */
const isAlive = () => document.getElementById("head")?.dataset.alive !== undefined;

// What is drawn.

function view() {
  const end = isAlive() ? Math.max(now(), last) : last;
  const from = range?.from ?? first;
  return { from, to: Math.max(range?.to ?? end, from + 1000), end };
}

/** @type {AbortController | undefined} */
let asking;
/** @type {number | undefined} */
let timer;

function ask(delay = 0) {
  clearTimeout(timer);
  timer = setTimeout(load, delay);
}

async function load() {
  asking?.abort();
  asking = new AbortController();
  const query = new URLSearchParams({ px: String(Math.max(Math.round(canvas.clientWidth), 100)) });
  if (range) {
    const width = range.to - range.from;
    // After the last entry there is nothing to ask for but what is still open then.
    query.set("from", String(Math.max(Math.round(Math.min(range.from - width / 2, last)), 0)));
    query.set("to", String(Math.round(range.to + width / 2)));
    query.set("px", String(Math.min(Math.round(canvas.clientWidth * 2), 10000)));
  }
  try {
    const answer = await fetch(`/api/v1/runs/${run}/timeline?${query}`, { signal: asking.signal });
    if (answer.ok) take(await answer.json());
  } catch {
    // The next change of the view, or the next event, asks again.
  }
}

/** @param {any} found */
function take(found) {
  lanes = new Map();
  open = new Map();
  kinds = found.kinds ?? [];
  first = found.first_us;
  last = found.last_us;
  if (!range) markPlaces.clear();
  marks = (found.marks ?? []).map(readMark);
  for (const lane of found.lanes ?? []) {
    const bars = (lane.bars ?? []).map(
      (/** @type {any[]} */ [from, to, kind, state, count, seq, row, exact]) => ({ from, to, kind, state, count, seq, row, exact }),
    );
    lanes.set(lane.id, bars);
    for (const bar of bars) if (bar.state === "open") open.set(bar.row, bar);
  }
  added = 0;
  listMarks();
  draw();
}

/** Give the marks of the canvas as words to those who cannot see it. */
function listMarks() {
  const items = marks.slice(-MOST_READ).map((mark) => {
    const item = document.createElement("li");
    const word = SIGNS[mark.kind]?.[1] ?? mark.kind;
    const text = mark.text.replace(/: ?$/, "");
    item.textContent = `${word} at ${elapsed(mark.us - first)}, entry ${mark.seq}${text && text !== word ? `: ${text}` : ""}`;
    return item;
  });
  document.getElementById("marks")?.replaceChildren(...items);
}

/** @param {any[]} mark */
function readMark([us, kind, seq, text]) {
  markPlaces.add(seq);
  return { us, kind, seq, text };
}

/** The marks before and after an entry; 0: there is none. @param {number} seq */
export function marksAround(seq) {
  let [before, after] = [0, 0];
  for (const one of markPlaces) {
    if (one < seq) before = Math.max(before, one);
    if (one > seq) after = after ? Math.min(after, one) : one;
  }
  return { before, after };
}

/** Show where an entry is; 0: the run as it is now. @param {number} seq */
export function moveTo(seq) {
  at = seq;
  draw();
}

/** When the entry was that is shown: as the head says, or between the entries around it whose times are known. */
function timeOfEntry() {
  const head = document.getElementById("head")?.dataset ?? {};
  if (Number(head.seq) === at) return Number(head.at);
  let [before, after] = [{ seq: 1, us: first }, { seq: Number(head.last), us: last }];
  const known = [...lanes.values()].flat().filter((bar) => bar.exact).map((bar) => ({ seq: bar.seq, us: bar.from }));
  for (const one of [...known, ...marks]) {
    if (one.seq <= at && one.seq > before.seq) before = one;
    if (one.seq >= at && one.seq < after.seq) after = one;
  }
  const part = after.seq > before.seq ? (at - before.seq) / (after.seq - before.seq) : 0;
  return before.us + Math.max(after.us - before.us, 0) * part;
}

/** @param {any} change */
function extend(change) {
  if (change.kinds?.length) kinds = change.kinds;
  if (change.last_us) last = change.last_us;
  for (const [row, lane, kind, from] of change.open ?? []) {
    const bar = { from, to: 0, kind, state: "open", count: 1, seq: change.seq, row, exact: true };
    open.set(row, bar);
    const bars = lanes.get(lane);
    if (bars) bars.push(bar);
    else lanes.set(lane, [bar]);
  }
  for (const [row, to, state] of change.close ?? []) {
    const bar = open.get(row);
    if (bar) Object.assign(bar, { to, state });
    open.delete(row);
  }
  marks.push(...(change.marks ?? []).map(readMark));
  if (change.marks?.length) listMarks();
  added += change.open?.length ?? 0;
  if (added > MOST_NEW) ask();
  draw();
}

// Drawing.

/** @type {Record<string, string>} */
let colours = {};

function readColours() {
  colours = {};
  for (const name of ["agent", "command", "message", "wait", "code", "question", "bad"]) {
    const swatch = root.querySelector(`.legend .k-${name}`);
    if (swatch) colours[name] = getComputedStyle(swatch).color;
  }
  const style = getComputedStyle(root);
  colours.ink = style.color;
  colours.line = style.borderTopColor;
  colours.paper = style.backgroundColor;
  colours.place = style.caretColor;
}

let isDrawing = false;
function draw() {
  if (isDrawing || document.hidden) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    if (!Object.keys(colours).length) readColours();
    paint();
    paintAxis();
  });
}

/** @param {HTMLCanvasElement} element @param {number} width @param {number} height */
function prepare(element, width, height) {
  const ratio = devicePixelRatio || 1;
  if (element.width !== Math.round(width * ratio) || element.height !== Math.round(height * ratio)) {
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d"));
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** @type {{ top: number, height: number, bars: Bar[] }[]} */
let shown = [];

function paint() {
  const width = canvas.clientWidth;
  const height = Math.min(list.offsetHeight, scroll.clientHeight);
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  const pen = prepare(canvas, width, height);
  const { from, to, end } = view();
  const scale = width / (to - from);
  const x = (/** @type {number} */ us) => (us - from) * scale;
  shown = [];
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.5;
  for (const us of ticks(from, to, width)) line(pen, Math.round(x(us)) + 0.5, height);
  for (const row of root.querySelectorAll(".lane")) {
    const lane = /** @type {HTMLElement} */ (row);
    const top = lane.offsetTop - scroll.scrollTop;
    if (lane.offsetHeight === 0 || top + lane.offsetHeight < 0 || top > height) continue;
    pen.globalAlpha = 0.6;
    pen.fillStyle = colours.line;
    pen.fillRect(0, top + lane.offsetHeight - 1, width, 1);
    pen.globalAlpha = 1;
    const ids = (lane.dataset.lanes ?? "").split(" ").filter(Boolean).map(Number);
    const room = (lane.offsetHeight - 9) / Math.max(ids.length, 1);
    ids.forEach((id, place) => {
      const bars = lanes.get(id) ?? [];
      const y = top + 4 + place * room;
      shown.push({ top: y, height: room, bars });
      for (const bar of bars) paintBar(pen, bar, x, y, Math.max(room - (ids.length > 1 ? 1 : 0), 2), width, end);
    });
  }
  for (const mark of marks) paintMark(pen, mark, x(mark.us), width, height);
  if (at) paintPlace(pen, x(timeOfEntry()), width, height);
  else if (isAlive() && !range) {
    pen.globalAlpha = 1;
    pen.strokeStyle = colours.bad;
    line(pen, Math.min(x(end), width - 1) + 0.5, height);
  }
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} width @param {number} height */
function paintPlace(pen, x, width, height) {
  pen.globalAlpha = 0.72;
  pen.fillStyle = colours.paper;
  pen.fillRect(Math.max(x, 0), 0, width, height);
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.place;
  pen.lineWidth = 2;
  line(pen, Math.min(x, width - 1), height);
  pen.lineWidth = 1;
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} height */
function line(pen, x, height) {
  pen.beginPath();
  pen.moveTo(x, 0);
  pen.lineTo(x, height);
  pen.stroke();
}

/**
 * @param {CanvasRenderingContext2D} pen @param {Bar} bar @param {(us: number) => number} x
 * @param {number} y @param {number} height @param {number} width @param {number} end
 */
function paintBar(pen, bar, x, y, height, width, end) {
  const left = Math.max(x(bar.from), -2);
  const right = Math.min(x(bar.state === "open" ? end : bar.to), width + 2);
  if (right < 0 || left > width) return;
  const wide = Math.max(right - left, 1.5);
  const hasFailed = bar.state === "failed" || bar.state === "aborted";
  const name = meanings[kinds[bar.kind] ?? ""] ?? "code";
  pen.fillStyle = colours[name];
  // A bar that waits is thin; one whose beginning is not known, or that was undone, is pale and hatched.
  const isThin = name === "wait";
  const tall = isThin ? Math.max(height / 3, 2) : height;
  const top = y + (height - tall) / 2;
  pen.globalAlpha = bar.state === "undone" ? 0.25 : bar.exact ? (bar.state === "open" ? 1 : 0.85) : 0.5;
  pen.beginPath();
  if (wide > 5) pen.roundRect(left, top, wide - 0.5, tall, Math.min(2.5, tall / 2));
  else pen.rect(left, top, wide, tall);
  pen.fill();
  pen.globalAlpha = 1;
  if (hasFailed) edge(pen, left, top, wide, tall);
  if (bar.state === "undone" || !bar.exact) hatch(pen, left, top, wide, tall);
  if (wide > 42 && tall > 11) label(pen, kinds[bar.kind] ?? "", left, top, wide, tall);
}

/** A bar that was undone, or whose beginning is not known, is hatched. @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} width @param {number} height */
function hatch(pen, x, y, width, height) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.strokeStyle = colours.ink;
  pen.globalAlpha = 0.55;
  pen.beginPath();
  for (let at = x - height; at < x + width; at += 5) {
    pen.moveTo(at, y + height);
    pen.lineTo(at + height, y);
  }
  pen.stroke();
  pen.restore();
}

/** A failed bar has an edge. @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} width @param {number} height */
function edge(pen, x, y, width, height) {
  pen.fillStyle = colours.bad;
  pen.fillRect(x, y + height - 3, Math.max(width, 2), 3);
  pen.fillRect(x + Math.max(width - 2, 0), y, 2, height);
}

/** The kind of a bar, if all of it fits into the bar. @param {CanvasRenderingContext2D} pen @param {string} text @param {number} x @param {number} y @param {number} width @param {number} height */
function label(pen, text, x, y, width, height) {
  const left = Math.max(x, 0) + 5;
  pen.font = FONT;
  if (left + pen.measureText(text).width > Math.min(x + width, canvas.clientWidth) - 3) return;
  pen.fillStyle = colours.paper;
  pen.textBaseline = "middle";
  pen.fillText(text, left, y + height / 2 + 0.5);
}

/** @param {CanvasRenderingContext2D} pen @param {Mark} mark @param {number} x @param {number} width @param {number} height */
function paintMark(pen, mark, x, width, height) {
  if (x < 0 || x > width) return;
  pen.globalAlpha = 0.8;
  pen.strokeStyle = colourOf(mark);
  pen.setLineDash([2, 3]);
  line(pen, Math.round(x) + 0.5, height);
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

/** @param {Mark} mark */
const isBad = (mark) => mark.kind === "crash" || mark.kind === "failure";

/** Which of two marks at one place is shown. @param {Mark} mark */
const rank = (mark) => (mark.kind === "failure" ? 2 : Number(isBad(mark)));

/** @param {Mark} mark */
const colourOf = (mark) => (isBad(mark) ? colours.bad : mark.kind === "question" ? colours.question : colours.ink);

/**
 * Below the times: the sign of each mark, failures and crashes first where there are too many, and its word where there is room. All of it stays inside.
 * @param {CanvasRenderingContext2D} pen @param {Mark[]} seen @param {(us: number) => number} x @param {number} width
 */
function paintMarkNames(pen, seen, x, width) {
  /** @type {{ mark: Mark, left: number, right: number }[]} */
  const placed = [];
  const wide = (/** @type {string} */ text) => pen.measureText(text).width;
  for (const mark of [...seen].sort((one, other) => rank(other) - rank(one))) {
    const size = wide(SIGNS[mark.kind]?.[0] ?? "");
    const left = Math.max(Math.min(x(mark.us) - size / 2, width - size - 1), 0);
    if (placed.every((one) => one.right + 2 <= left || left + size + 2 <= one.left)) placed.push({ mark, left, right: left + size });
  }
  placed.sort((one, other) => one.left - other.left);
  let free = 0;
  placed.forEach(({ mark, left, right }, place) => {
    const [sign, word] = SIGNS[mark.kind] ?? ["", ""];
    const size = wide(` ${word}`);
    const fitsAfter = right + size + 6 <= (placed[place + 1]?.left ?? width);
    const fitsBefore = place + 1 === placed.length && left - size >= free + 6;
    const text = fitsAfter ? `${sign} ${word}` : fitsBefore ? `${word} ${sign}` : sign;
    pen.globalAlpha = 1;
    pen.fillStyle = colourOf(mark);
    pen.fillText(text, fitsAfter || !fitsBefore ? left : left - size, AXIS - 8);
    free = fitsAfter ? right + size : right;
  });
}

/** Moments for the axis, about every 90 pixels. @param {number} from @param {number} to @param {number} width */
function ticks(from, to, width) {
  const wanted = ((to - from) / 1e6 / Math.max(width, 1)) * 90;
  const step = (STEPS.find((one) => one >= wanted) ?? 604800) * 1e6;
  const found = [];
  for (let us = first + Math.ceil((from - first) / step) * step; us <= to; us += step) found.push(us);
  return found;
}

function paintAxis() {
  const width = canvas.clientWidth;
  const pen = prepare(axis, width, AXIS);
  const { from, to } = view();
  const x = (/** @type {number} */ us) => ((us - from) / (to - from)) * width;
  pen.font = FONT;
  pen.textBaseline = "middle";
  paintMarkNames(pen, marks.filter((mark) => x(mark.us) >= 0 && x(mark.us) <= width), x, width);
  const isFine = to - from < 5e6;
  pen.fillStyle = colours.ink;
  pen.globalAlpha = 0.75;
  let free = 0;
  for (const us of ticks(from, to, width)) {
    const seconds = (us - first) / 1e6;
    const text = isFine ? (to - from < 1e6 ? `${Math.round(seconds * 1000)} ms` : `${Number(seconds.toFixed(2))} s`) : elapsed(us - first);
    const wide = pen.measureText(text).width;
    const left = Math.min(x(us) + 3, width - wide - 2);
    if (left < free) continue;
    pen.fillText(text, left, 8);
    free = left + wide + 6;
  }
}

// Looking around.

/** @param {number} factor @param {number} [place] a part of the width, from 0 to 1 */
function zoom(factor, place = 0.5) {
  const { from, to, end } = view();
  const middle = from + (to - from) * place;
  const width = Math.max((to - from) * factor, 1000);
  const made = { from: middle - width * place, to: middle + width * (1 - place) };
  range = made.from <= first && made.to >= end ? null : { from: Math.max(made.from, first), to: Math.min(made.to, end) };
  ask(60);
  draw();
}

/** @param {number} part */
function pan(part) {
  if (!range) return;
  const { end } = view();
  const width = range.to - range.from;
  const from = Math.min(Math.max(range.from + width * part, first), end - width);
  range = { from, to: from + width };
  ask(60);
  draw();
}

function fit() {
  range = null;
  ask(60);
  draw();
}

/** @param {MouseEvent} event */
function barAt(event) {
  const box = canvas.getBoundingClientRect();
  const y = event.clientY - box.top;
  const row = shown.find((one) => y >= one.top && y < one.top + one.height);
  const { from, to, end } = view();
  const us = from + ((event.clientX - box.left) / box.width) * (to - from);
  const near = ((to - from) / box.width) * 3;
  return row?.bars.findLast((bar) => bar.from - near <= us && us <= (bar.state === "open" ? end : bar.to) + near);
}

/** @param {MouseEvent} event */
function showTip(event) {
  const bar = barAt(event);
  tip.hidden = !bar;
  canvas.classList.toggle("over-bar", bar !== undefined);
  if (!bar) return;
  const lasted = ((bar.state === "open" ? view().end : bar.to) - bar.from) / 1e6;
  const time = lasted < 1 ? `${Math.round(lasted * 1000)} ms` : lasted < 60 ? `${lasted.toFixed(2)} s` : elapsed(lasted * 1e6);
  const what = bar.count > 1 ? `${bar.count} steps, the first: ${kinds[bar.kind]}` : kinds[bar.kind];
  tip.textContent = `${what} · ${bar.state} · ${bar.exact ? "" : "at most "}${time} · at ${elapsed(bar.from - first)}`;
  const box = root.getBoundingClientRect();
  tip.style.left = `${Math.max(Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 8), 4)}px`;
  tip.style.top = `${event.clientY - box.top + 16}px`;
}

const unfold = /** @type {HTMLButtonElement} */ (document.getElementById("unfold"));

/** Of the workers that have ended only the newest are shown, until a person wants to see all. */
function foldEnded() {
  const over = [...root.querySelectorAll(".lane.over")];
  const many = Math.max(over.length - MOST_ENDED, 0);
  const isOpen = unfold.getAttribute("aria-expanded") === "true";
  over.forEach((lane, place) => lane.classList.toggle("folded", !isOpen && place < many));
  unfold.hidden = many === 0;
  unfold.textContent = isOpen ? `Hide ${many} that have ended` : `${many} more that have ended`;
  for (const row of root.querySelectorAll(".lane")) {
    const lane = /** @type {HTMLElement} */ (row);
    const many = (lane.dataset.lanes ?? "").split(" ").length;
    const height = many > 1 ? `${Math.min(9 + many * 7, 96)}px` : "";
    if (lane.style.height !== height && (many > 1 || lane.style.height)) lane.style.height = height;
  }
}

function start() {
  addKeys({ "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: fit, ArrowLeft: () => pan(-0.25), ArrowRight: () => pan(0.25) });
  for (const button of root.querySelectorAll("[data-zoom]")) {
    const act = { in: () => zoom(0.5), out: () => zoom(2), fit }[/** @type {HTMLElement} */ (button).dataset.zoom ?? ""];
    if (act) button.addEventListener("click", act);
  }
  unfold.addEventListener("click", () => {
    unfold.setAttribute("aria-expanded", String(unfold.getAttribute("aria-expanded") !== "true"));
    foldEnded();
    draw();
  });
  let drag = 0;
  let moved = 0;
  scroll.addEventListener("scroll", draw, { passive: true });
  canvas.addEventListener("mousemove", showTip);
  canvas.addEventListener("click", (event) => {
    const bar = moved > 4 ? undefined : barAt(event);
    if (bar) location.assign(`/r/${run}/step?row=${bar.row}${at && bar.seq <= at ? `&at=${at}` : ""}`);
  });
  canvas.addEventListener("mouseleave", () => (tip.hidden = true));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / canvas.clientWidth);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = event.clientX;
    moved = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!event.buttons || !range) return;
    moved += Math.abs(drag - event.clientX);
    pan((drag - event.clientX) / canvas.clientWidth);
    drag = event.clientX;
  });
  const resized = new ResizeObserver(() => {
    draw();
    ask(120);
  });
  resized.observe(canvas);
  new MutationObserver(() => {
    foldEnded();
    draw();
  }).observe(list, { childList: true });
  const repaint = () => {
    readColours();
    draw();
  };
  addEventListener("themechange", repaint);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  document.addEventListener("visibilitychange", draw);
  on("bars", extend);
  on("load", draw);
  on("reload", () => ask());
  on("over", () => ask());
  setInterval(() => isAlive() && draw(), 250);
  foldEnded();
  ask();
}

start();
