/** The panel of one tab: asks the service worker for the result, which the page never sees. */
import { at, element, explained, loadTexts, shown, tell, text, unfinished } from "./ui.js";

const POLL_MS = { working: 600, ready: 1500 };
let nonce = "";
let before = "";

/** @param {string} type @param {Record<string, unknown>} [more] */
const say = (type, more = {}) => tell(type, { nonce, ...more });

/** @param {any} answer */
function draw({ run, result, problem, address = "" }) {
  const now = JSON.stringify([run, result, problem]);
  if (now === before) return; // a screen reader should not hear it again
  before = now;
  const trouble = problem ?? run?.problem;
  /** @param {string} name @param {string} type @param {object} [more] */
  const way = (name, type, more = {}) => element("button", { onclick: () => say(type, { ...more }) }, text(name));
  // Without an audit, only a click on the icon helps.
  const ways = trouble?.key === "noAudit" ? [] : [way("tryAgain", "again"), way("options", "options")];
  const parts = trouble ? [explained(trouble, run?.address ?? address), element("div", { className: "row" }, ...ways)]
    : run.state === "cancelled" ? [element("p", {}, text("cancelled")),
      element("div", { className: "row" }, way("auditPage", "again"), way("area", "again", { area: true }))]
    : !result || (result.state === "empty" && run.reading) ? [element("p", {}, text("reading"))]
    : shown(result, run);
  at("result").ariaBusy = String(!trouble && unfinished(result, run)); // read aloud when it is complete
  at("result").replaceChildren(...parts);
  at("actions").hidden = !result || !result.used;
  at("evidence").hidden = !run?.saved;
  const origins = Object.entries(run?.origins ?? {}).sort((a, b) => Number(b[1]) - Number(a[1])).slice(0, 3);
  at("allow").replaceChildren(...(trouble ? [] : origins.map(([origin, number]) => element("div", { className: "row" },
    element("span", { className: "small" }, text("elsewhere", String(number), origin)),
    element("button", { onclick: () => allow(origin) }, text("allow"))))));
}

/** @param {string} origin */
async function allow(origin) {
  const { protocol, hostname } = new URL(origin);
  if (await chrome.permissions.request({ origins: [`${protocol}//${hostname}/*`] })) await say("allowed", { origin });
}

async function poll() {
  for (;;) {
    let answer;
    try {
      answer = await say("result");
    } catch (error) {
      answer = { problem: { key: "failed", detail: String(error) } };
    }
    draw(answer);
    const ready = answer.problem || (answer.run && !unfinished(answer.result, answer.run));
    await new Promise((done) => setTimeout(done, ready ? POLL_MS.ready : POLL_MS.working));
  }
}

/** @param {string} id @param {() => Promise<any>} work */
function button(id, work) {
  at(id).addEventListener("click", async (/** @type {Event} */ event) => {
    if (!event.isTrusted || at(id).ariaDisabled === "true") return;
    at(id).ariaDisabled = "true"; // a button that is disabled loses the focus
    const answer = await work().catch((error) => ({ problem: { key: "failed", detail: String(error) } }));
    at(id).ariaDisabled = "false";
    if (answer?.problem) at("saved").textContent = text(`problem_${answer.problem.key}`, "", answer.problem.detail);
  });
}

button("close", () => say("close"));
button("settings", () => say("popup"));
button("report", () => say("report"));
button("evidence", () => say("evidence"));
button("area", () => say("again", { area: true }));
button("save", async () => {
  const { pictures } = await say("settings");
  const answer = await say("save", { withPictures: pictures, note: "" });
  if (!answer.problem) {
    const words = [text("savedAs", answer.audit)];
    if (pictures && answer.mode === "image") words.push(text("savedPictures", answer.pictures, answer.items));
    if (!answer.screenshot) words.push(text("noScreenshot"));
    at("saved").textContent = words.join(" ");
  }
  return answer;
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") say("close");
});
// The content script sends the number of this panel; a page that shows this file itself does not know it.
addEventListener("message", async ({ data }) => {
  if (nonce || typeof data?.nonce !== "string") return;
  nonce = data.nonce;
  const settings = await say("settings");
  if (settings.problem) return;
  await loadTexts(settings.language);
  poll();
});
