// Which page is shown: the part after # in the address names it, so that links, reload and Back work.

import { connection, Problem } from "./api.js";
import { complain, fill, h } from "./element.js";

/** Pages by the first part of the address; each module has `mount(main, route)`. */
const PAGES = {
  "": "./start.js",
  label: "./label.js",
  settle: "./settle.js",
  curate: "./curate.js",
  audits: "./audits.js",
  watch: "./watch.js",
  pages: "./pages.js",
};

const main = document.getElementById("main");
let leave = new AbortController();
let unmount = () => {};

/** Go to another page. @param {string} address such as "#/label/3" */
export const go = (address) => {
  if (location.hash === address) show();
  else location.hash = address;
};

/** Take another address for this page without loading it anew. @param {string} address */
export const rename = (address) => history.replaceState(null, "", address);

async function show() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  if (name === "main") return; // the link that skips to the page
  leave.abort(new DOMException("Another page is shown", "AbortError"));
  leave = new AbortController();
  const { signal } = leave;
  document.querySelectorAll("dialog[open]").forEach((box) => box.close()); // what it asks is about the other page
  try {
    await unmount();
  } catch (error) {
    complain(error);
  }
  unmount = () => {};
  document.querySelectorAll("#nav a").forEach((link) => {
    const here =
      link.getAttribute("href") === `#/${name}` || (name === "settle" && link.getAttribute("href") === "#/label");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  fill(main);
  main.className = name || "start";
  main.setAttribute("aria-busy", "true");
  window.scrollTo(0, 0);
  try {
    if (!(name in PAGES)) throw new Problem(404, "Not found", "There is no such page");
    const module = await import(PAGES[name]);
    if (signal.aborted) return;
    const done = await module.mount(main, { parts, query: new URLSearchParams(search), signal, title });
    if (!signal.aborted) unmount = done ?? unmount;
    else await done?.();
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    failed(error);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
  if (signal.aborted) return;
  // Whoever does not see the page learns that it changed; a page may have put the focus on something already.
  const heading = main.querySelector("h1");
  if (heading && !main.contains(document.activeElement)) {
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

function failed(error) {
  const again = h("button.primary", { type: "button", onclick: show }, "Try again");
  title("Problem");
  fill(
    main,
    h(
      "div.page",
      h("h1", error.status === 404 ? "Not found" : "This page cannot be shown"),
      h("p.lead", error.readable ? error.message : "Something went wrong in this page."),
      h("div.actions", again, h("a.button", { href: "#/" }, "Go to the start page")),
    ),
  );
  if (!error.readable) console.error(error);
}

/** The title of the window. @param {string} text */
function title(text) {
  document.title = text ? `${text} · divscore` : "divscore";
}

/** What waits for the server, as a sentence; pages that keep something set it. */
export const waiting = { text: () => "" };

/** Show or hide the line that says that the server does not answer. */
export function showConnection() {
  const banner = document.getElementById("banner");
  const text = connection.up
    ? ""
    : [
        "divscore does not answer.",
        waiting.text() || "Start it again in the terminal: this page then continues by itself.",
      ].join(" ");
  if (banner.textContent !== text) banner.textContent = text;
}

connection.addEventListener("change", showConnection);
window.addEventListener("hashchange", show);
show();
