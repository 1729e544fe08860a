// Exchanges the code in the fragment of the link for a session. The fragment never leaves the browser otherwise.

const state = /** @type {HTMLElement} */ (document.getElementById("enter-state"));
const code = location.hash.slice(1);

/** @param {string} code */
async function enter(code) {
  state.textContent = "Entering…";
  const answer = await fetch("/enter", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify({ code }),
  });
  const found = await answer.json();
  if (answer.ok) location.replace(found.to);
  else state.textContent = `${found.error.message}. ${found.error.help}`;
}

if (code) {
  history.replaceState(null, "", location.pathname);
  enter(code).catch(() => (state.textContent = "The server does not answer."));
}
