// Curate: choose the examples that represent their groups, see what they leave out, compare choices, publish.

import { get, post, remove } from "./api.js";
import { keptBlind } from "./blind.js";
import { dot, legend } from "./charts.js";
import { choiceTable, comparison, handList } from "./choices.js";
import { showControls } from "./controls.js";
import { action, announce, complain, dialog, field, fill, h, sure, toast } from "./element.js";
import { content, exampleDialog, exampleList, exampleStore, objectionList } from "./examples.js";
import { exampleMap } from "./map.js";
import { publishControl } from "./publish.js";
import { count, listed, percent, whole } from "./words.js";

const WAIT = 40; // milliseconds after the last move of a slider
const FIRST = 60; // examples of a list that are shown at once
// 0, then 0.05 … 10
const ALPHAS = [0, ...Array.from({ length: 41 }, (_, at) => Number((0.05 * 200 ** (at / 40)).toPrecision(2)))];
const [USUAL, MOST] = [50, 1000]; // representatives: as many as the command line takes; the end of the slider

/** Show the list of control sets, or one of them. */
export async function mount(main, route) {
  return route.parts[0] ? showControl(main, route.parts[0], route) : showControls(main, route);
}

async function showControl(main, number, { signal, title }) {
  const path = `/control-sets/${encodeURIComponent(number)}`;
  const [control, plane, objections, choices] = await Promise.all(
    [path, `${path}/map`, `${path}/objections`, `${path}/choices`].map((each) => get(each, {}, { signal })),
  );
  title(control.name);
  if (await keptBlind(main, [control.project], signal)) return;
  const desk = new Desk(control, plane, objections, choices, signal);
  main.append(desk.page);
  await desk.select();
}

/** The page of one control set: what is chosen now, and everything that shows it. */
class Desk {
  constructor(control, plane, objections, choices, signal) {
    Object.assign(this, { control, plane, objections, choices, signal, path: `/control-sets/${control.id}` });
    this.store = exampleStore(control.id, signal);
    this.made = new Map();
    this.tab = "representatives";
    this.selected = null;
    this.sides = null;
    this.draft = this.remembered();
    this.build();
  }

  get memory() {
    return `divscore-choice-${this.control.id}-${this.control.digest.slice(0, 16)}`;
  }

  /** What was chosen here before, or the usual size. */
  remembered() {
    const groups = this.control.groups.length;
    const most = groups * Math.min(...Object.values(this.control.counts));
    this.limits = { min: Math.min(2 * groups, most), max: Math.min(most, MOST - (MOST % groups)), step: groups };
    const [own, adaptive] = [this.control.representatives, /^adaptive, α = ([\d.]+)/.exec(this.control.method)];
    const size = own < this.control.labelled ? own : USUAL;
    const start = {
      size: Math.min(most, size - (size % groups)),
      alpha: adaptive ? Number(adaptive[1]) : 1,
      added: [],
      dropped: [],
      name: "",
    };
    try {
      return { ...start, ...JSON.parse(localStorage.getItem(this.memory) ?? "{}") };
    } catch {
      return start;
    }
  }

  remember() {
    localStorage.setItem(this.memory, JSON.stringify(this.draft));
  }

  // What is on the page

  build() {
    const { control, signal } = this;
    this.size = h("input", { type: "range", ...this.limits });
    this.alpha = h("input", { type: "range", min: 0, max: ALPHAS.length - 1, step: 1 });
    this.sizeText = h("output");
    this.alphaText = h("output");
    const slider = (label, input, output, hint) => {
      const element = field(label, input, hint);
      element.classList.add("slider");
      element.querySelector("label").append(output);
      return element;
    };
    const moved = () => {
      this.draft.size = Number(this.size.value);
      this.draft.alpha = ALPHAS[Number(this.alpha.value)];
      this.changed();
    };
    this.size.addEventListener("input", moved, { signal });
    this.alpha.addEventListener("input", moved, { signal });
    this.gaps = h("p.gaps");
    this.gamma = h("p.hint.number");
    this.map = exampleMap(this.plane, {
      onopen: (row) => this.open(row),
      describe: (row) => this.described(row),
      signal,
    });
    this.legend = legend(this.plane.labels_of, { shapes: true });
    this.mapNote = h("p.hint");
    this.place = h("div.place");
    this.saved = h("div");
    this.panel = h("div.panel");
    this.tabs = h("div.row.tabs", { role: "group", "aria-label": "Which examples to show" });
    this.search = h("input", {
      type: "search",
      placeholder: "Find by name",
      "aria-label": "Find examples by name",
      oninput: () => this.showPanel(),
    });
    const counts = control.groups.map((name) => `${whole(control.counts[name])} ${name}`);
    this.page = h(
      "div.page.wide",
      h("p.back", h("a", { href: "#/curate" }, "← Control sets")),
      h(
        "div.heading",
        h(
          "div",
          h("h1", { dir: "auto" }, control.name),
          h("p.hint", { dir: "auto" }, `${control.attribute}: ${listed(counts)}`),
        ),
        h(
          "div.row",
          action("button", "Save choice", () => this.ask()),
          h("a.button", { href: `#/audits/new?control=${control.id}` }, "Audit with it"),
          action("button.primary", "Publish", () => this.publish()),
        ),
      ),
      this.place,
      h(
        "div.workbench",
        h(
          "section.choosing",
          { "aria-label": "Choice" },
          h(
            "div.sliders",
            slider("Size", this.size, this.sizeText, "Representatives of all groups together"),
            slider(
              "α",
              this.alpha,
              this.alphaText,
              "How much variety counts: 0 takes the most typical examples, more takes examples that differ",
            ),
          ),
          this.gaps,
          this.map,
          this.legend,
          this.mapNote,
          this.gamma,
          h("p.hint", "γ: how well similarity tells the groups apart; 0 is not at all, and more is better."),
        ),
        h("section.pool", { "aria-label": "Examples" }, this.tabs, this.panel),
      ),
      h("section.kept", h("h2", "Saved choices"), this.saved),
    );
    this.showChoices();
  }

  async described(row) {
    const example = await this.store.get(row);
    const state = this.chosen.has(row) ? "representative" : this.holes.has(row) ? "no representative near" : "";
    return [content(example), h("span.hint", [example.group, state].filter(Boolean).join(" · "))];
  }

  // Choosing

  /** Something moved: choose again soon; an answer to an older question is dropped. */
  changed() {
    this.remember();
    this.sides = null;
    this.showDraft();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.select().catch(complain), WAIT);
  }

  async select() {
    this.asked?.abort(new DOMException("A newer choice", "AbortError"));
    this.asked = new AbortController();
    this.showDraft();
    const { size, alpha, added, dropped } = this.draft;
    const signal = AbortSignal.any([this.asked.signal, this.signal]);
    try {
      this.selected = await post(`${this.path}/selection`, { size, alpha, added, dropped }, { signal });
    } catch (error) {
      if (error.status !== 422 || !localStorage.getItem(this.memory)) throw error;
      localStorage.removeItem(this.memory); // remembered of a set that has changed since
      this.draft = this.remembered();
      return this.select();
    }
    this.show();
  }

  get chosen() {
    return new Set(this.selected?.representatives ?? []);
  }

  get holes() {
    return new Set(this.selected?.gaps.rows ?? []);
  }

  byHand(row) {
    return [...this.draft.added, ...this.draft.dropped].find((each) => each.row === row) ?? null;
  }

  // Showing

  showDraft() {
    const { size, alpha } = this.draft;
    this.size.max = String(Math.max(this.limits.max, size));
    this.size.value = String(size);
    const near = ALPHAS.reduce(
      (best, value, at) => (Math.abs(value - alpha) < Math.abs(ALPHAS[best] - alpha) ? at : best),
      0,
    );
    this.alpha.value = String(near);
    this.alpha.setAttribute("aria-valuetext", String(alpha));
    this.sizeText.textContent = whole(size);
    this.alphaText.textContent = String(alpha);
  }

  show() {
    const { gaps, gamma, gamma_control: own, representatives } = this.selected;
    const hand = [...this.draft.added, ...this.draft.dropped].map((each) => each.row);
    const shown = this.sides ? new Set(this.sides.keys()) : this.chosen;
    this.map.show({
      representatives: shown,
      gaps: this.holes,
      byHand: new Set(this.sides ? [] : hand),
      sides: this.sides,
    });
    this.legend.classList.toggle("plain", Boolean(this.sides)); // colours then tell the choices apart
    const key = this.sides
      ? ["grey: in both", "green: only in the first", "purple: only in the second"]
      : [
          "large: representatives",
          gaps.count > 0 && "red ring: no representative near",
          hand.length > 0 && "frame: changed by hand",
        ];
    const explained = percent(this.plane.explained[0] + this.plane.explained[1]);
    this.mapNote.textContent = `${key.filter(Boolean).join(" · ")}. The map shows ${explained} of the variation.`;
    const missing = (name, at) =>
      `${whole(gaps.rows.filter((row) => this.plane.groups[row] === at).length)} ${name}`;
    fill(
      this.gaps,
      h(
        "strong",
        gaps.count
          ? `${whole(gaps.count)} of ${whole(gaps.of)} labelled items have no representative near`
          : "Every labelled item has a representative near",
      ),
      gaps.count > 0 && `: ${listed(this.plane.labels_of.map(missing))}`,
      ".",
    );
    const number = (value) => (value === null ? "unknown" : value.toFixed(3));
    this.gamma.textContent = `γ of all labelled items ${number(gamma)} · γ of the representatives ${number(own)}`;
    const tabs = {
      representatives: `Representatives ${whole(representatives.length)}`,
      gaps: `Gaps ${whole(gaps.count)}`,
      hand: `By hand ${hand.length}`,
      ...(this.objections.length && { objections: `Objections ${this.objections.length}` }),
      all: "All",
    };
    const focused = this.tabs.contains(document.activeElement) && document.activeElement.dataset.tab;
    fill(
      this.tabs,
      Object.entries(tabs).map(([name, label]) =>
        h(
          "button",
          {
            type: "button",
            "aria-pressed": String(name === this.tab),
            dataset: { tab: name },
            onclick: () => this.turn(name),
          },
          label,
        ),
      ),
    );
    if (focused) this.tabs.querySelector(`[data-tab=${focused}]`)?.focus();
    this.showPanel();
  }

  turn(name) {
    this.tab = name;
    this.show();
  }

  showPanel() {
    const kept = this.panel.scrollTop;
    if (this.tab === "hand")
      fill(
        this.panel,
        handList(this.draft, this.plane.ids, { open: (row) => this.open(row), undo: (row) => this.undo(row) }),
      );
    else if (this.tab === "objections")
      fill(
        this.panel,
        objectionList(this.objections, (row) => this.open(row)),
      );
    else if (this.tab === "all") {
      const word = this.search.value.trim().toLowerCase();
      const found = this.plane.ids
        .map((_, row) => row)
        .filter((row) => !word || this.plane.ids[row].toLowerCase().includes(word));
      // The field stays where it is, so that typing goes on.
      if (this.search.parentNode !== this.panel) fill(this.panel, this.search);
      while (this.search.nextSibling) this.search.nextSibling.remove();
      this.panel.append(
        h("p.hint", `${count(found.length, "example")}${found.length > FIRST ? `, the first ${FIRST} are shown` : ""}`),
        this.listed(found.slice(0, FIRST)),
      );
    } else {
      const rows = this.tab === "gaps" ? this.selected.gaps.rows : this.selected.representatives;
      fill(
        this.panel,
        this.tab === "gaps" &&
          h("p.hint", "These labelled items are far from every representative of their group. Open one to add it."),
        this.plane.labels_of.map((name, at) =>
          this.groupList(
            name,
            rows.filter((row) => this.plane.groups[row] === at),
            at,
          ),
        ),
      );
    }
    this.panel.scrollTop = kept;
  }

  /** Examples as a list; `made` keeps their elements, so that pictures stay while a slider moves. */
  listed(rows, made = this.made) {
    const objected = new Set(this.objections.map((each) => each.row));
    const marks = (row) =>
      [
        this.tab !== "representatives" && this.chosen.has(row) && "representative",
        this.draft.added.some((each) => each.row === row) && "added",
        this.draft.dropped.some((each) => each.row === row) && "dropped",
        objected.has(row) && "objection",
      ].filter(Boolean);
    return exampleList(rows, { store: this.store, plane: this.plane, open: (row) => this.open(row), marks, made });
  }

  groupList(name, rows, group) {
    const list = this.listed(rows.slice(0, FIRST));
    const more =
      rows.length > FIRST &&
      h(
        "button.quiet",
        { type: "button", onclick: () => (list.append(...this.listed(rows.slice(FIRST)).children), more.remove()) },
        `Show all ${whole(rows.length)}`,
      );
    return h(
      "section.group",
      h("h3", dot(group, true), h("span", { dir: "auto" }, name), h("span.hint", whole(rows.length))),
      rows.length ? list : h("p.hint", "none"),
      more,
    );
  }

  // Changes by hand

  async open(row) {
    try {
      const example = await this.store.get(row);
      const answer = await exampleDialog(example, {
        chosen: this.chosen.has(row),
        change: this.byHand(row),
        of: this.control.counts[example.group],
      });
      if (!answer) return;
      if (answer.change === "undo") return this.undo(row);
      this.draft[answer.change === "add" ? "added" : "dropped"].push({ row, reason: answer.reason });
      announce(answer.change === "add" ? "Added" : "Dropped");
      this.changed();
    } catch (error) {
      complain(error);
    }
  }

  undo(row) {
    for (const name of ["added", "dropped"]) this.draft[name] = this.draft[name].filter((each) => each.row !== row);
    this.changed();
  }

  // Choices that are kept

  showChoices() {
    fill(
      this.saved,
      choiceTable(this.choices, {
        load: (choice) => this.load(choice),
        discard: (choice) => this.discard(choice).catch(complain),
        compare: (a, b) => this.compare(a, b).catch(complain),
      }),
      (this.compared = h("div.compared")),
    );
  }

  load({ size, alpha, added, dropped, name }) {
    this.draft = { size, alpha, added: [...added], dropped: [...dropped], name };
    this.changed();
    toast(`“${name}” is shown.`);
  }

  async discard(choice) {
    if (!(await sure(`Remove “${choice.name}”?`, "The choice and its reasons are removed from the project.", "Remove")))
      return;
    await remove(`${this.path}/choices/${choice.id}`);
    this.choices = this.choices.filter((each) => each.id !== choice.id);
    this.showChoices();
  }

  /** A saved choice that is what is shown now. */
  get same() {
    const look = ({ size, alpha, added, dropped }) =>
      JSON.stringify([size, alpha, ...[added, dropped].map((own) => own.map((each) => [each.row, each.reason]))]);
    return this.choices.find((choice) => look(choice) === look(this.draft)) ?? null;
  }

  async save(name) {
    if (this.same) return this.same;
    const { size, alpha, added, dropped } = this.draft;
    const choice = await post(`${this.path}/choices`, { size, alpha, added, dropped, name });
    this.choices = [...this.choices, choice];
    this.showChoices();
    return choice;
  }

  get proposal() {
    const { size, alpha, added, dropped } = this.draft;
    return `${size}, α ${alpha}${added.length + dropped.length ? ", by hand" : ""}`;
  }

  async ask() {
    if (this.same) return toast(`This choice is saved already, as “${this.same.name}”.`, { kind: "note" });
    const name = field("Name", h("input", { type: "text", maxlength: 200, value: this.proposal, autofocus: true }));
    const answer = await dialog({
      title: "Save this choice",
      body: name,
      actions: [
        { label: "Cancel", value: null },
        { label: "Save", value: true, primary: true },
      ],
    });
    if (!answer) return;
    const choice = await this.save(name.input.value.trim() || this.proposal);
    toast(`“${choice.name}” is saved.`);
  }

  async compare(a, b) {
    if (a.id === b.id) return toast("Choose two different choices.", { kind: "note" });
    const result = await get(`${this.path}/choices/compare`, { a: a.id, b: b.id }, { signal: this.signal });
    this.sides = new Map([
      ...result.both.map((row) => [row, "both"]),
      ...result.only_a.map((row) => [row, "a"]),
      ...result.only_b.map((row) => [row, "b"]),
    ]);
    this.show();
    const end = () => {
      this.sides = null;
      this.compared.replaceChildren();
      this.show();
    };
    fill(
      this.compared,
      comparison(result, [a, b], { end, list: (rows) => this.listed(rows.slice(0, FIRST), new Map()) }),
    );
    this.compared.querySelector("h3").focus();
  }

  async publish() {
    const done = await publishControl(this.control, this.place, {
      choices: this.choices,
      changed: !this.same,
      save: () => this.save(this.proposal),
      signal: this.signal,
    });
    if (!done) return;
    this.objections = await get(`${this.path}/objections`, {}, { signal: this.signal });
    this.store.forget();
    this.show();
  }
}
