// Moves through the entries of a run: by the slider below the timeline, and by keys.
import { addKeys } from "./keys.js";

const range = /** @type {HTMLInputElement | null} */ (document.getElementById("travel-range"));
const at = /** @type {HTMLInputElement | null} */ (document.getElementById("travel-at"));

/** @param {string} name */
const go = (name) => () => {
  const link = /** @type {HTMLAnchorElement | null} */ (document.querySelector(`[data-travel="${name}"]`));
  if (link) location.assign(link.href);
};

range?.addEventListener("input", () => at && (at.value = range.value));
range?.addEventListener("change", () => range.form?.requestSubmit());
addKeys({ "[": go("back"), "]": go("on"), "{": go("mark-before"), "}": go("mark-after"), l: go("live") });
