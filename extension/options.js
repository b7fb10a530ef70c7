/** Options: pairing with the user's server, the language of the panel, sites that pictures may be read from. */
import { at, element, explained, loadTexts, tell, text } from "./ui.js";

/** @param {...(Node|string)} parts */
const say = (...parts) => at("state").replaceChildren(...parts);

/** A button whose failure is said.
 * @param {string} id @param {() => Promise<any>} work */
function pressed(id, work) {
  at(id).addEventListener("click", () => work().catch((error) =>
    say(explained({ key: "failed", detail: String(error) }, at("address").value))));
}

async function showState() {
  const { address, paired, problem } = await tell("status");
  at("address").value = address;
  at("unpair").hidden = !paired;
  if (problem) say(explained(problem, address));
  else say(element("p", {}, text("paired", address)));
}

async function saveAddress() {
  const answer = await tell("address", { address: at("address").value });
  if (answer.problem) say(explained(answer.problem, at("address").value));
  return !answer.problem;
}

async function waitForAnswer() {
  for (;;) {
    const answer = await tell("pairing");
    if (answer.problem) return say(explained(answer.problem, at("address").value));
    if (answer.state === "paired") return showState();
    if (answer.state !== "pending") return say(element("p", { role: "alert" }, text(`pair_${answer.state}`)));
    await new Promise((done) => setTimeout(done, 1000));
  }
}

/** Which keys the browser has given to the extension. */
async function showKeys() {
  const all = await chrome.commands.getAll();
  const rows = [["auditPage", "_execute_action", "audit"], ["auditArea", "area"]].map(([name, ...commands]) => {
    const keys = all.filter((each) => each.shortcut && commands.includes(each.name ?? "")).map((each) => each.shortcut);
    return element("li", {}, `${text(name)}: ${keys.join(", ") || "–"}`);
  });
  at("keys").replaceChildren(...rows);
}

async function showOrigins() {
  const origins = await tell("origins");
  at("origins").replaceChildren(...(origins.length ? origins : [""]).map((/** @type {string} */ origin) => (origin
    ? element("div", { className: "row" }, origin, element("button", { onclick: () => disallow(origin) }, text("remove")))
    : element("p", { className: "small" }, text("noSites")))));
}

/** @param {string} origin */
async function disallow(origin) {
  const { protocol, hostname } = new URL(origin);
  await tell("disallow", { origin });
  await chrome.permissions.remove({ origins: [`${protocol}//${hostname}/*`] }).catch(() => {});
  await showOrigins();
}

async function main() {
  const { language } = await tell("settings");
  await loadTexts(language);
  at("language").value = language;
  at("language").addEventListener("change", async () => {
    await tell("keep", { values: { language: at("language").value } });
    location.reload();
  });
  at("address").addEventListener("change", saveAddress);
  pressed("pair", async () => {
    if (!await saveAddress()) return;
    const asked = await tell("pair");
    if (asked.problem) return say(explained(asked.problem, at("address").value));
    say(element("p", {}, text("pairCompare")), element("code", { className: "code" }, asked.code));
    await waitForAnswer();
  });
  pressed("unpair", async () => {
    const { told } = await tell("unpair");
    await showState();
    if (!told) say(element("p", { role: "alert" }, text("revokedHere")));
  });
  pressed("paste", async () => {
    if (!await saveAddress()) return;
    const answer = await tell("paste", { token: at("token").value });
    at("token").value = "";
    if (answer.problem) return say(explained(answer.problem, at("address").value));
    await showState();
  });
  pressed("shortcuts", () => chrome.tabs.create({ url: "chrome://extensions/shortcuts" }));
  await showKeys();
  await showState();
  // Whatever is typed before this would be mixed with the address that is shown.
  for (const id of ["address", "pair"]) at(id).disabled = false;
  await showOrigins();
}

main();
