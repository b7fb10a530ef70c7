/** What the pages of the extension share: elements, texts in the chosen language, and the result as a table. */

/** @param {string} name @param {Record<string, any>} [properties] @param {...(Node|string|null)} children */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && !key.startsWith("aria")) /** @type {any} */ (made)[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null));
  return made;
}

/** @param {string} id @returns {any} */
export const at = (id) => document.getElementById(id);

/** @type {Record<string, {message: string}>} */
let texts = {};
export let language = "en";

/** @param {string} chosen */
export async function loadTexts(chosen) {
  language = (chosen || chrome.i18n.getUILanguage()).slice(0, 2) === "de" ? "de" : "en";
  const own = await (await fetch(chrome.runtime.getURL(`_locales/${language}/messages.json`))).json();
  texts = own;
  document.documentElement.lang = language;
  for (const each of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-text]"))) {
    each.textContent = text(each.dataset.text ?? "");
  }
}

/** @param {string} key @param {...(string|number)} values fill $1, $2, … */
export function text(key, ...values) {
  const known = texts[key]?.message ?? key;
  return known.replace(/\$(\d)/g, (_, number) => String(values[Number(number) - 1] ?? ""));
}

/** @param {string} type @param {Record<string, unknown>} [more] @returns {Promise<any>} */
export async function tell(type, more = {}) {
  for (let left = 2; ; left--) {
    try {
      return (await chrome.runtime.sendMessage({ type, ...more })) ?? {};
    } catch (error) {
      if (!left) throw error; // the worker was stopped while it answered; the next message starts it
      await new Promise((done) => setTimeout(done, 200));
    }
  }
}

/** @param {number} share */
export const percent = (share) => `${Math.round(100 * share)} %`;

/** @param {number[]} limits */
export const range = (limits) => `${Math.round(100 * limits[0])}–${Math.round(100 * limits[1])} %`;

/** @param {{key: string, detail: string}} problem @param {string} address */
export function explained(problem, address) {
  const parts = [element("p", {}, text(`problem_${problem.key}`, address, problem.detail))];
  if (problem.key === "notRunning") parts.push(element("pre", {}, "divscore serve --control CONTROL_SET"));
  return element("div", { role: "alert" }, ...parts);
}

/** Whether items of a page are still to come: from the page itself, or from the encoder.
 * @param {any} result @param {any} run */
export const unfinished = (result, run) => run.state !== "cancelled" && (!result || result.state === "working" || run.reading);

/** The result of a page as elements: shares with intervals, or why there are none.
 * @param {any} result @param {any} run */
export function shown(result, run) {
  const skipped = Object.entries(result.skipped).map(([reason, number]) => `${text(`skip_${reason.replace(/\W/g, "_")}`)
    .replace(/^skip_/, "")}: ${number}`);
  const counts = [text(result.mode === "text" ? "usedTexts" : "usedPictures", result.used)];
  if (run.depth || run.full) counts.push(text("firstItems", run.depth || (1000).toLocaleString(language)));
  if (run.repeats) counts.push(text("repeats", run.repeats));
  const { few } = result;
  const busy = unfinished(result, run);
  const known = result.shares && Object.values(result.shares).every((share) => share !== null);
  const target = result.target ?? null;
  const parts = [];
  if (busy) parts.push(element("p", { className: "small" }, text("working", result.used)));
  else if (few) parts.push(element("p", { className: "headline" }, text("tooFew", result.used, result.fewest)));
  if (known && !few) {
    const names = Object.keys(result.shares);
    const weighted = result.rank_weighted;
    const head = ["group", "share", ...(weighted ? ["weighted"] : []), ...(target ? ["target"] : [])];
    parts.push(element("table", {},
      element("caption", {}, result.attribute),
      element("thead", {}, element("tr", {}, ...head.map((key) => element("th", { scope: "col" }, text(key))))),
      element("tbody", {}, ...names.map((name) => element("tr", {},
        element("th", { scope: "row" }, name),
        element("td", {}, percent(result.shares[name]), " ",
          element("span", { className: "range" }, range(result.share_intervals[name]))),
        ...(weighted ? [element("td", {}, percent(weighted[name]), " ",
          element("span", { className: "range" }, range(result.rank_weighted_intervals[name])))] : []),
        ...(target ? [element("td", {}, target.shares[name] === undefined ? "" : percent(target.shares[name]))] : []),
      )))));
    parts.push(bars(names, result));
  }
  // Of no item at all, it says what went wrong.
  if (result.message && (!few || !result.used)) parts.push(element("p", { className: "headline", lang: "en" }, result.message));
  if (result.trust && !few) {
    parts.push(element("p", { className: `trust ${result.trust}` }, text(`trust_${result.trust}`)));
  }
  if (target?.source) parts.push(element("p", { className: "small" }, text("targetSource", target.source)));
  for (const warning of few ? [] : result.warnings.slice(0, 4)) {
    parts.push(element("p", { className: "small", lang: "en" }, warning));
  }
  parts.push(element("p", { className: "small" }, counts.join(" · ")));
  if (skipped.length) parts.push(element("p", { className: "small" }, text("skipped", skipped.join(", "))));
  if (known && !few && result.variation) {
    const { runs, spread } = result.variation;
    const each = Object.entries(spread).map(([name, value]) => `${name} ±${Math.round(100 * Number(value))}`);
    parts.push(element("p", { className: "small" }, text("variation", runs, each.join(", "))));
  }
  parts.push(element("p", { className: "small" }, text("controlSet", run.control)));
  return parts;
}

/** One line for each group: its interval, and its share.
 * @param {string[]} names @param {any} result */
function bars(names, result) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 200 ${14 * names.length}`);
  svg.setAttribute("aria-hidden", "true"); // the table has the same numbers
  /** @param {string} kind @param {Record<string, number|string>} values */
  const add = (kind, values) => {
    const made = document.createElementNS(space, kind);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, String(value));
    svg.append(made);
  };
  names.forEach((name, row) => {
    const [low, high] = result.share_intervals[name], y = 14 * row;
    add("rect", { x: 0, y: y + 6, width: 200, height: 2, class: "axis" });
    add("rect", { x: 200 * low, y: y + 3, width: Math.max(1, 200 * (high - low)), height: 8, rx: 3, class: "range" });
    add("circle", { cx: 200 * result.shares[name], cy: y + 7, r: 4, class: "share" });
    const wanted = result.target?.shares[name];
    if (wanted !== undefined) add("rect", { x: 200 * wanted - 1, y, width: 2, height: 14, class: "target" });
  });
  return svg;
}
