// Many items at once: only the visible rows exist; a key or a button labels everything that is selected.

import { h } from "./element.js";
import { SKIP, UNSURE } from "./labels.js";

const SIDE = { image: 172, text: 250 }; // wished width of a cell in pixels
const SPARE = 2; // lines above and below the visible ones

/** A windowed grid over labels; `selected` are rows of the list. */
export class Grid {
  /** @param {import("./labels.js").Labels} labels @param {() => void} onselect */
  constructor(labels, onselect) {
    this.labels = labels;
    this.onselect = onselect;
    this.selected = new Set();
    this.at = 0; // the cell that the arrows move
    this.anchor = 0;
    this.columns = this.height = 0;
    this.lines = new Map();
    this.kind = labels.items[0]?.image ? "image" : "text";
    this.inner = h("div.lines");
    this.element = h(
      `div.grid.${this.kind}`,
      { role: "grid", "aria-multiselectable": "true", "aria-label": "Items" },
      this.inner,
    );
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.element.addEventListener("pointerdown", (event) => this.press(event));
    this.sizes = new ResizeObserver(() => this.layout());
    this.sizes.observe(this.element);
    this.refresh = (event) => event.detail.forEach((row) => this.mark(row));
    labels.addEventListener("change", this.refresh);
  }

  /** Work out how many cells fit; their places follow from that. */
  layout() {
    const width = this.element.clientWidth - 16;
    const columns = Math.max(1, Math.floor(width / SIDE[this.kind]));
    const height = this.kind === "image" ? Math.round(width / columns) : 168;
    if (width <= 0 || (columns === this.columns && height === this.height)) return this.draw();
    const focused = this.element.contains(document.activeElement);
    Object.assign(this, { columns, height });
    const lines = Math.ceil(this.labels.items.length / this.columns);
    this.inner.style.setProperty("--columns", String(this.columns));
    this.inner.style.setProperty("--cell", `${this.height}px`);
    this.inner.style.height = `${lines * this.height}px`;
    this.element.setAttribute("aria-rowcount", String(lines));
    this.element.setAttribute("aria-colcount", String(this.columns));
    this.lines.forEach((line) => line.remove());
    this.lines.clear();
    this.draw();
    if (focused) this.focus(this.at);
  }

  draw() {
    if (!this.height) return;
    const top = Math.floor(this.element.scrollTop / this.height) - SPARE;
    const bottom = Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + SPARE;
    const own = Math.floor(this.at / this.columns); // keeps the focus when it is scrolled away
    const wanted = (line) => (line >= top && line < bottom) || line === own;
    for (const [line, element] of this.lines) {
      if (wanted(line)) continue;
      element.remove();
      this.lines.delete(line);
    }
    const last = Math.ceil(this.labels.items.length / this.columns);
    for (const line of [own, ...Array.from({ length: bottom - top }, (_, step) => top + step)]) {
      if (line < 0 || line >= last || this.lines.has(line)) continue;
      const first = line * this.columns;
      const rows = this.labels.items.slice(first, first + this.columns).map((item, step) => this.cell(first + step));
      const element = h(
        "div.line",
        { role: "row", "aria-rowindex": line + 1, vars: { "--top": `${line * this.height}px` } },
        rows,
      );
      this.lines.set(line, element);
      // In the order of the page, for those who read it in order.
      const after = [...this.lines.keys()].filter((other) => other > line).sort((a, b) => a - b)[0];
      this.inner.insertBefore(element, after === undefined ? null : this.lines.get(after));
    }
  }

  cell(row) {
    const item = this.labels.items[row];
    const content = item.image
      ? h("img", { src: `${item.image}?size=480`, alt: "", decoding: "async", draggable: "false" })
      : h("span.words", { dir: "auto" }, item.text ?? item.name);
    const cell = h(
      "div.cell",
      {
        role: "gridcell",
        tabIndex: row === this.at ? 0 : -1,
        "aria-colindex": (row % this.columns) + 1,
        dataset: { row },
      },
      content,
      h("span.tag"),
    );
    this.mark(row, cell);
    return cell;
  }

  find(row) {
    return this.lines.get(Math.floor(row / this.columns))?.children[row % this.columns];
  }

  /** Show the label and the selection of a cell. */
  mark(row, cell = this.find(row)) {
    if (!cell) return;
    const { label, text } = this.labels.items[row];
    const chosen = this.selected.has(row);
    cell.setAttribute("aria-selected", String(chosen));
    cell.setAttribute("aria-label", `Item ${row + 1}${text ? `, ${text}` : ""}: ${label ?? "no label"}`);
    cell.lastChild.textContent = label ?? "";
    cell.classList.toggle("labelled", label !== null);
    cell.classList.toggle("open", label === UNSURE || label === SKIP);
  }

  select(rows, { add = false } = {}) {
    const before = [...this.selected];
    if (!add) this.selected.clear();
    for (const row of rows) this.selected.add(row);
    for (const row of new Set([...before, ...this.selected])) this.mark(row);
    this.onselect();
  }

  toggle(row) {
    if (!this.selected.delete(row)) this.selected.add(row);
    this.mark(row);
    this.onselect();
  }

  /** Rows that are on the screen now: what is labelled together was seen. */
  visible() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.ceil((scrollTop - this.height / 2) / this.height) * this.columns;
    const end = Math.floor((scrollTop + clientHeight + this.height / 2) / this.height) * this.columns;
    return this.labels.items.map((_, row) => row).slice(Math.max(0, first), end);
  }

  /** Select what is visible and has no label. */
  selectOpen() {
    this.select(this.visible().filter((row) => this.labels.items[row].label === null));
  }

  /** Rows between two, as reading goes. */
  between(a, b) {
    const [low, high] = a < b ? [a, b] : [b, a];
    return Array.from({ length: high - low + 1 }, (_, step) => low + step);
  }

  /** Move the focus to a cell. @param {number} row */
  focus(row, { scroll = true } = {}) {
    const old = this.find(this.at);
    if (old) old.tabIndex = -1;
    this.at = Math.min(Math.max(row, 0), this.labels.items.length - 1);
    const top = Math.floor(this.at / this.columns) * this.height;
    const view = this.element;
    if (scroll && top < view.scrollTop) view.scrollTop = top;
    else if (scroll && top + this.height > view.scrollTop + view.clientHeight)
      view.scrollTop = top + this.height - view.clientHeight;
    this.draw();
    const cell = this.find(this.at);
    if (!cell) return;
    cell.tabIndex = 0;
    cell.focus({ preventScroll: true });
  }

  move(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height)) * this.columns;
    const steps = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -this.columns,
      ArrowDown: this.columns,
      PageUp: -page,
      PageDown: page,
      Home: -this.at,
      End: this.labels.items.length,
    };
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "a") this.selectOpen();
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key in steps) {
      const to = this.at + steps[event.key];
      if ((to < 0 || to >= this.labels.items.length) && Math.abs(steps[event.key]) === this.columns)
        return event.preventDefault();
      this.focus(to);
      if (event.shiftKey) this.select(this.between(this.anchor, this.at));
      else this.anchor = this.at;
    } else if (event.key === " " || event.key === "Enter") {
      this.toggle(this.at);
      this.anchor = this.at;
    } else if (event.key === "Escape") this.select([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Click toggles, shift-click selects a range, dragging selects a block. */
  press(event) {
    const cell = event.target.closest(".cell");
    if (!cell || event.button !== 0 || event.pointerType === "touch") return this.tap(event, cell);
    event.preventDefault();
    const start = Number(cell.dataset.row);
    if (event.shiftKey) {
      this.select(this.between(this.anchor, start), { add: true });
      return this.focus(start, { scroll: false });
    }
    this.focus(start, { scroll: false });
    this.anchor = start;
    const before = [...this.selected];
    let moved = false;
    const drag = (move) => {
      const other = document.elementFromPoint(move.clientX, move.clientY)?.closest(".cell");
      const row = other && this.element.contains(other) ? Number(other.dataset.row) : start;
      if (row === start && !moved) return;
      moved = true;
      this.select([...before, ...this.block(start, row)]);
    };
    const end = () => {
      removeEventListener("pointermove", drag);
      if (!moved) this.toggle(start);
    };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", end, { once: true });
  }

  tap(event, cell) {
    if (!cell || event.pointerType !== "touch") return;
    // A finger that scrolls must not select.
    cell.addEventListener("click", () => this.toggle(Number(cell.dataset.row)), { once: true });
  }

  block(a, b) {
    const [rows, columns] = [
      [a, b].map((row) => Math.floor(row / this.columns)),
      [a, b].map((row) => row % this.columns),
    ];
    const inside = (value, [first, second]) => value >= Math.min(first, second) && value <= Math.max(first, second);
    return this.between(
      Math.min(...rows) * this.columns,
      Math.min((Math.max(...rows) + 1) * this.columns, this.labels.items.length) - 1,
    ).filter((row) => inside(row % this.columns, columns));
  }

  close() {
    this.sizes.disconnect();
    this.labels.removeEventListener("change", this.refresh);
  }
}
