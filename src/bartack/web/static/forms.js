// Sends forms without leaving the page: what becomes of an action is seen when its entry is in the journal.
//
// `aria-busy`: the form is being sent. `data-sent`: it was sent. Then it cannot be sent again, and may be replaced by what comes.
import { settle } from "./live.js";

export function startForms() {
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (form.getAttribute("aria-busy") === "true" || "sent" in form.dataset || !hasChoice(form)) return event.preventDefault();
    if (!("live" in form.dataset)) return;
    event.preventDefault();
    void send(form, event.submitter);
  });
}

/** Whether something is chosen in a form that needs it; says so if nothing is. @param {HTMLFormElement} form */
function hasChoice(form) {
  if (!("choose" in form.dataset) || form.querySelector("input:checked")) return true;
  const outcome = /** @type {HTMLElement | null} */ (form.querySelector(".outcome"));
  if (outcome) outcome.textContent = outcome.dataset.none ?? "";
  return false;
}

/** @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
async function send(form, submitter) {
  const fields = new FormData(form, submitter);
  const outcome = form.querySelector(".outcome");
  const say = (/** @type {string} */ text) => outcome && (outcome.textContent = text);
  form.setAttribute("aria-busy", "true");
  submitter?.classList.add("chosen");
  say("Sent; waiting for the run…");
  try {
    const answer = await fetch(form.action, {
      method: "POST",
      headers: { Accept: "application/json" },
      // @ts-ignore - all fields are texts
      body: new URLSearchParams(fields),
    });
    const found = await answer.json();
    if (answer.ok) form.dataset.sent = "";
    else submitter?.classList.remove("chosen");
    if (found.error) say(`${found.error.message}. ${found.error.help}`);
    else if (found.kept) say("No process runs this run. The answer is kept until the run is resumed.");
  } catch {
    say("The server does not answer; nothing was sent.");
    submitter?.classList.remove("chosen");
  }
  form.removeAttribute("aria-busy");
  settle();
}
