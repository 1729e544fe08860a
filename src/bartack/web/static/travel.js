// Moves through the entries of a run: by the slider below the timeline, by number, by links and by keys.
//
// The line in the timeline moves at once. What the page shows at that entry is asked for when the hand rests, one request at a time.
import { addKeys } from "./keys.js";
import { onPart, visit } from "./live.js";
import { marksAround, moveTo } from "./timeline.js";

const REST_MS = 60;

const range = /** @type {HTMLInputElement} */ (document.getElementById("travel-range"));
const number = /** @type {HTMLInputElement} */ (document.getElementById("travel-at"));
const base = location.pathname;

/** The entry that is wanted; 0: the run as it is now. */
let wanted = Number(document.getElementById("timeline")?.dataset.at ?? 0);
let shown = wanted;
/** @type {number | undefined} */
let timer;
let isLoading = false;

const isMoving = () => isLoading || timer !== undefined;
const here = () => wanted || Number(range.max);
/** @param {number} seq */
const address = (seq) => (seq ? `${base}?at=${seq}` : base);

/** Show the run after an entry; the last one is the run as it is now. @param {number} seq */
function move(seq) {
  const last = Number(range.max);
  const to = Math.min(Math.max(Math.round(seq) || 1, 1), last);
  wanted = to < last ? to : 0;
  range.value = number.value = String(to);
  moveTo(wanted);
  clearTimeout(timer);
  timer = wanted === shown && !isLoading ? undefined : setTimeout(load, REST_MS);
}

async function load() {
  timer = undefined;
  if (isLoading) return;
  isLoading = true;
  let to;
  do {
    to = wanted;
    await visit(address(to), to === 0);
    shown = to;
  } while (to !== wanted);
  isLoading = false;
  history.replaceState(null, "", address(to));
  range.value = number.value = range.defaultValue;
}

// The slider stays where it is: a hand may be on it. The words and links around it are replaced.
onPart("travel", (before, made) => {
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.travel;
  const places = [before, made].map((one) => [...one.querySelectorAll(".ways, .fork, .of")]);
  places[0].forEach((one, place) => {
    if (!one.querySelector("details[open]")) one.replaceWith(places[1][place]);
  });
  if (focused) (/** @type {HTMLElement | null} */ (before.querySelector(`[data-travel="${focused}"]`)) ?? number).focus();
  const other = /** @type {HTMLInputElement} */ (made.querySelector("#travel-range"));
  const isTyping = number === document.activeElement && number.value !== number.defaultValue;
  range.max = other.max;
  range.defaultValue = number.defaultValue = other.defaultValue;
  if (isMoving()) return;
  range.value = range.defaultValue;
  if (!isTyping) number.value = range.defaultValue;
});

range.addEventListener("input", () => move(Number(range.value)));
range.form?.addEventListener("submit", (event) => {
  event.preventDefault();
  move(Number(number.value));
});
document.addEventListener("click", (event) => {
  const link = /** @type {HTMLElement} */ (event.target).closest?.("a[data-travel]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const at = new URL(/** @type {HTMLAnchorElement} */ (link).href).searchParams.get("at");
  move(at ? Number(at) : Number(range.max));
});
addKeys({
  "[": () => move(here() - 1),
  "]": () => move(here() + 1),
  "{": () => move(marksAround(here()).before || here()),
  "}": () => move(marksAround(here()).after || here()),
  l: () => move(Number(range.max)),
});
moveTo(wanted);
