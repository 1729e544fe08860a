// One-letter keys. They never fire in a field, and can be switched off.

const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("keys"));

/** @param {string} name @param {string} [value] */
function stored(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    if (value) localStorage.setItem(name, value);
    else localStorage.removeItem(name);
  } catch {
    // Without storage a choice holds for this page.
  }
  return value ?? null;
}

function switchTheme() {
  const root = document.documentElement;
  const next = { "": "light", light: "dark", dark: "" }[root.dataset.theme ?? ""] ?? "";
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  stored("theme", next);
  dispatchEvent(new Event("themechange"));
  announce(`Theme: ${next || "as the system"}`);
}

/** @param {string} text */
function announce(text) {
  const status = document.getElementById("status");
  if (status) status.textContent = text;
}

/** @param {number} by */
function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.getClientRects().length);
  const active = document.activeElement;
  const here = rows.findIndex((row) => row.contains(active));
  const next = rows[here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(here + by, 0), rows.length - 1)];
  const target = /** @type {HTMLElement | null} */ (next?.querySelector("a, button, input, textarea") ?? next);
  if (!target) return;
  if (target === next) target.tabIndex = -1;
  target.focus();
  next.scrollIntoView({ block: "nearest" });
}

/** @param {string} key */
function answer(key) {
  const card = document.activeElement?.closest(".question") ?? null;
  const button = card?.querySelector(`button[data-key="${CSS.escape(key)}"]`);
  if (!button) return false;
  /** @type {HTMLElement} */ (button).click();
  return true;
}

function toQuestion() {
  const card = document.querySelector(".question:not(.over)");
  if (!card) return location.assign("/questions");
  card.scrollIntoView({ block: "nearest" });
  /** @type {HTMLElement | null} */ (card.querySelector("form button, form textarea, form input:not([type=hidden]), a"))?.focus();
}

async function copy() {
  await navigator.clipboard.writeText(location.href);
  announce("The address was copied.");
}

function toFailure() {
  const tab = document.querySelector('.tabs a[href*="/failure"]');
  if (tab) return location.assign(/** @type {HTMLAnchorElement} */ (tab).href);
  document.getElementById("failure")?.scrollIntoView();
}

/** @type {Record<string, () => void>} */
const KEYS = {
  "?": () => dialog.showModal(),
  "/": () => document.getElementById("search")?.focus(),
  j: () => step(1),
  k: () => step(-1),
  a: toQuestion,
  e: toFailure,
  c: () => void copy(),
  t: switchTheme,
};

/** @type {Record<string, string>} */
const PLACES = { r: "/runs", q: "/questions", p: "/patterns" };

/** Let a page have keys of its own. @param {Record<string, () => void>} more */
export function addKeys(more) {
  Object.assign(KEYS, more);
}

/** Close the menus that are open, but not one that an element is in. What was filled in is dropped, and the focus stays. @param {EventTarget | null} inside */
function closeMenus(inside) {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (menu.contains(/** @type {Node | null} */ (inside))) continue;
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.removeAttribute("open");
    for (const form of menu.querySelectorAll("form")) form.reset();
  }
}

let isGoing = false;

/** @param {KeyboardEvent} event */
function press(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === "Escape") closeMenus(null);
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialog.open) return;
  if (target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
    if (event.key === "Escape" && document.activeElement === target) target.blur();
    return;
  }
  if (stored("keys") === "off") return;
  const { key } = event;
  if (isGoing) {
    isGoing = false;
    if (!PLACES[key]) return;
    event.preventDefault();
    return location.assign(PLACES[key]);
  }
  if (key === "g") return void (isGoing = true);
  const tab = /^[1-9]$/.test(key) ? document.querySelectorAll(".tabs a")[Number(key) - 1] : null;
  if (answer(key)) event.preventDefault();
  else if (tab) location.assign(/** @type {HTMLAnchorElement} */ (tab).href);
  else if (KEYS[key]) {
    event.preventDefault();
    KEYS[key]();
  }
}

export function startKeys() {
  const on = /** @type {HTMLInputElement} */ (document.getElementById("keys-on"));
  on.checked = stored("keys") !== "off";
  on.addEventListener("change", () => stored("keys", on.checked ? "" : "off"));
  document.getElementById("show-keys")?.addEventListener("click", () => dialog.showModal());
  document.getElementById("switch-theme")?.addEventListener("click", switchTheme);
  document.addEventListener("click", (event) => closeMenus(event.target));
  document.addEventListener("keydown", press);
}
