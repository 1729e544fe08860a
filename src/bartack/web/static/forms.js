// Sends forms without leaving the page: what becomes of an action is seen when its entry is in the journal.

export function startForms() {
  document.addEventListener("submit", (event) => {
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (form.getAttribute("aria-busy") === "true") return event.preventDefault();
    if (!("live" in form.dataset)) return;
    event.preventDefault();
    void send(form, event.submitter);
  });
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
      redirect: "manual",
    });
    if (answer.type === "opaqueredirect" || answer.ok) return;
    const { error } = await answer.json();
    say(`${error.message}. ${error.help}`);
  } catch {
    say("The server does not answer; nothing was sent.");
  }
  form.removeAttribute("aria-busy");
  submitter?.classList.remove("chosen");
}
