/**
 * Service worker: one audit for each tab. It may be stopped at any moment, so all state is in storage.session, and
 * every listener is registered at once. Content scripts never name a page audit: it is the one of their tab.
 */
import { Refusal, ask, askToPair, browserName, load, loopback, pairing, pollPairing, prove, sha256, unpair } from "./server.js";
import "./pictures.js";

const pictures = globalThis.divscorePictures;
const HOME = chrome.runtime.getURL("");
const QUERIES = ["q", "query", "search_query", "search", "text", "p", "keyword", "k"];
const DEFAULTS = { control: 0, mode: "auto", depth: 0, run: "", study: "", language: "", targets: {}, pictures: false };
const MOST_FETCHED = 12;

/**
 * @typedef {{nonce: string, state: "starting"|"running"|"cancelled"|"problem", problem: {key: string, detail: string}|null,
 *   page: number, control: string, mode: string, depth: number, area: boolean, url: string, title: string,
 *   saved: number, origins: Record<string, number>, repeats: number, full: boolean, part: number[]|null,
 *   reading: boolean}} Run `reading`: items of the page are still to come
 * @typedef {{control: number, mode: string, depth: number, run: string, study: string, language: string,
 *   targets: Record<string, {shares: Record<string, number>, source: string}>, pictures: boolean}} Settings
 */

// The token is nothing for content scripts.
chrome.storage.local.setAccessLevel?.({ accessLevel: "TRUSTED_CONTEXTS" });

/** @returns {Promise<Settings>} */
async function settings() {
  const { settings: own = {} } = await chrome.storage.local.get("settings");
  return { ...DEFAULTS, .../** @type {object} */ (own) };
}

/** @param {number} tab @returns {Promise<Run|null>} */
async function runOf(tab) {
  const name = `run:${tab}`;
  return /** @type {any} */ ((await chrome.storage.session.get(name))[name] ?? null);
}

/** @type {Promise<unknown>} */
let changes = Promise.resolve();

/** Replace the audit of a tab, one change after the other; returns the one before.
 * @param {number} tab @param {(run: Run|null) => Run|null} next @returns {Promise<Run|null>} */
function replace(tab, next) {
  const done = changes.then(async () => {
    const before = await runOf(tab), after = next(before), name = `run:${tab}`;
    if (after) await chrome.storage.session.set({ [name]: after });
    else await chrome.storage.session.remove(name);
    return before;
  });
  changes = done.catch(() => {});
  return done;
}

/** Change what is known of an audit, unless the tab has another one by now; returns whether it is still there.
 * @param {number} tab @param {Run} run @param {Partial<Run>} values */
async function change(tab, run, values) {
  const before = await replace(tab, (now) => (now?.nonce === run.nonce ? { ...now, ...values } : now));
  return before?.nonce === run.nonce;
}

/** @param {number} tab @param {Record<string, unknown>} message @returns {Promise<any>} */
const tell = (tab, message) => chrome.tabs.sendMessage(tab, message, { frameId: 0 });

/** @param {number} ms */
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** @param {unknown} error */
function problem(error) {
  if (error instanceof Refusal) return { key: error.key, detail: error.detail };
  return { key: "failed", detail: String(error) };
}

/** @param {number} tab @param {string} text */
async function badge(tab, text) {
  await chrome.action.setBadgeText({ tabId: tab, text }).catch(() => {});
}

/** A click starts an audit where everything is ready; otherwise it opens the popup, which says what is missing. */
async function choosePopup() {
  const { token } = await pairing();
  await chrome.action.setPopup({ popup: token ? "" : "popup.html" });
}

/** Show the popup, whatever a click does. */
async function openPopup() {
  await chrome.action.setPopup({ popup: "popup.html" });
  try {
    // Some browsers answer only when the popup is closed, and a click must work again before that.
    await Promise.race([chrome.action.openPopup(), new Promise((done) => setTimeout(done, 500))]);
  } catch {
    await chrome.tabs.create({ url: "popup.html" });
  } finally {
    await choosePopup();
  }
}

/** Audits that this worker is starting; one that is not in here was started by a worker that was stopped.
 * @type {Set<string>} */
const starting = new Set();

/** Audit what a tab shows.
 * @param {chrome.tabs.Tab|undefined} tab @param {boolean} [area] */
async function start(tab, area = false) {
  if (!tab?.id) return;
  /** @type {Run} */
  const run = {
    nonce: crypto.randomUUID(), state: "starting", problem: null, page: 0, control: "", mode: "", depth: 0, area,
    url: tab.url ?? "", title: tab.title ?? "", saved: 0, origins: {}, repeats: 0, full: false, part: null,
    reading: true,
  };
  starting.add(run.nonce);
  await begin(tab.id, run).finally(() => starting.delete(run.nonce));
}

/** @param {number} id @param {Run} run */
async function begin(id, run) {
  await forget(id, null, run);
  try {
    await chrome.scripting.executeScript({ target: { tabId: id }, files: ["pictures.js", "collect.js"] });
  } catch (error) {
    // Pages of the browser, of its store, and files are closed to extensions.
    await change(id, run, { state: "problem", problem: { key: "closedPage", detail: String(error) } });
    await badge(id, "!");
    await openPopup();
    return;
  }
  try {
    const text = await messages();
    if (!await change(id, run, {})) return; // a second click was faster
    const seen = await tell(id, { type: "open", nonce: run.nonce, title: text("panelTitle") });
    await prove();
    const chosen = await settings();
    const controls = await ask("GET", "/control-sets");
    const control = controls.find((/** @type {any} */ each) => each.id === chosen.control) ?? controls[0];
    if (!control) throw new Refusal("noControl");
    const layout = await layoutOf(run.url);
    const wanted = chosen.targets[control.id];
    // Another project may have another control set with this number.
    const target = wanted && Object.keys(wanted.shares).every((name) => control.groups.includes(name)) ? wanted : null;
    const { id: page, mode } = await ask("POST", "/page-audits", {
      control: control.id, mode: chosen.mode === "auto" ? null : chosen.mode, url: run.url,
      title: run.title.slice(0, 2000), query: queryOf(run.url, layout),
      language: seen.language, viewport: seen.viewport, run: chosen.run, study: chosen.study, client: browserName(),
      depth: chosen.depth || null, ...(target ? { target: target.shares, target_source: target.source } : {}),
    });
    const running = { state: /** @type {const} */ ("running"), page, control: control.name, mode, depth: chosen.depth };
    if (!await change(id, run, running)) {
      await ask("DELETE", `/page-audits/${page}`); // a second click, or the tab is closed
      return;
    }
    await badge(id, "…");
    const plan = { nonce: run.nonce, mode, depth: chosen.depth, area: run.area, layout, panel: text("drawArea") };
    await tell(id, { type: "collect", plan });
  } catch (error) {
    if (await change(id, run, { state: "problem", problem: problem(error) })) await badge(id, "!");
  }
}

/** Remove the audit of a tab, here and on the server unless it was saved.
 * @param {number} tab @param {Run|null} [only] not another one @param {Run|null} [next] takes its place */
async function forget(tab, only = null, next = null) {
  const run = await replace(tab, (now) => (only && now?.nonce !== only.nonce ? now : next));
  if (!run?.page || run.saved || (only && run.nonce !== only.nonce)) return;
  await ask("DELETE", `/page-audits/${run.page}`).catch(() => {});
}

/** @param {string} url */
async function layoutOf(url) {
  const { layouts } = await (await fetch(`${HOME}layouts.json`)).json();
  let at;
  try {
    at = new URL(url);
  } catch {
    return null;
  }
  return layouts.find((/** @type {any} */ each) => new RegExp(each.host).test(at.hostname)
    && at.pathname.startsWith(each.path ?? "/")
    && Object.entries(each.parameters ?? {}).every(([name, value]) => at.searchParams.get(name) === value)) ?? null;
}

/** @param {string} url @param {{query?: string}|null} layout */
function queryOf(url, layout) {
  try {
    const words = new URL(url).searchParams;
    if (/^\d+$/.test(words.get("p") ?? "")) words.delete("p"); // the number of a page of results
    const name = [layout?.query, ...QUERIES].find((each) => each && words.has(each));
    return (name ? words.get(name) ?? "" : "").slice(0, 2000);
  } catch {
    return "";
  }
}

/** The texts of the chosen language. */
async function messages() {
  const { language } = await settings();
  const name = (language || chrome.i18n.getUILanguage()).slice(0, 2) === "de" ? "de" : "en";
  const texts = await (await fetch(`${HOME}_locales/${name}/messages.json`)).json();
  return (/** @type {string} */ key) => String(texts[key]?.message ?? key);
}

/** Send items of one batch; the digest of a content is its id, so repeats are one item.
 * @param {Run} run @param {{rank: number, image?: string, text?: string}[]} items */
async function sendItems(run, items) {
  const ids = await Promise.all(items.map(({ image, text }) =>
    sha256(image === undefined ? new TextEncoder().encode(text) : pictures.bytes(image))));
  const unique = new Map(items.map((item, at) => [ids[at], { id: ids[at], ...item }]));
  if (unique.size) await ask("POST", `/page-audits/${run.page}/items`, { items: [...unique.values()] });
  return ids;
}

/** Pictures of sites that the user has allowed, without cookies; never of the server itself.
 * @param {string} url */
async function fetchPicture(url) {
  const at = new URL(url);
  const { origins = [] } = await chrome.storage.local.get("origins");
  const { address } = await pairing();
  if (!["http:", "https:"].includes(at.protocol) || at.origin === address) throw new Error("unsupported");
  const allowed = /** @type {string[]} */ (origins).includes(at.origin)
    && await chrome.permissions.contains({ origins: [`${at.protocol}//${at.hostname}/*`] });
  if (!allowed) throw new Error("no permission");
  let answer;
  try {
    answer = await fetch(at, {
      cache: "force-cache", credentials: "omit", redirect: "manual", referrerPolicy: "no-referrer",
      signal: AbortSignal.timeout(10_000),
    });
  } catch {
    throw new Error("not readable");
  }
  if (answer.type === "opaqueredirect") throw new Error("screen only"); // to a site that was not allowed
  return pictures.prepared(await pictures.body(answer));
}

/** A picture of a tab, or null: if it is not shown, or the browser has made enough pictures in this second.
 * @param {number} tab @param {string} [format] @returns {Promise<string|null>} */
async function capture(tab, format = "png") {
  try {
    const { active, windowId } = await chrome.tabs.get(tab);
    if (!active) return null;
    const url = await chrome.tabs.captureVisibleTab(windowId, /** @type {any} */ ({ format, quality: 80 }));
    // Another tab may have come to the front meanwhile.
    return (await chrome.tabs.get(tab)).active ? url.slice(url.indexOf(",") + 1) : null;
  } catch {
    return null;
  }
}

/** Pictures that the page itself cannot read go back to its content script only if evidence is to have them.
 * @returns {Promise<(image: string) => string|undefined>} */
async function returned() {
  const { pictures: wanted } = await settings();
  return (image) => (wanted ? image : undefined);
}

/** What content scripts may ask, for the audit of their own tab. */
const FROM_PAGE = {
  /** @param {Run} run @param {any} message @param {number} tab */
  async items(run, { items }, tab) {
    if (!run.reading) await change(tab, run, { reading: true });
    const ids = await sendItems(run, items.slice(0, 50));
    return { results: ids.map((id) => ({ id })) };
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async fetch(run, { urls, ranks }, tab) {
    if (!run.reading) await change(tab, run, { reading: true });
    const results = await Promise.all(urls.slice(0, MOST_FETCHED).map(async (/** @type {string} */ url) => {
      try {
        return { image: await fetchPicture(String(url)) };
      } catch (error) {
        return { reason: error instanceof Error ? error.message.slice(0, 100) : "not readable" };
      }
    }));
    const read = results.flatMap((each, at) => (each.image ? [{ rank: ranks[at], image: each.image }] : []));
    const ids = await sendItems(run, read);
    const kept = await returned();
    return { results: results.map((each) => (each.image ? { id: ids.shift(), image: kept(each.image) } : each)) };
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async shots(run, { rects, ranks, width }, tab) {
    const taken = await capture(tab);
    if (!taken) return { results: [] };
    const whole = await createImageBitmap(new Blob([pictures.bytes(taken)]));
    const scale = whole.width / width;
    /** @type {{rank: number, image: string}[]} */
    const items = [];
    for (const [at, rect] of rects.entries()) {
      const [x, y, w, h] = rect.map((/** @type {number} */ each) => Math.round(each * scale));
      const part = await createImageBitmap(whole, x, y, Math.max(1, w), Math.max(1, h));
      items.push({ rank: ranks[at], image: await pictures.base64(await pictures.drawn(part)) });
    }
    whole.close();
    const ids = await sendItems(run, items);
    const kept = await returned();
    return { results: ids.map((id, at) => ({ id, image: kept(items[at].image) })) };
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async state(run, { order, skipped, origins, repeats, full, part, reading, url, moved }, tab) {
    const layout = await layoutOf(run.url);
    if (moved || queryOf(url, layout) !== queryOf(run.url, layout)) throw new Refusal("moved");
    await ask("POST", `/page-audits/${run.page}/items`, { items: [], order, skipped });
    await change(tab, run, { origins, repeats, full, part, reading });
    return {};
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async cancelled(run, message, tab) {
    await change(tab, run, { state: "cancelled" });
    return {};
  },
};

/** What the panel may ask, for the audit of its tab. */
const FROM_PANEL = {
  /** @param {Run} run @param {any} message @param {number} tab */
  async result(run, message, tab) {
    const own = { state: run.state, control: run.control, depth: run.depth, origins: run.origins, saved: run.saved,
      repeats: run.repeats, full: run.full, mode: run.mode, problem: run.problem, reading: run.reading,
      address: (await pairing()).address };
    // A worker was stopped while it started this audit.
    if (run.state === "starting" && !starting.has(run.nonce)) start(await chrome.tabs.get(tab), run.area);
    if (run.state !== "running") return { run: own, result: null };
    const result = await ask("GET", `/page-audits/${run.page}`);
    await badge(tab, result.state === "working" || run.reading ? "…" : "✓");
    return { run: own, result };
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async save(run, { withPictures, note }, tab) {
    let screenshot = null;
    for (let left = 3; left && !screenshot; left--) {
      await tell(tab, { type: "hide" });
      screenshot = await capture(tab, "jpeg");
      if (!screenshot) await wait(700); // the browser makes two in a second
    }
    const unread = async () => (await runOf(tab))?.reading || (await ask("GET", `/page-audits/${run.page}`)).waiting;
    for (let left = 20; left && await unread(); left--) await wait(500);
    const { run: name, study } = await settings();
    const contents = {};
    for (let from = withPictures ? 0 : null; from !== null;) {
      const part = await tell(tab, { type: "contents", from });
      Object.assign(contents, part.pictures);
      from = part.next;
    }
    const body = { screenshot, note, pictures: contents, run: name, study, part: run.part };
    const saved = await ask("POST", `/page-audits/${run.page}/save`, body);
    await change(tab, run, { saved: saved.audit });
    return { ...saved, mode: run.mode, screenshot: Boolean(screenshot) };
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async allowed(run, { origin }, tab) {
    const { origins = [] } = await chrome.storage.local.get("origins");
    await chrome.storage.local.set({ origins: [...new Set([.../** @type {string[]} */ (origins), origin])] });
    await tell(tab, { type: "again" });
    return {};
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async close(run, message, tab) {
    await tell(tab, { type: "close" }).catch(() => {});
    await forget(tab, run);
    await badge(tab, "");
    return {};
  },
  /** @param {Run} run */
  async report(run) {
    const { address } = await prove();
    await chrome.tabs.create({ url: `${address}/api/v1/page-audits/${run.page}/report` });
    return {};
  },
  /** @param {Run} run */
  async evidence(run) {
    await chrome.tabs.create({ url: `popup.html?evidence=${run.page}` });
    return {};
  },
  async popup() {
    await openPopup();
    return {};
  },
  async options() {
    await chrome.runtime.openOptionsPage();
    return {};
  },
  /** @param {Run} run @param {any} message @param {number} tab */
  async again(run, { area }, tab) {
    await start(await chrome.tabs.get(tab), area);
    return {};
  },
};

/** What the popup and the options may ask. */
const FROM_PAGES = {
  settings,
  /** @param {any} message */
  async keep({ values }) {
    await chrome.storage.local.set({ settings: { ...(await settings()), ...values } });
    return {};
  },
  async status() {
    const { address, token } = await pairing();
    try {
      await prove();
      return { address, paired: true, controls: await ask("GET", "/control-sets") };
    } catch (error) {
      return { address, paired: Boolean(token), problem: problem(error) };
    }
  },
  /** @param {any} message */
  async address({ address }) {
    const good = loopback(address);
    if (!good) throw new Refusal("badAddress", address);
    await chrome.storage.local.set({ address: good });
    return { address: good };
  },
  async pair() {
    return askToPair();
  },
  async pairing() {
    const answer = await pollPairing();
    await choosePopup();
    return answer;
  },
  /** @param {any} message */
  async paste({ token }) {
    const given = String(token).trim().replace(/^(Authorization:)?\s*Bearer\s+/i, ""); // or the whole line
    await askToPair(given || "-");
    return FROM_PAGES.pairing();
  },
  async unpair() {
    const answer = await unpair();
    await choosePopup();
    return answer;
  },
  async origins() {
    return (await chrome.storage.local.get("origins")).origins ?? [];
  },
  /** @param {any} message */
  async disallow({ origin }) {
    const { origins = [] } = await chrome.storage.local.get("origins");
    await chrome.storage.local.set({ origins: /** @type {string[]} */ (origins).filter((each) => each !== origin) });
    return {};
  },
  /** @param {any} message */
  async start({ area }) {
    const [tab] = await chrome.tabs.query({ active: true, lastFocusedWindow: true });
    start(tab, area);
    return {};
  },
  history: () => ask("GET", "/page-audits?saved=true"),
  /** @param {any} message */
  async zip({ page }) {
    const answer = await load("GET", `/page-audits/${Number(page)}/evidence.zip`);
    return { zip: await pictures.base64(await answer.blob()) };
  },
  async current() {
    const [tab] = await chrome.tabs.query({ active: true, lastFocusedWindow: true });
    const run = tab?.id ? await runOf(tab.id) : null;
    if (!run || !tab?.id) return { run: null, result: null };
    return FROM_PANEL.result(run, {}, tab.id);
  },
};

/** @param {any} message @param {chrome.runtime.MessageSender} sender */
async function handled(message, sender) {
  const type = String(message?.type);
  const url = sender.url ?? "";
  if (url.startsWith(`${HOME}popup.html`) || url.startsWith(`${HOME}options.html`)) {
    return Object.hasOwn(FROM_PAGES, type) ? /** @type {any} */ (FROM_PAGES)[type](message) : null;
  }
  const tab = sender.tab?.id;
  const run = tab === undefined ? null : await runOf(tab);
  if (tab === undefined || !run) throw new Refusal("noAudit");
  if (url === `${HOME}panel.html`) {
    if (message.nonce !== run.nonce) throw new Refusal("noAudit");
    if (type === "settings") return settings();
    return Object.hasOwn(FROM_PANEL, type) ? /** @type {any} */ (FROM_PANEL)[type](run, message, tab) : null;
  }
  const current = sender.frameId === 0 && run.state === "running" && message.nonce === run.nonce;
  if (!current || !Object.hasOwn(FROM_PAGE, type)) throw new Refusal("noAudit");
  try {
    return await /** @type {any} */ (FROM_PAGE)[type](run, message, tab);
  } catch (error) {
    const what = problem(error);
    if (what.key !== "busy") await change(tab, run, { state: "problem", problem: what });
    throw error;
  }
}

chrome.runtime.onMessage.addListener((message, sender, answer) => {
  if (sender.id !== chrome.runtime.id) return false;
  handled(message, sender).then((value) => answer(value ?? {}),
    async (error) => answer({ problem: problem(error), address: (await pairing()).address }));
  return true;
});
chrome.action.onClicked.addListener((tab) => start(tab));
chrome.commands.onCommand.addListener((command, tab) => start(tab, command === "area"));
chrome.tabs.onRemoved.addListener((tab) => forget(tab));
chrome.tabs.onUpdated.addListener((tab, { status }) => {
  if (status === "loading") forgetAfterLeaving(tab);
});

/** A page that was left takes its audit with it.
 * @param {number} tab */
async function forgetAfterLeaving(tab) {
  const run = await runOf(tab);
  if (!run || run.state === "starting") return;
  // The content script answers as long as the page is the same, such as when only its address changes.
  const there = await tell(tab, { type: "here" }).catch(() => null);
  if (!there) await forget(tab, run);
}

chrome.contextMenus.onClicked.addListener(({ menuItemId }, tab) => {
  if (menuItemId === "area") start(tab, true);
  else openPopup();
});
chrome.runtime.onInstalled.addListener(async ({ reason }) => {
  const text = await messages();
  for (const id of ["area", "popup"]) {
    const title = text(id === "area" ? "auditArea" : "openPopup");
    chrome.contextMenus.create({ id, title, contexts: ["action"] }, () => void chrome.runtime.lastError);
  }
  await choosePopup();
  if (reason === "install") await chrome.runtime.openOptionsPage();
});
chrome.runtime.onStartup.addListener(choosePopup);
