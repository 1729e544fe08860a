// What every page has: it is kept up to date, its forms work without leaving it, and it is used by keyboard.
import { startForms } from "./forms.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";

startForms();
startKeys();
startLive();
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
