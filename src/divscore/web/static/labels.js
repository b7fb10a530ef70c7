// What this annotator said about the drawn items, and how to take it back.

import { Queue } from "./queue.js";

export const UNSURE = "unsure";
export const SKIP = "skip";

/**
 * @typedef {{id: number, number: number, kind: string, name: string, text: string|null, image: string|null, label: string|null}} Item
 */

/**
 * The items of a project in the order of the draw. Sends "change" with `detail` = the rows that changed, and then
 * "elsewhere" with the same if another tab changed them.
 */
export class Labels extends EventTarget {
  /** @param {any} project @param {string} annotator @param {{items: Item[], saved: number}} list */
  constructor(project, annotator, list) {
    super();
    this.project = project;
    this.annotator = annotator;
    this.items = list.items;
    this.queue = new Queue(project, annotator, list.saved);
    const rows = new Map(this.items.map((item, row) => [item.id, row]));
    for (const { item, label } of this.queue.changes) {
      // What an earlier page could not send is newer than what the server has.
      if (rows.has(item)) this.items[rows.get(item)].label = label;
    }
    this.open = this.items.filter((item) => item.label === null).length;
    /** @type {{row: number, before: string|null}[][]} */
    this.done = [];
    this.queue.addEventListener("elsewhere", ({ detail }) => {
      const changes = detail.map(({ item, label }) => ({ row: rows.get(item), label }));
      this.take(changes.filter(({ row }) => row !== undefined));
    });
  }

  /** What another tab did; Undo of this one no longer touches it. */
  take(changes) {
    const changed = new Set(changes.map(({ row }) => row));
    this.done = this.done
      .map((step) => step.filter(({ row }) => !changed.has(row)))
      .filter((step) => step.length > 0);
    this.set(changes);
    this.dispatchEvent(new CustomEvent("elsewhere", { detail: [...changed] }));
  }

  /** Give rows a label; one call is one step of Undo. @param {number[]} rows @param {string|null} label */
  assign(rows, label) {
    const step = rows.map((row) => ({ row, before: this.items[row].label }));
    this.done.push(step);
    this.write(step.map(({ row }) => ({ row, label })));
  }

  /** Take back the last step; returns its rows, or null where there is none. */
  undo() {
    const step = this.done.pop();
    if (!step) return null;
    this.write(step.map(({ row, before }) => ({ row, label: before })));
    return step.map(({ row }) => row);
  }

  write(changes) {
    this.set(changes);
    this.queue.add(changes.map(({ row, label }) => ({ item: this.items[row].id, label })));
  }

  set(changes) {
    for (const { row, label } of changes) {
      const item = this.items[row];
      this.open += Number(label === null) - Number(item.label === null);
      item.label = label;
    }
    this.dispatchEvent(new CustomEvent("change", { detail: changes.map(({ row }) => row) }));
  }

  /** What the server has not taken, as a table. */
  waitingTable() {
    const names = new Map(this.items.map(({ id, name }) => [id, name]));
    // A cell that begins like a formula would be computed by a spreadsheet.
    const cell = (text) => `"${text.replace(/^(?=[=+\-@\t\r])/, "'").replaceAll('"', '""')}"`;
    const row = ({ item, label, at }) => [names.get(item) ?? "", this.annotator, label ?? "", at];
    const rows = [["item", "annotator", "group", "time"], ...this.queue.changes.map(row)];
    return rows.map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
  }

  /** The next row without a label after `row`, from the start again at the end; null where all have one. */
  nextOpen(row) {
    if (!this.open) return null;
    for (let step = 1; step <= this.items.length; step++) {
      const at = (row + step) % this.items.length;
      if (this.items[at].label === null) return at;
    }
    return null;
  }
}
