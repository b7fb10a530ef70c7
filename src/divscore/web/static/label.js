// Labelling: one item or a grid; a key labels, saves and moves on. Nothing waits for the server between key and paint.

import { connection, follow, get, pause, post } from "./api.js";
import { askAnnotator } from "./annotator.js";
import { showAnswer } from "./answer.js";
import { action, announce, complain, empty, fill, h, key, toast } from "./element.js";
import { Grid } from "./grid.js";
import { showJob } from "./jobs.js";
import { chooseKeys, meaning, shown } from "./keys.js";
import { Labels, SKIP, UNSURE } from "./labels.js";
import { loadProjects, projectList } from "./projects.js";
import { go, showConnection, waiting } from "./router.js";
import { Stage } from "./stage.js";
import { count, whole } from "./words.js";

const PILOT = 20; // labels after which the expected width is computed anew, in the background

/** The list of projects, or one of them. @param {HTMLElement} main @param {any} route */
export async function mount(main, { parts, query, signal, title }) {
  if (!parts[0]) return mountList(main, signal, title);
  const project = await get(`/projects/${parts[0]}`, {}, { signal });
  title(project.name);
  if (!project.drawn) return mountUndrawn(main, project, signal);
  const annotator = await askAnnotator();
  if (signal.aborted) return;
  if (!annotator) return go("#/label");
  const [list, progress] = await Promise.all([
    get(`/projects/${project.id}/items`, { annotator }, { signal }),
    expectation(project, annotator, signal),
  ]);
  const desk = new Desk(main, project, new Labels(project, annotator, list), progress, signal);
  desk.changed = query.has("again"); // disagreements were settled since the last answer
  desk.open();
  return () => desk.close();
}

/** How far the labels are, and whether the expected width is the worst case of a simple sample. */
async function expectation(project, annotator, signal) {
  const [progress, plan] = await Promise.all([
    get(`/projects/${project.id}/progress`, { annotator }, { signal }),
    get(`/projects/${project.id}/plan`, {}, { signal }),
  ]);
  return { ...progress, simple: plan.basis === "simple sample" };
}

async function mountList(main, signal, title) {
  title("Label");
  const { projects, sources } = await loadProjects(signal);
  const content = projects.length
    ? projectList(projects, { sources, onchange: () => go("#/label") })
    : empty(
        "No labels yet",
        "Choose a collection and name its groups. Labelling 60 items takes about three minutes.",
        h("a.button.primary", { href: "#/" }, "Start"),
      );
  main.append(
    h(
      "div.page",
      h("div.heading", h("h1", "Label"), projects.length > 0 && h("a.button.primary", { href: "#/" }, "New question")),
      content,
    ),
  );
}

function mountUndrawn(main, project, signal) {
  const place = h("div");
  const draw = action("button.primary.large", `Draw ${count(project.size, "item")}`, async () => {
    await showJob(await post(`/projects/${project.id}/sample`, { size: project.size }), place, {
      title: "Drawing random items",
      signal,
    });
    go(`#/label/${project.id}`);
  });
  main.append(
    h("div.page.narrow", h("h1", project.name), h("p.lead", "No items are drawn yet."), h("div.actions", draw), place),
  );
}

/** The labelling page of one project and one annotator. */
class Desk {
  constructor(main, project, labels, progress, signal) {
    Object.assign(this, { main, project, labels, progress, signal });
    this.row = 0;
    this.answering = this.planned = this.told = false;
    this.stage = new Stage(labels, () => {});
    this.grid = null;
    this.build();
    labels.addEventListener("change", () => this.refresh());
    labels.addEventListener("elsewhere", ({ detail }) => this.follow(detail));
    labels.queue.addEventListener("change", () => this.showSaved());
    connection.addEventListener("change", () => this.showSaved(), { signal });
    document.addEventListener("keydown", (event) => this.press(event), { signal });
    addEventListener("beforeunload", (event) => labels.queue.waiting && !labels.queue.kept && event.preventDefault(), {
      signal,
    });
    waiting.text = () => {
      const { waiting: number, kept } = labels.queue;
      if (!number) return "";
      return kept
        ? `Not saved yet: ${number}. They are kept in this browser and sent when the server is back.`
        : `Not saved yet: ${number}. Keep this page open until the server is back: this browser stores nothing.`;
    };
  }

  build() {
    const { project } = this;
    this.saved = h("p.saved", { role: "status" });
    this.width = h("p.hint.width");
    this.bar = h("progress", { max: this.labels.items.length, "aria-label": "Labelled items" });
    this.undoButton = h("button", { type: "button", onclick: () => this.undo() });
    this.gridButton = h("button", { type: "button", onclick: () => this.toggleGrid() });
    this.keysButton = h("button", { type: "button", onclick: () => this.keys() });
    const who = h(
      "button.quiet.who",
      {
        type: "button",
        onclick: () => this.changeAnnotator(),
        "aria-label": `You label as ${this.labels.annotator}. Change`,
      },
      this.labels.annotator,
    );
    this.heading = h("h1", { dir: "auto" }, project.name);
    const top = h(
      "div.top",
      h(
        "div.what",
        this.heading,
        h(
          "p.hint",
          { dir: "auto" },
          project.basis === "perceived"
            ? `Perceived ${project.attribute}: judge by what you see or read`
            : `Self-declared ${project.attribute}`,
        ),
      ),
      h("div.state", this.saved, this.width),
      (this.tools = h("div.tools", this.undoButton, this.gridButton, this.keysButton, who)),
      this.bar,
    );
    this.refused = h("div.refused", { role: "alert" });
    this.position = h("p.position.number");
    this.view = h("div.view");
    this.choices = h("div.choices", { role: "group", "aria-label": project.attribute });
    this.previous = h("button", { type: "button", onclick: () => this.step(-1) });
    this.next = h("button", { type: "button", onclick: () => this.step(1) });
    this.moves = h("div.moves", this.previous, this.position, this.next);
    this.element = h(
      `section.desk${project.groups.length > 4 ? ".many" : ""}`,
      { "aria-label": "Labelling" },
      top,
      this.refused,
      this.view,
      this.moves,
      this.choices,
    );
    this.answer = h("div", { hidden: true });
    this.main.append(this.element, this.answer);
    this.buttons = [
      ...project.groups.map((name, group) => [name, `group-${group}`]),
      [UNSURE, "unsure"],
      [SKIP, "skip"],
    ];
    this.nameButtons();
    this.showWidth();
  }

  /** Buttons with their keys; again when these change. */
  nameButtons() {
    const many = this.project.groups.length;
    fill(
      this.choices,
      this.buttons.map(([label, action], at) =>
        h(
          at < many ? "button.group" : "button.other",
          { type: "button", dataset: { label }, onclick: () => this.give(label) },
          h("span", { dir: "auto" }, at < many ? label : label === UNSURE ? "Unsure" : "Skip"),
          key(shown(action)),
        ),
      ),
    );
    fill(this.undoButton, "Undo", key(shown("undo")));
    fill(this.keysButton, "Keys", key(shown("help")));
    fill(this.previous, key(shown("previous")), "Previous");
    fill(this.next, "Next", key(shown("next")));
    this.nameGrid();
  }

  nameGrid() {
    fill(this.gridButton, this.grid ? "One item" : "Grid", key(shown("grid")));
  }

  open() {
    this.view.replaceChildren(this.stage.element);
    const first = this.labels.items.findIndex((item) => item.label === null);
    this.show(Math.max(0, first));
    this.refresh();
    this.showSaved();
    if (this.labels.open === 0) this.finish();
  }

  // One item

  show(row) {
    this.row = row;
    this.stage.show(row);
    this.showPosition();
  }

  showPosition() {
    const { items } = this.labels;
    if (this.grid) {
      const number = this.grid.selected.size;
      this.position.textContent = number ? `${number} selected` : "Select items, then choose a group";
      this.choices.querySelectorAll("button").forEach((button) => {
        button.disabled = number === 0;
        button.setAttribute("aria-pressed", "false");
      });
      return;
    }
    const item = items[this.row];
    this.position.textContent = `${whole(this.row + 1)} of ${whole(items.length)}`;
    this.previous.disabled = this.row === 0;
    this.next.disabled = this.row === items.length - 1;
    for (const button of this.choices.children) {
      button.disabled = false;
      button.setAttribute("aria-pressed", String(button.dataset.label === item.label));
    }
  }

  step(by) {
    const to = this.row + by;
    if (this.grid || to < 0 || to >= this.labels.items.length) return;
    this.show(to);
    this.speak();
  }

  /** Label the item, or what is selected, and move on. @param {string} label */
  give(label) {
    if (this.answering) return;
    if (this.grid) {
      const rows = [...this.grid.selected].sort((a, b) => a - b);
      if (!rows.length) return;
      this.labels.assign(rows, label);
      this.grid.select([]);
      announce(`${count(rows.length, "item")}: ${label}`);
      if (this.labels.open === 0) this.finish();
      return;
    }
    // What was not on the screen cannot be labelled; a picture that does not load can be left out.
    if (!this.stage.seen && !(this.stage.failed && [UNSURE, SKIP].includes(label))) return;
    const row = this.row;
    this.labels.assign([row], label);
    const next = this.labels.nextOpen(row);
    if (next === null) return this.finish();
    this.show(next);
    this.speak(label);
  }

  /** Another tab labelled items: go on if this one is among them. @param {number[]} rows */
  follow(rows) {
    if (this.answering) return;
    if (this.labels.open === 0)
      return toast("All items have labels now; the last one got its label in another tab.", {
        kind: "note",
        label: "Show the answer",
        act: () => this.finish(),
      });
    if (this.grid || !rows.includes(this.row) || this.labels.items[this.row].label === null) return;
    if (!this.told) toast("You label in another tab too: items with a label are passed over here.", { kind: "note" });
    this.told = true;
    this.show(this.labels.nextOpen(this.row));
    this.speak();
  }

  speak(label = "") {
    const item = this.labels.items[this.row];
    announce(
      [label, `Item ${this.row + 1}`, item.text, item.label && `labelled ${item.label}`].filter(Boolean).join(". "),
    );
  }

  undo() {
    const rows = this.labels.undo();
    if (!rows) return toast("There is nothing to undo.", { kind: "note" });
    if (this.answering) this.back();
    if (this.grid) {
      this.grid.select(rows);
      this.grid.focus(rows[0]);
    } else this.show(rows[0]);
    announce(`Undone: ${rows.length === 1 ? `item ${rows[0] + 1}` : count(rows.length, "item")}`);
  }

  // Many items

  toggleGrid() {
    if (this.answering) return;
    if (this.grid) {
      const row = this.grid.at;
      this.grid.close();
      this.grid = null;
      this.view.replaceChildren(this.stage.element);
      this.show(row);
      this.gridButton.focus();
    } else {
      this.grid = new Grid(this.labels, () => this.showPosition());
      this.view.replaceChildren(this.grid.element);
      this.grid.layout();
      this.grid.focus(this.row);
      this.showPosition();
    }
    this.element.classList.toggle("gridded", Boolean(this.grid));
    this.moves.classList.toggle("gridded", Boolean(this.grid));
    this.previous.hidden = this.next.hidden = Boolean(this.grid);
    this.selectAll?.remove();
    if (this.grid)
      this.moves.append(
        (this.selectAll = h(
          "button",
          { type: "button", onclick: () => this.grid.selectOpen() },
          "Select visible without label",
          key("Ctrl+A"),
        )),
      );
    this.nameGrid();
  }

  // State

  refresh() {
    this.bar.value = this.labels.items.length - this.labels.open;
    this.undoButton.disabled = this.labels.done.length === 0;
    this.showPosition();
  }

  /** What the server acknowledged, never what is hoped for. */
  showSaved() {
    const { queue, items } = this.labels;
    const text = `Saved ${queue.saved}/${items.length}`;
    this.saved.textContent =
      queue.problem || (queue.waiting && !connection.up ? `${text}, ${queue.waiting} not yet` : text);
    this.saved.classList.toggle(
      "unsaved",
      Boolean(queue.problem || queue.refused) || (queue.waiting > 0 && !connection.up),
    );
    this.showRefused();
    showConnection();
    if (!this.planned && !this.project.by && queue.saved >= PILOT && items.length - queue.saved >= 10) this.improve();
  }

  /** The server will not take the labels, so they are given to the person. */
  showRefused() {
    const { queue } = this.labels;
    if (!queue.refused) return fill(this.refused);
    const text = `${count(queue.waiting, "label")} could not be saved: ${queue.refused} ${
      queue.kept ? "They are kept in this browser." : "Download them before you close this page."
    }`;
    if (this.refused.firstChild) return void (this.refused.querySelector("p").textContent = text);
    fill(
      this.refused,
      h(
        "div.note",
        h("p", text),
        h(
          "div.row",
          h("button.primary", { type: "button", onclick: () => this.download() }, "Download these labels"),
          h("button", { type: "button", onclick: () => queue.retry() }, "Try again"),
        ),
      ),
    );
  }

  download() {
    const href = URL.createObjectURL(new Blob([this.labels.waitingTable()], { type: "text/csv" }));
    h("a", { href, download: `unsaved-labels-${this.project.id}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }

  /** Expected precision of the answer; what the answer is, nobody knows before all labels are there. */
  showWidth() {
    const { width, simple } = this.progress;
    if (width === null) return fill(this.width);
    // The width is one of disparity: twice that of a share, where there are two groups or only the worst case is known.
    const points = Math.max(1, Math.round(25 * width));
    this.width.textContent =
      simple || this.project.groups.length === 2
        ? `Expected: ±${count(points, "point")}${simple ? " or better" : ""}`
        : `Expected: width ${width.toFixed(2)}`;
    this.width.title = `Expected width of the interval after ${this.labels.items.length} labels`;
  }

  /** With the first labels the expectation is better, and the collection is read before the answer needs it. */
  async improve() {
    this.planned = true;
    try {
      await follow(await post(`/projects/${this.project.id}/plan`, {}, { signal: this.signal }), {
        signal: this.signal,
      });
      this.progress = await expectation(this.project, this.labels.annotator, this.signal);
      this.showWidth();
    } catch (error) {
      if (error.name !== "AbortError") console.info(error.message); // the first expectation stays
    }
  }

  async finish() {
    this.answering = true;
    const { queue } = this.labels;
    await Promise.race([queue.settled(), pause(400)]);
    if (queue.waiting && !queue.refused)
      toast("The answer is computed as soon as all labels are saved.", { kind: "note" });
    await queue.settled();
    if (queue.refused) return void (this.answering = false);
    if (this.signal.aborted || !this.answering || this.labels.open) return;
    this.element.hidden = true;
    this.answer.hidden = false;
    try {
      await showAnswer(this.answer, this.project, {
        signal: this.signal,
        annotator: this.labels.annotator,
        again: this.changed || this.labels.done.length > 0,
        back: () => this.back(),
        more: (size) => this.more(size),
        other: () => this.changeAnnotator(),
      });
    } catch (error) {
      if (!this.signal.aborted) complain(error);
    }
  }

  /** From the answer to the labels. */
  back() {
    this.answering = false;
    this.answer.hidden = true;
    this.element.hidden = false;
    this.seeAnswer ??= h(
      "button.primary",
      { type: "button", onclick: () => this.labels.open === 0 && this.finish() },
      "Show the answer",
    );
    this.tools.prepend(this.seeAnswer);
    this.heading.tabIndex = -1;
    this.heading.focus();
  }

  async more(size) {
    const place = h("div");
    this.answer.firstChild.prepend(place);
    await showJob(await post(`/projects/${this.project.id}/sample`, { size }), place, {
      title: "Drawing more items",
      signal: this.signal,
    });
    go(`#/label/${this.project.id}`);
  }

  async changeAnnotator() {
    const before = this.labels.annotator;
    if ((await askAnnotator(true)) !== before && !this.signal.aborted) go(`#/label/${this.project.id}`);
  }

  async keys() {
    if (await chooseKeys(this.project.groups)) this.nameButtons();
    this.showPosition();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.target instanceof Element && event.target.closest("input, select, textarea")) return;
    const action = meaning(event);
    if (!action) return;
    const moving = action === "previous" || action === "next";
    if (event.repeat && !moving) return event.preventDefault(); // a key that is held down is one label
    if (this.answering && action !== "undo") return;
    event.preventDefault();
    if (action === "undo") this.undo();
    else if (moving) this.step(action === "next" ? 1 : -1);
    else if (action === "grid") this.toggleGrid();
    else if (action === "help") this.keys();
    else {
      const found = this.buttons.find(([, each]) => each === action);
      if (found) this.give(found[0]);
    }
  }

  close() {
    waiting.text = () => "";
    this.stage.close();
    this.grid?.close();
    this.labels.queue.close();
  }
}
