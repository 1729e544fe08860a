// Keeps a page up to date: takes the parts that its stream sends, and counts times on.
//
// A part is an element with an id. It replaces the element with its id, or is put into the element whose `data-parts` are the letters
// that the id begins with, by its `data-order`. A form that a person fills in is left alone until it is left.

/** @typedef {{ seq: number, set?: [string, string][], gone?: string[] }} Parts */
/** @typedef {{ name: string, data: any }} Event */

// The types of browsers that are known do not have trusted types.
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("bartack", { createHTML: (/** @type {string} */ html) => html });
const body = document.body;
const statusLine = /** @type {HTMLElement} */ (document.getElementById("status"));
const alarm = /** @type {HTMLElement} */ (document.getElementById("alarm"));
const banner = /** @type {HTMLElement} */ (document.getElementById("banner"));
const connection = document.getElementById("connection");

/** The clock of the server, in microseconds: it may be another machine. */
const ahead = Number(body.dataset.now) - Date.now() * 1000;
export const now = () => Date.now() * 1000 + ahead;

// Times. `elapsed` and `age` write what `_wording.py` writes.

/** @param {number} us */
export function elapsed(us) {
  const seconds = Math.floor(Math.max(us, 0) / 1e6);
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

/** @param {number} us */
export function age(us) {
  const seconds = Math.floor(Math.max(us, 0) / 1e6);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

function tick() {
  if (document.hidden) return;
  const moment = now();
  for (const element of document.querySelectorAll("time[data-since], time[data-ago], time[data-until]")) {
    const { since, ago, until } = /** @type {HTMLElement} */ (element).dataset;
    const text = since ? elapsed(moment - Number(since)) : ago ? age(moment - Number(ago)) : elapsed(Number(until) - moment);
    if (element.textContent !== text) element.textContent = text;
  }
}

// Parts.

/** @param {string} html */
function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = policy ? policy.createHTML(html) : html;
  return template.content;
}

/** Whether a person is filling in a form, or has a menu open, in an element. @param {Element} element */
function isBusy(element) {
  const active = document.activeElement;
  const isField = active?.matches("form:not([data-sent]) :is(input:not([type=hidden]), textarea, select)");
  if (isField && element.contains(active)) return true;
  for (const field of element.querySelectorAll("form:not([data-sent]) :is(input:not([type=hidden]), textarea)")) {
    const { value, defaultValue, checked, defaultChecked } = /** @type {HTMLInputElement} */ (field);
    if (value !== defaultValue || checked !== defaultChecked) return true;
  }
  return element.querySelector("details[open] form:not([data-sent]), form[aria-busy=true]") !== null;
}

/** Parts that came while their element was busy, by id. @type {Map<string, Element | null>} */
const waiting = new Map();

/** Parts that a module puts into the page itself, by id. @type {Map<string, (before: Element, made: Element) => void>} */
const takers = new Map();

/** Let a module put a part into the page. @param {string} id @param {(before: Element, made: Element) => void} taker */
export function onPart(id, taker) {
  takers.set(id, taker);
}

/** @param {string} id @param {Element} made */
function put(id, made) {
  const before = document.getElementById(id);
  waiting.delete(id);
  if (!before) return insert(id, made);
  const taker = takers.get(id);
  if (taker) return taker(before, made);
  if (before.isEqualNode(made)) return;
  if (isBusy(before)) return void waiting.set(id, made);
  const place = focusIn(before);
  before.replaceWith(made);
  if (place >= 0) /** @type {HTMLElement | undefined} */ (focusable(made)[place])?.focus({ preventScroll: true });
}

/** @param {Element} element */
const focusable = (element) => [element, ...element.querySelectorAll("a, button, summary, [tabindex]")];

/** @param {Element} element */
function focusIn(element) {
  const active = document.activeElement;
  return active && element.contains(active) ? focusable(element).indexOf(active) : -1;
}

/** @param {string} id @param {Element} made */
function insert(id, made) {
  const letters = /^[a-z]+/.exec(id)?.[0];
  const list = /** @type {HTMLElement | null} */ (document.querySelector(`[data-parts="${letters}"]`));
  if (!list) return;
  const down = "down" in list.dataset ? -1 : 1;
  const order = (/** @type {Element} */ one) => down * Number(/** @type {HTMLElement} */ (one).dataset.order ?? 0);
  const after = [...list.children].find((child) => order(child) > order(made));
  list.insertBefore(made, after ?? null);
}

/** @param {string} id */
function remove(id) {
  const element = document.getElementById(id);
  if (!element) return;
  const form = element.querySelector("form");
  if (isBusy(element) && form?.getAttribute("aria-busy") !== "true") {
    // A person is writing an answer to a question that is not open any more.
    waiting.set(id, null);
    const outcome = element.querySelector(".outcome");
    if (outcome) outcome.textContent = "This question is not open any more: it was answered elsewhere, or the run is over.";
    return;
  }
  if (element.contains(document.activeElement)) document.getElementById("main")?.focus({ preventScroll: true });
  element.remove();
}

/** Show the parts that had to wait, if they need not wait any longer. */
export function settle() {
  for (const [id, made] of waiting) {
    const element = document.getElementById(id);
    if (element && isBusy(element)) continue;
    waiting.delete(id);
    if (made) put(id, made);
    else element?.remove();
  }
  showEmpty();
}

function showEmpty() {
  for (const list of document.querySelectorAll("[data-empty]")) {
    const text = document.getElementById(/** @type {HTMLElement} */ (list).dataset.empty ?? "");
    if (text) text.hidden = list.children.length > 0;
  }
}

/** @param {Parts} parts */
function take(parts) {
  for (const id of parts.gone ?? []) {
    waiting.delete(id);
    remove(id);
  }
  for (const [id, html] of parts.set ?? []) {
    const made = parse(html).firstElementChild;
    if (!made) continue;
    const isNew = !document.getElementById(id);
    waiting.delete(id);
    put(id, made);
    if (isNew && made.matches(".question, .failure")) announce(made);
  }
  showEmpty();
  nameTab();
  sumUp();
}

// What screen readers announce.

/** A question or a failure is announced at once. @param {Element} element */
function announce(element) {
  alarm.textContent = element.querySelector(".asked, .message")?.textContent ?? "";
}

let summed = 0;
let lastSum = "";
function sumUp() {
  const head = document.getElementById("head");
  if (!head || Date.now() - summed < 5000) return;
  const open = document.querySelectorAll('[data-parts="o"] > *').length;
  const sum = `${head.dataset.status}, ${open} step${open === 1 ? "" : "s"} open`;
  if (sum === lastSum) return;
  summed = Date.now();
  lastSum = sum;
  statusLine.textContent = sum;
}

function nameTab() {
  const head = document.getElementById("head");
  if (head) {
    const { status, questions, name } = head.dataset;
    const sign = Number(questions) ? `(?${questions}) ` : status === "failed" ? "✗ " : status === "running" ? "● " : "";
    document.title = `${sign}${name} · Bartack`;
  } else if (document.querySelector('#questions[data-parts="r"]')) {
    const open = document.querySelectorAll(".question").length;
    document.title = `${open ? `(?${open}) ` : ""}Questions · Bartack`;
  }
}

// The page as a whole.

const FRAMES = "[data-parts], #head, #actions, #output, #filters, #tabs, #moment, #travel, #left-out, #result, #call, #reply, #opened";

/** Ask for the page again, or for the same page at another entry, and take what it shows. @param {string} address */
async function load(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok) return answer.status;
  const html = await answer.text();
  const page = new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html");
  const before = document.getElementById("main");
  const made = page.getElementById("main");
  const frames = [before, made].map((one) => [...(one?.querySelectorAll(FRAMES) ?? [])]);
  const isSame = frames[0].length === frames[1].length && frames[0].every((one, place) => sameFrame(one, frames[1][place]));
  if (!isSame || !before || !made) {
    if (before && isBusy(before)) return answer.status;
    if (address === location.href) location.reload();
    else location.assign(address);
    return answer.status;
  }
  frames[0].forEach((one, place) => bring(one, frames[1][place]));
  for (const name of ["stream", "server", "now"]) {
    const value = page.body.dataset[name];
    if (value) body.dataset[name] = value;
    else delete body.dataset[name];
  }
  showEmpty();
  nameTab();
  dispatch("load", null);
  return answer.status;
}

/** @param {Element} one @param {Element | undefined} other */
const sameFrame = (one, other) => one.id === other?.id && one.getAttribute("data-parts") === other.getAttribute("data-parts");

/** @param {Element} before @param {Element} made */
function bring(before, made) {
  if (!before.hasAttribute("data-parts")) return void put(before.id, made);
  const wanted = new Set([...made.children].map((child) => child.id));
  for (const child of [...before.children]) if (!wanted.has(child.id)) remove(child.id);
  for (const child of [...made.children]) put(child.id, child);
}

/** @type {Map<string, ((data: any) => void)[]>} */
const listeners = new Map();

/** Receive the events of the stream with a name; `load` when the page was asked for again, `reload` when all of it may be another. @param {string} name @param {(data: any) => void} listener */
export function on(name, listener) {
  listeners.set(name, [...(listeners.get(name) ?? []), listener]);
}

/** @param {string} name @param {any} data */
function dispatch(name, data) {
  for (const listener of listeners.get(name) ?? []) listener(data);
}

// The stream.

/** @type {EventSource | null} */
let source = null;
let seq = 0;
let tries = 0;
let isOver = false;
let lostAt = 0;
/** @type {number | undefined} */
let timer;

/** @param {string} state @param {string} text */
function show(state, text) {
  body.dataset.state = state;
  if (connection) connection.textContent = text;
}

/** The server answers. @param {string} state @param {string} text */
function calm(state, text) {
  tries = 0;
  lostAt = 0;
  warn("");
  show(state, text);
}

/** @param {string} text @param {string} [kind] */
function warn(text, kind = "") {
  banner.textContent = text;
  banner.className = `banner ${kind}`;
  banner.hidden = !text;
}

function address() {
  const url = new URL(body.dataset.stream ?? "", location.origin);
  if (seq) url.searchParams.set("since", String(seq));
  return url;
}

function open() {
  clearTimeout(timer);
  if (source || isOver || document.hidden || !body.dataset.stream) return;
  source = new EventSource(address());
  for (const name of ["hello", "parts", "bars", "talk", "reset", "over"]) {
    source.addEventListener(name, (event) => {
      const { data: text, lastEventId } = /** @type {MessageEvent} */ (event);
      const data = JSON.parse(text);
      seq = Number(lastEventId) || seq; // not `data.seq`: the rest of the frame may still be lost
      handle(name, data);
    });
  }
  source.onerror = () => void lost();
}

function close() {
  source?.close();
  source = null;
}

/** @param {string} name @param {any} data */
function handle(name, data) {
  if (name === "hello") greet(data);
  else if (name === "parts") take(data);
  else if (name === "reset") void again();
  else if (name === "over") end(data.status);
  dispatch(name, data);
}

/** @param {{ server: string }} hello */
function greet(hello) {
  calm("live", "live");
  // Numbers of rows mean nothing in another process of the server.
  if (hello.server !== body.dataset.server) void again();
}

async function again() {
  close();
  seq = 0;
  try {
    const status = await load(location.href);
    if (status === 410) return end("deleted");
  } catch {
    return void lost();
  }
  dispatch("reload", null);
  if (!body.dataset.stream) calm("past", "past entry");
  open();
}

/** Show the run of this page at an entry, or as it is now: then it is kept up to date. @param {string} address @param {boolean} isNow */
export async function visit(address, isNow) {
  close();
  seq = 0;
  try {
    const status = await load(address);
    if (status === 410) return end("deleted");
  } catch {
    return void lost();
  }
  if (!isNow) return calm("past", "past entry");
  isOver = false;
  dispatch("reload", null);
  open();
}

/** @param {string} status */
function end(status) {
  close();
  if (status === "memory") {
    timer = setTimeout(again, 1000);
    return;
  }
  isOver = true;
  show("over", status === "deleted" ? "deleted" : `run ${status}`);
  if (status !== "deleted") return;
  warn("This run was deleted. What was shown of it stays.", "warn");
  body.classList.add("stale");
}

async function lost() {
  close();
  if (isOver) return;
  lostAt ||= Date.now();
  const at = new Date(lostAt).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  show("lost", "not connected");
  warn(`Not connected since ${at}; trying again. What is shown may be old.`, "warn");
  timer = setTimeout(retry, Math.min(500 * 2 ** tries++, 5000));
}

async function retry() {
  try {
    const answer = await fetch(location.href, { method: "HEAD" });
    if (answer.status === 401) {
      show("lost", "not entered");
      warn("The server was started again. Run “bartack web link” and open the link that it prints.", "warn");
      timer = setTimeout(retry, 5000);
      return;
    }
    if (answer.status === 410 || answer.status === 404) return end("deleted");
  } catch {
    return void lost();
  }
  if (isList() || !body.dataset.stream) return void again();
  open();
}

/** The stream of a list does not know what a page has missed. */
const isList = () => !document.getElementById("head");

export function startLive() {
  const head = document.getElementById("head");
  seq = 0;
  if (head?.dataset.status) show("over", body.dataset.stream ? "" : "");
  setInterval(tick, 250);
  setInterval(settle, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    tick();
    if (isList() && body.dataset.stream) void again();
    else open();
  });
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
  open();
}
