// One item, as large as the window allows; the next ones are loaded and decoded before they are needed.

import { connection } from "./api.js";
import { h } from "./element.js";

const AHEAD = 20;
const BEHIND = 8;

/** A window onto one item. `seen`: it has been painted, so it may be labelled; `failed`: it cannot be shown. */
export class Stage {
  /** @param {import("./labels.js").Labels} labels @param {() => void} onseen */
  constructor(labels, onseen) {
    this.labels = labels;
    this.onseen = onseen;
    this.element = h("div.stage");
    /** @type {Map<number, {image: HTMLImageElement, ready: Promise<boolean>, state: string}>} */
    this.pictures = new Map();
    this.row = -1;
    this.seen = this.failed = false;
    this.again = () =>
      connection.up &&
      this.pictures.get(this.row)?.state === "failed" &&
      (this.pictures.delete(this.row), this.show(this.row));
    connection.addEventListener("change", this.again);
  }

  /** Show an item. @param {number} row */
  show(row) {
    this.row = row;
    this.seen = this.failed = false;
    this.element.setAttribute("aria-busy", "true");
    const item = this.labels.items[row];
    if (item.image) {
      const picture = this.load(row);
      if (picture.state === "ready") this.paint(row, picture.image);
      else this.wait(row, picture);
    } else if (item.text !== null) {
      const text = h("blockquote", { dir: "auto", tabindex: 0, "aria-label": `Item ${row + 1}` }, item.text);
      text.classList.toggle("long", item.text.length > 400);
      text.classList.toggle("short", item.text.length < 80);
      this.paint(row, text);
    } else {
      this.paint(row, h("p.absent", `This item has nothing to look at. Its name is ${item.name}.`));
    }
    this.prefetch(row);
  }

  async wait(row, picture) {
    const message = h("p.absent", "Loading the picture …");
    const slow = setTimeout(() => this.row === row && this.element.replaceChildren(message), 200); // no flicker
    const good = await picture.ready;
    clearTimeout(slow);
    if (this.row !== row) return;
    if (good) return this.paint(row, picture.image);
    this.failed = connection.up;
    this.element.replaceChildren(
      h(
        "p.absent",
        connection.up
          ? "This picture cannot be shown. Choose Unsure or Skip."
          : "The picture appears when divscore answers again.",
      ),
    );
  }

  paint(row, content) {
    this.element.replaceChildren(content);
    // After the next frame the item is on the screen; a key that was meant for the item before it must not count.
    requestAnimationFrame(() => {
      if (this.row !== row) return;
      this.seen = true;
      this.element.removeAttribute("aria-busy");
      this.onseen();
    });
  }

  load(row) {
    const known = this.pictures.get(row);
    if (known) return known;
    const image = h("img", { alt: `Item ${row + 1}`, decoding: "async", draggable: "false" });
    image.src = `${this.labels.items[row].image}?size=960`;
    const picture = {
      image,
      state: "loading",
      ready: image.decode().then(
        () => ((picture.state = "ready"), true),
        () => ((picture.state = "failed"), false),
      ),
    };
    this.pictures.set(row, picture);
    return picture;
  }

  prefetch(row) {
    const { items } = this.labels;
    for (const kept of this.pictures.keys()) if (kept < row - BEHIND || kept > row + AHEAD) this.pictures.delete(kept);
    for (let at = row + 1; at <= row + AHEAD && at < items.length; at++) {
      if (items[at].image && this.pictures.get(at)?.state !== "failed") this.load(at);
    }
  }

  close() {
    connection.removeEventListener("change", this.again);
    this.pictures.clear();
  }
}
