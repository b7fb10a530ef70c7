/**
 * Content script, injected by a click: finds the pictures or texts of the page, reads them and passes them to the
 * service worker. It never sees a result. The panel is a page of the extension in a closed shadow root.
 */
(() => {
  if (globalThis.divscoreCollector) return;
  const pictures = globalThis.divscorePictures;
  const MOST_ITEMS = 1000;
  const MOST_LOOKED = 4000; // elements of a scan
  const SMALLEST = 48; // pixels that a picture is shown in
  const TEXT = { least: 20, most: 5000 }; // characters
  const BATCH = { items: 12, characters: 1_500_000 };
  const MOST_KEPT = 40e6; // characters of pictures kept for evidence
  const PAUSE_MS = 400;
  const SHOT_MS = 1500;
  const MOST_MISSED = 3; // pictures of the tab that failed, one after the other
  const PART = 4e6; // characters of pictures in one message
  const POINTS = [[0.5, 0.5], [0.2, 0.2], [0.8, 0.2], [0.2, 0.8], [0.8, 0.8]]; // of a picture, inside a circle too
  const SLICE_MS = 8; // of work between two pauses, so that the page stays usable
  const POSTS = "article, [role=article]";
  const PARAGRAPHS = "p, blockquote, li, dd, td";
  const LAZY = ["data-src", "data-original", "data-lazy-src"];

  /**
   * @typedef {{key: string, element: Element, state: "new"|"done"|"skipped"|"waiting", reason: string,
   *   id: string|null, content: string|null}} Item
   * @typedef {{nonce: string, mode: "image"|"text", depth: number, area: boolean, layout: any, panel: string}} Plan
   */

  /** @param {number} ms */
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

  class Slice {
    constructor() {
      this.end = performance.now() + SLICE_MS;
    }
    /** Give the page its turn if ours is over. */
    async rest() {
      if (performance.now() < this.end) return;
      await wait(0);
      this.end = performance.now() + SLICE_MS;
    }
  }

  /** The worker may be stopped at any moment: then the message is sent again, and starts it.
   * @param {Record<string, unknown>} message @returns {Promise<any>} */
  async function tell(message) {
    for (let left = 3; ; left--) {
      try {
        const answer = await chrome.runtime.sendMessage(message);
        if (answer === undefined) throw new Error("no answer");
        if (answer.problem?.key !== "busy") return answer;
        if (!left) throw new Error("busy");
        await wait(2000);
      } catch (error) {
        if (left <= 0 || !chrome.runtime?.id) throw error;
        await wait(200);
      }
    }
  }

  /** Where elements are, without making the page compute its layout at once.
   * @param {Element[]} elements @returns {Promise<Map<Element, DOMRectReadOnly>>} */
  function measure(elements) {
    return new Promise((done) => {
      const places = new Map();
      const observer = new IntersectionObserver((entries) => {
        for (const entry of entries) places.set(entry.target, entry.boundingClientRect);
        if (places.size >= elements.length) finish();
      });
      const finish = () => {
        clearTimeout(timer);
        observer.disconnect();
        done(places);
      };
      const timer = setTimeout(finish, 1000);
      for (const element of elements) observer.observe(element);
    });
  }

  /** What a picture shows, or will show once it is loaded.
   * @param {Element} element */
  function source(element) {
    const image = /** @type {HTMLImageElement} */ (element);
    const shown = String(image.currentSrc || image.src || "");
    if (shown && !(shown.startsWith("data:") && shown.length < 2000)) return shown;
    const later = LAZY.map((name) => element.getAttribute(name)).find((value) => value);
    try {
      return later ? new URL(later, document.baseURI).href : shown;
    } catch {
      return shown;
    }
  }

  /** The words of an element, without scripts, up to a limit.
   * @param {Element} element */
  function words(element) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let text = "";
    while (text.length < TEXT.most && walker.nextNode()) {
      const inside = walker.currentNode.parentElement?.localName ?? "";
      if (!["script", "style", "noscript", "template", "textarea"].includes(inside)) {
        text += ` ${(walker.currentNode.nodeValue ?? "").slice(0, TEXT.most)}`;
      }
    }
    return text.replace(/\s+/g, " ").trim().slice(0, TEXT.most).toWellFormed();
  }

  /** @param {{left: number, top: number, right: number, bottom: number}|undefined} place */
  const inView = (place) => place !== undefined && place.top >= 0 && place.left >= 0 && place.right <= innerWidth
    && place.bottom <= innerHeight;

  /** The address without its fragment, unless that is where the page keeps what it shows: #/search. */
  const address = () => location.href.replace(/#(?![/!]).*$/s, "");

  /** The first elements of a list that may be huge.
   * @param {ArrayLike<Element>} list */
  function some(list) {
    const first = [];
    for (let at = 0; at < MOST_LOOKED && list[at]; at++) first.push(list[at]);
    return first;
  }

  class Collector {
    /** @param {Plan} plan */
    constructor(plan) {
      this.plan = plan;
      this.depth = Math.min(plan.depth || MOST_ITEMS, MOST_ITEMS);
      this.top = scrollY;
      /** @type {{left: number, top: number, right: number, bottom: number}|null} */
      this.area = null;
      /** @type {Map<string, Item>} */
      this.items = new Map();
      /** @type {WeakMap<Element, {source: string, fits: boolean}>} */
      this.seen = new WeakMap();
      /** @type {Item[]} */
      this.order = [];
      this.repeats = 0;
      this.short = 0;
      this.kept = 0;
      this.shot = 0;
      this.missed = 0;
      this.address = address();
      /** Items at the address where the audit began. @type {Item[]} */
      this.first = [];
      this.sent = "";
      this.stopped = false;
      this.changed = () => {};
      this.observer = new MutationObserver(() => this.changed());
      this.onload = () => this.changed();
    }

    /** @param {Record<string, unknown>} message */
    tell(message) {
      return tell({ nonce: this.plan.nonce, ...message });
    }

    /** Until stopped: scan, send, wait until the page has changed. */
    async run() {
      this.observer.observe(document, {
        childList: true, subtree: true, characterData: this.plan.mode === "text",
        attributes: true, attributeFilter: ["src", "srcset", "style", "class", "hidden", ...LAZY],
      });
      document.addEventListener("load", this.onload, true);
      document.addEventListener("visibilitychange", this.onload);
      addEventListener("scroll", this.onload, { passive: true, capture: true });
      while (!this.stopped) {
        const began = performance.now();
        const change = new Promise((done) => (this.changed = () => done(undefined)));
        try {
          await this.scan();
          if (address() !== this.address) await this.report(true); // before anything of another search is read
          await this.read();
          await this.report();
          await this.shoot();
        } catch (error) {
          if (!chrome.runtime?.id) this.stop(); // the extension was updated or removed
          this.sent = "";
          this.changed(); // try again
        }
        // A page that never rests gets most of the time.
        await wait(Math.max(PAUSE_MS, 2 * (performance.now() - began)));
        await change;
      }
    }

    stop() {
      this.stopped = true;
      this.observer.disconnect();
      document.removeEventListener("load", this.onload, true);
      document.removeEventListener("visibilitychange", this.onload);
      removeEventListener("scroll", this.onload, { capture: true });
      this.changed();
    }

    /** Elements that may be items, in the order of the page. */
    candidates() {
      const { mode, layout } = this.plan;
      const own = layout && (mode === "image" ? layout.image : layout.text);
      const listed = own ? document.querySelectorAll(own) : [];
      if (listed.length) return some(listed);
      if (mode === "image") return some(document.getElementsByTagName("img"));
      const posts = document.querySelectorAll(POSTS);
      return some(posts.length >= 5 ? posts : document.querySelectorAll(PARAGRAPHS));
    }

    /** The order of results where it is not that of the page's source: by a number in an attribute, or by place.
     * @param {Element[]} candidates */
    async ranked(candidates) {
      const rank = this.plan.layout?.rank;
      if (!rank) return candidates;
      const places = rank === "place" ? await measure(candidates) : new Map();
      const numbers = new Map(candidates.map((element) => {
        const { top = Infinity, left = 0 } = places.get(element) ?? {};
        const number = rank === "place" ? top : Number.parseFloat(element.closest(`[${rank}]`)?.getAttribute(rank) ?? "");
        return [element, [Number.isNaN(number) ? Infinity : number, left]];
      }));
      return candidates.sort((a, b) => {
        const [one, two] = [numbers.get(a) ?? [], numbers.get(b) ?? []];
        const at = one[0] === two[0] ? 1 : 0;
        return one[at] < two[at] ? -1 : one[at] > two[at] ? 1 : 0;
      });
    }

    /** Find the first items, and those that have left the page. */
    async scan() {
      const slice = new Slice();
      const { mode, layout } = this.plan;
      // Places are known of what is shown only.
      if (layout?.rank === "place" && document.visibilityState !== "visible") return;
      const candidates = await this.ranked(this.candidates());
      const posts = mode === "text" && !candidates[0]?.matches(PARAGRAPHS);
      const order = [], keys = new Set(), short = new Set();
      let repeats = 0;
      for (let start = 0; start < candidates.length && order.length < this.depth; start += 250) {
        const some = candidates.slice(start, start + 250);
        /** @type {Map<Element, string>} */
        const sources = new Map();
        for (const element of some) {
          if (mode === "image") sources.set(element, source(element));
          else if (posts || !element.querySelector(PARAGRAPHS)) sources.set(element, words(element));
          await slice.rest();
        }
        const unknown = [...sources.keys()].filter((each) => {
          const known = this.seen.get(each);
          return !known?.fits || known.source !== sources.get(each);
        });
        const places = unknown.length ? await measure(unknown) : new Map();
        slice.end = performance.now() + SLICE_MS;
        for (const element of unknown) {
          this.seen.set(element, { source: sources.get(element) ?? "", fits: this.fits(places.get(element)) });
        }
        for (const [element, key] of sources) {
          await slice.rest();
          // What the page hides has left it, too.
          if (!key || !this.seen.get(element)?.fits || !element.checkVisibility({ visibilityProperty: true })) continue;
          if (mode === "text" && key.length < TEXT.least) {
            if (posts) short.add(key);
          } else if (keys.has(key)) {
            repeats++;
          } else if (order.length < this.depth) {
            keys.add(key);
            const item = this.items.get(key)
              ?? { key, element, state: "new", reason: "", id: null, content: null };
            item.element = element;
            this.items.set(key, /** @type {Item} */ (item));
            order.push(/** @type {Item} */ (item));
          }
        }
      }
      for (const [key, item] of this.items) {
        if (keys.has(key)) continue;
        this.items.delete(key);
        this.kept -= item.content?.length ?? 0;
      }
      this.order = order;
      this.repeats = repeats;
      this.short = short.size;
      if (address() === this.address) this.first = order;
    }

    /** Whether the page shows something else under another address: of the first items, most are gone. */
    moved() {
      const left = this.first.filter((item) => this.items.has(item.key)).length;
      return address() !== this.address && 2 * left < this.first.length;
    }

    /** @param {DOMRectReadOnly|undefined} place */
    fits(place) {
      const least = this.plan.mode === "image" ? SMALLEST : 1;
      if (!place || place.width < least || place.height < least) return false;
      if (!this.area) return place.bottom + scrollY > this.top;
      const x = place.left + place.width / 2 + scrollX, y = place.top + place.height / 2 + scrollY;
      return x >= this.area.left && x <= this.area.right && y >= this.area.top && y <= this.area.bottom;
    }

    /** Read new items and send them, a few at a time. */
    async read() {
      const fresh = this.order.filter((item) => item.state === "new"
        || (item.state === "waiting" && /** @type {HTMLImageElement} */ (item.element).complete));
      if (fresh.length) this.sent = ""; // the report that follows tells that they are read
      /** @type {Item[]} */
      let batch = [];
      let size = 0, last = performance.now();
      const flush = async () => {
        const some = batch;
        batch = [];
        size = 0;
        last = performance.now();
        if (some.length) await this.send(some);
      };
      let next = 0;
      const worker = async () => {
        while (next < fresh.length && !this.stopped) {
          const item = fresh[next++];
          const content = await this.content(item);
          if (content !== null) {
            item.content = content;
            batch.push(item);
            size += content.length;
          }
          const late = performance.now() - last > PAUSE_MS;
          if (batch.length >= BATCH.items || size >= BATCH.characters || late) await flush();
        }
      };
      await Promise.all([worker(), worker(), worker()]);
      await flush();
      const elsewhere = fresh.filter((item) => item.reason === "other site");
      for (let at = 0; at < elsewhere.length && !this.stopped; at += 6) {
        const some = elsewhere.slice(at, at + 6);
        const urls = some.map((item) => item.key);
        this.settle(some, await this.tell({ type: "fetch", urls, ranks: this.ranks(some) }));
      }
    }

    /** @param {Item[]} some */
    ranks(some) {
      return some.map((item) => this.order.indexOf(item) + 1);
    }

    /** The bytes of a picture as base64, or a text; null if it is skipped, with the reason.
     * @param {Item} item @returns {Promise<string|null>} */
    async content(item) {
      if (this.plan.mode === "text") return item.key;
      const image = /** @type {HTMLImageElement} */ (item.element);
      /** @param {string} reason */
      const skip = (reason) => {
        item.state = "skipped";
        item.reason = reason;
        return null;
      };
      const scheme = item.key.slice(0, 12).split(":")[0].toLowerCase();
      if (item.key.length > pictures.MOST_BYTES) return skip("too large");
      if (!["http", "https", "data", "blob"].includes(scheme)) return skip("unsupported");
      if (scheme === "data" && !/^data:image\//i.test(item.key.slice(0, 16))) return skip("unsupported");
      if (image.complete && image.naturalWidth * image.naturalHeight > 60e6) return skip("too large");
      const near = scheme === "data" || scheme === "blob" || new URL(item.key).origin === location.origin;
      let leads = false; // to another address, which may be on another site
      try {
        if (near) {
          const answer = await fetch(item.key, {
            cache: "force-cache", redirect: "manual", signal: AbortSignal.timeout(10_000),
          });
          leads = answer.type === "opaqueredirect";
          return await pictures.prepared(await pictures.body(answer));
        }
      } catch (error) {
        if (error instanceof Error && error.message === "too large") return skip("too large");
      }
      const shown = image.complete && image.naturalWidth > 0 && source(image) === item.key;
      try {
        // Throws if the canvas is not clean.
        if (shown && (near || image.crossOrigin !== null)) return await pictures.base64(await pictures.drawn(image));
      } catch {
        // It is on another site.
      }
      if (near) {
        skip(shown || leads ? "screen only" : "not readable");
        if (leads && !image.complete) item.state = "waiting"; // once it is loaded, a canvas may have it
        return null;
      }
      return skip("other site"); // the worker may be allowed to read it
    }

    /** @param {Item[]} some */
    async send(some) {
      const ranks = this.ranks(some);
      const name = this.plan.mode;
      const items = some.map((item, at) => ({ rank: ranks[at], [name]: item.content }));
      const contents = some.map((item) => item.content);
      for (const item of some) item.content = null;
      this.settle(some, await this.tell({ type: "items", items }), name === "text" ? [] : contents);
    }

    /** Keep what became of items: a digest, or a reason; and pictures for evidence, up to a limit.
     * @param {Item[]} some @param {{results?: {id?: string, reason?: string, image?: string}[], problem?: unknown}} answer
     * @param {(string|null)[]} [contents] */
    settle(some, answer, contents = []) {
      if (answer.problem || !answer.results) {
        this.stop(); // the panel says why
        return;
      }
      answer.results.forEach((result, at) => {
        some[at].state = result.id ? "done" : "skipped";
        some[at].id = result.id ?? null;
        some[at].reason = result.reason ?? "";
        const content = result.image ?? contents[at] ?? null;
        if (!content || this.kept + content.length > MOST_KEPT || this.items.get(some[at].key) !== some[at]) return;
        some[at].content = content;
        this.kept += content.length;
      });
    }

    /** Tell the worker the order, what was skipped and what has left, if anything is new.
     * @param {boolean} [reading] whether more follows at once */
    async report(reading = false) {
      /** @type {Record<string, number>} */
      const skipped = {};
      /** @type {Record<string, number>} */
      const origins = {};
      for (const item of this.order) {
        if (item.reason && item.state !== "new") skipped[item.reason] = (skipped[item.reason] ?? 0) + 1;
        if (item.reason === "no permission") {
          const { origin } = new URL(item.key);
          origins[origin] = (origins[origin] ?? 0) + 1;
        }
      }
      if (this.short) skipped["too short"] = this.short;
      const ids = this.order.map((item) => item.id).filter((id) => id);
      const order = [...new Set(ids)]; // the same picture may have two addresses
      const repeats = this.repeats + ids.length - order.length;
      const full = this.order.length >= MOST_ITEMS;
      const part = this.area && Object.values(this.area).map(Math.round);
      const moved = this.moved();
      const body = { order, skipped, origins, repeats, full, part, reading, url: location.href, moved };
      const text = JSON.stringify(body);
      if (text === this.sent || this.stopped) return;
      const answer = await this.tell({ type: "state", ...body });
      if (answer.problem) this.stop();
      else this.sent = text;
    }

    /** Cut pictures that cannot be read from a picture of the tab: those in view, one capture at a time. */
    async shoot() {
      const waiting = this.order.filter((item) => ["no permission", "screen only"].includes(item.reason));
      if (!waiting.length || document.visibilityState !== "visible" || this.stopped) return;
      const view = await measure(waiting.map((item) => item.element));
      const visible = waiting.filter((item) => inView(view.get(item.element)));
      if (!visible.length) return;
      await this.report(true);
      await wait(Math.max(0, this.shot + SHOT_MS - performance.now()));
      await hidden(async () => {
        const some = [];
        /** @type {DOMRect[]} */
        const places = [];
        for (const item of visible.slice(0, 60)) {
          const place = item.element.getBoundingClientRect();
          const free = POINTS.every(([x, y]) => item.element
            === document.elementFromPoint(place.left + x * place.width, place.top + y * place.height));
          if (!free || !inView(place)) continue; // another element is on top of it
          some.push(item);
          places.push(place);
        }
        this.shot = performance.now();
        if (!some.length) return;
        const rects = places.map(({ left, top, width, height }) => [left, top, width, height]);
        const answer = await this.tell({ type: "shots", rects, ranks: this.ranks(some), width: innerWidth });
        const still = some.every((item, at) => {
          const { left, top } = item.element.getBoundingClientRect();
          return Math.abs(left - places[at].left) < 1 && Math.abs(top - places[at].top) < 1;
        });
        if (answer.problem || (still && answer.results?.length)) {
          this.missed = 0;
          this.settle(some, answer);
        } else if (++this.missed <= MOST_MISSED || !still) {
          this.changed(); // the page moved meanwhile, or there was no picture: once more
        }
        if (!still) this.sent = ""; // what was cut elsewhere is taken out again
      });
      await this.report();
    }

    /** Read again what was not allowed before. */
    again() {
      for (const item of this.items.values()) if (item.reason === "no permission") item.state = "new";
      this.changed();
    }
  }

  // The panel: a frame of the extension, which the page cannot read, style or click.

  const STYLE = `
    :host { all: initial !important; position: fixed !important; inset: auto 12px 12px auto !important;
      width: min(360px, calc(100vw - 24px)) !important; height: min(480px, calc(100vh - 24px)) !important; margin: 0 !important;
      padding: 0 !important; border: 0 !important; display: block !important; z-index: 2147483647 !important;
      visibility: visible !important; opacity: 1 !important; pointer-events: auto !important;
      background: transparent !important; overflow: visible !important; transform: none !important;
      clip-path: none !important; filter: none !important; color-scheme: normal !important; }
    iframe { all: initial; display: block; width: 100%; height: 100%; border: 1px solid #555; border-radius: 10px;
      box-shadow: 0 6px 24px #0006; background: #fff; }
    .area { position: fixed; inset: 0; cursor: crosshair; background: #0003; outline: none; }
    .area p { position: absolute; inset: 12px 12px auto; margin: 0 auto; width: fit-content; padding: 6px 12px;
      border-radius: 6px; background: #1c2233; color: #fff; font: 14px/1.45 system-ui, sans-serif; pointer-events: none; }
    .area div { position: absolute; border: 2px solid #fff; outline: 2px solid #2b3f8c; box-sizing: border-box; }`;
  // Out of sight, but with the focus where it is.
  const HIDDEN = `${STYLE} :host { opacity: 0 !important; pointer-events: none !important; }`;
  const home = chrome.runtime.getURL("");
  /** @type {{host: HTMLElement, root: ShadowRoot, sheet: CSSStyleSheet, watch: MutationObserver}|null} */
  let panel = null;
  /** @type {Collector|null} */
  let collector = null;

  /** @param {string} nonce @param {string} title */
  function open(nonce, title) {
    close();
    const host = document.createElement("div");
    const root = host.attachShadow({ mode: "closed" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    const frame = document.createElement("iframe");
    frame.title = title;
    frame.src = `${home}panel.html`;
    // Only a frame that we made gets the number, so a page that shows panel.html itself sees an empty one.
    frame.addEventListener("load", () => frame.contentWindow?.postMessage({ nonce }, home.slice(0, -1)));
    root.append(frame);
    let left = 20;
    const watch = new MutationObserver(() => {
      for (const name of host.getAttributeNames()) if (name !== "popover") host.removeAttribute(name);
      if (!host.isConnected && left-- > 0) place();
    });
    const place = () => {
      document.documentElement.append(host);
      host.setAttribute("popover", "manual");
      try {
        host.showPopover(); // above everything else on the page
      } catch {
        // The page took it away meanwhile.
      }
    };
    panel = { host, root, sheet, watch };
    place();
    watch.observe(host, { attributes: true });
    watch.observe(document.documentElement, { childList: true });
  }

  function close() {
    panel?.watch.disconnect();
    panel?.host.remove();
    panel = null;
  }

  let hiding = 0;

  /** Do something while the panel is not shown.
   * @template T @param {() => Promise<T>} work */
  async function hidden(work) {
    hiding++;
    panel?.sheet.replaceSync(HIDDEN);
    try {
      await frames();
      return await work();
    } finally {
      if (!--hiding) panel?.sheet.replaceSync(STYLE);
    }
  }

  /** Let the user draw a rectangle; arrow keys size it, with Shift they move it, Enter accepts, Escape cancels.
   * @returns {Promise<{left: number, top: number, right: number, bottom: number}|null>} */
  function drawArea() {
    return new Promise((done) => {
      if (!panel) return done(null);
      const cover = document.createElement("div");
      const box = document.createElement("div");
      const hint = document.createElement("p");
      hint.textContent = collector?.plan.panel ?? "";
      cover.className = "area";
      cover.tabIndex = 0;
      cover.setAttribute("role", "application");
      cover.setAttribute("aria-label", hint.textContent);
      cover.append(box, hint);
      panel.root.append(cover);
      const at = { x: innerWidth / 4, y: innerHeight / 4, w: innerWidth / 2, h: innerHeight / 2 };
      const draw = () => {
        box.style.cssText = `left:${at.x}px;top:${at.y}px;width:${at.w}px;height:${at.h}px`;
      };
      /** @type {{x: number, y: number}|null} */
      let from = null;
      let drawn = false;
      /** @param {boolean} accepted */
      const finish = (accepted) => {
        cover.remove();
        const { x, y, w, h } = at;
        const good = accepted && w > 8 && h > 8;
        done(good ? { left: x + scrollX, top: y + scrollY, right: x + w + scrollX, bottom: y + h + scrollY } : null);
      };
      cover.addEventListener("pointerdown", (event) => {
        if (!event.isTrusted) return;
        from = { x: event.clientX, y: event.clientY };
        cover.setPointerCapture(event.pointerId);
      });
      cover.addEventListener("pointermove", (event) => {
        if (!from || !event.isTrusted) return;
        drawn = true;
        Object.assign(at, {
          x: Math.min(from.x, event.clientX), y: Math.min(from.y, event.clientY),
          w: Math.abs(event.clientX - from.x), h: Math.abs(event.clientY - from.y),
        });
        draw();
      });
      cover.addEventListener("pointerup", (event) => {
        if (from && drawn && event.isTrusted) finish(true);
        from = null; // a click alone draws nothing
      });
      cover.addEventListener("keydown", (event) => {
        if (!event.isTrusted) return;
        const step = { ArrowLeft: [-20, 0], ArrowRight: [20, 0], ArrowUp: [0, -20], ArrowDown: [0, 20] }[event.key];
        if (step) {
          if (event.shiftKey) Object.assign(at, { x: at.x + step[0], y: at.y + step[1] });
          else Object.assign(at, { w: Math.max(20, at.w + step[0]), h: Math.max(20, at.h + step[1]) });
          draw();
        } else if (event.key === "Enter") finish(true);
        else if (event.key === "Escape") finish(false);
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
      draw();
      cover.focus();
    });
  }

  /** @type {Record<string, (message: any) => any>} */
  const HANDLERS = {
    open({ nonce, title }) {
      collector?.stop();
      collector = null;
      open(nonce, title);
      const language = document.documentElement.lang || navigator.language;
      return { viewport: [innerWidth, innerHeight], language: language.slice(0, 100).toWellFormed() };
    },
    async collect({ plan }) {
      collector?.stop();
      const mine = new Collector(plan);
      collector = mine;
      // Drawing may take longer than the worker lives.
      (plan.area ? drawArea() : Promise.resolve(null)).then((area) => {
        mine.area = area;
        if (plan.area && !area) mine.tell({ type: "cancelled" });
        else mine.run();
      });
    },
    again: () => collector?.again(),
    here: () => ({}),
    close() {
      collector?.stop();
      collector = null;
      close();
    },
    /** Pictures by their digests, for evidence; only those that are kept, and as many as a message should have. */
    contents({ from }) {
      const order = collector?.order ?? [];
      /** @type {Record<string, string>} */
      const some = {};
      let at = from, size = 0;
      for (; at < order.length && size < PART; at++) {
        const { id, content } = order[at];
        if (!id || !content) continue;
        some[id] = content;
        size += content.length;
      }
      return { pictures: some, next: at < order.length ? at : null };
    },
  };

  chrome.runtime.onMessage.addListener((message, sender, answer) => {
    if (sender.id !== chrome.runtime.id || sender.tab) return false;
    if (message.type === "hide") {
      // Answers as soon as the panel is out of sight; the capture follows.
      hidden(() => {
        answer({});
        return wait(600);
      });
    } else {
      const handler = HANDLERS[message?.type];
      if (!handler) return false;
      Promise.resolve(handler(message)).then((value) => answer(value ?? {}), (error) => answer({ error: String(error) }));
    }
    return true;
  });
  globalThis.divscoreCollector = true;
})();
