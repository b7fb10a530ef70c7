// The start page: which collection, which groups, what there is already, how many labels.

import { get, pause, post } from "./api.js";
import { annotator, keepAnnotator } from "./annotator.js";
import { action, announce, choice, complain, field, fill, h } from "./element.js";
import { showJob } from "./jobs.js";
import { KINDS, loadProjects, projectList } from "./projects.js";
import { go } from "./router.js";
import { targetFields } from "./target.js";
import { count, duration, whole } from "./words.js";

const SECONDS = 3; // that a label takes, from 60 labels in three minutes
const USUAL = 60;
const MOST_GROUPS = 12;
/** Common questions, for those who want to click. */
const EXAMPLES = [
  ["gender", "women", "men"],
  ["age", "under 40", "40 or older"],
  ["skin tone", "lighter", "darker"],
];

/** A source without what changes while its items are counted. @param {any} source */
const uncounted = ({ items, counting, ...rest }) => rest;

/** @param {HTMLElement} main @param {any} route */
export async function mount(main, { signal, title }) {
  title("");
  const [{ projects, sources }, status, controls] = await Promise.all([
    loadProjects(signal),
    get("/status", {}, { signal }),
    get("/control-sets", {}, { signal }),
  ]);
  const page = h("div.page.narrow.start");
  main.append(page);
  page.append(
    h("h1", "How evenly are groups represented?"),
    h(
      "p.lead",
      "Label a few random items of your collection. divscore works out the share of each group among all of them, and how certain that is. Nothing leaves this computer.",
    ),
  );
  if (projects.length)
    page.append(
      h(
        "section.continue",
        h("h2", "Continue"),
        projectList(projects, { sources, most: 3 }),
        projects.length > 3 && h("p", h("a", { href: "#/label" }, `All ${projects.length} projects`)),
        h("h2", "Ask something new"),
      ),
    );
  const form = new Form(status.start, controls, signal);
  page.append(form.element);
  form.showSources(sources);
  form.focus();
  form.watch(sources).catch(complain);
}

/** The steps and what was chosen in them. */
class Form {
  constructor(start, controls, signal) {
    Object.assign(this, { start, controls, signal, sources: [], expected: [] });
    [this.sourceBox, this.columnBox, this.partsBox] = [h("div.stack"), h("div"), h("div")];
    this.attribute = field(
      "What tells the groups apart?",
      h("input", { maxlength: 200, placeholder: "gender", value: start.attribute ?? "", autocomplete: "off" }),
    );
    this.examples = h(
      "p.examples",
      h("span.hint", "For example"),
      EXAMPLES.map(([attribute, ...groups]) =>
        h(
          "button",
          { type: "button", onclick: () => this.take(attribute, groups) },
          `${attribute}: ${groups.join(", ")}`,
        ),
      ),
    );
    this.groupList = h("ul.groups");
    this.groupProblem = h("p.wrong", { role: "alert" });
    this.more = h("button.quiet", { type: "button", onclick: () => this.addGroup("", true) }, "Add a group");
    this.basis = choice(
      "The label is",
      [
        { value: "perceived", label: "Perceived", hint: "You judge by what you see or read." },
        { value: "self-declared", label: "Self-declared", hint: "The people said so themselves." },
      ],
      { inline: true },
    );
    this.target = targetFields();
    this.have = choice(
      "What do you have?",
      [
        { value: "none", label: "I have no labelled examples", hint: "You label a random sample now." },
        {
          value: "control",
          label: "I have a control set",
          hint: controls.length ? "It makes the answer more precise." : "There is none in this project yet: make one, or read labelled examples under Curate.",
          disabled: !controls.length,
        },
        { value: "make", label: "Make a control set for later", hint: "To audit other collections with your labels." },
      ],
      { quiet: true, onchange: () => this.showControl() },
    );
    this.control = field(
      "Control set",
      h(
        "select",
        { onchange: () => this.useControl() },
        controls.map((each) =>
          h(
            "option",
            { value: each.id },
            `${each.name}: ${each.groups.join(", ")} (${count(each.labelled, "example")})`,
          ),
        ),
      ),
    );
    this.control.hidden = true;
    this.sizeBox = h("div");
    this.size = USUAL;
    this.name = field(
      "Your name",
      h("input", { maxlength: 200, value: annotator() || "me", autocomplete: "name" }),
      "Kept with each label, so that a second person can label the same items.",
    );
    this.job = h("div");
    this.go = action("button.primary.large", "Start labelling", () => this.begin(), { type: "submit" });
    const step = (number, name, ...content) =>
      h(
        "section.step",
        { "aria-labelledby": `step-${number}` },
        h("h2", { id: `step-${number}` }, h("span.count", { "aria-hidden": "true" }, number), name),
        h("div.stack", content),
      );
    this.element = h(
      "form.steps",
      { novalidate: true, onsubmit: (event) => event.preventDefault() },
      step(1, "Collection", this.sourceBox),
      step(
        2,
        "Groups",
        this.attribute,
        this.examples,
        h("fieldset", h("legend", "Names of the groups"), this.groupList, this.groupProblem, this.more),
        this.basis,
        this.target,
      ),
      step(3, "What you have", this.have, this.control),
      step(4, "Labels", this.sizeBox, this.name),
      h("div.actions", this.go),
      this.job,
    );
    for (const name of start.groups?.length ? start.groups : ["", ""]) this.addGroup(name);
    this.showSizes();
  }

  // The collection

  showSources(sources) {
    const [before, listed] = [this.source, this.sources];
    this.sources = sources;
    if (!sources.length) {
      fill(
        this.sourceBox,
        h(
          "p.note",
          "No collection is open. Stop divscore with Ctrl-C and start it with your folder or table: divscore label PHOTOS. Or copy a table into the project folder and reload this page. The browser extension needs none: see Pages.",
        ),
      );
      this.go.disabled = true;
      return;
    }
    this.go.disabled = false;
    const hint = (source) => {
      if (source.state === "reading" || (source.counting && source.items === null)) return "Counting …";
      if (source.state === "failed") return source.problem;
      return source.items === null ? KINDS[source.kind] : count(source.items, KINDS[source.kind]);
    };
    if (listed.length && JSON.stringify(listed.map(uncounted)) === JSON.stringify(sources.map(uncounted))) {
      for (const source of sources) this.chosen.hint(String(source.id), hint(source));
      return this.showExpected();
    }
    const usable = sources.filter((source) => source.state !== "failed");
    const wanted = before ?? usable.find((source) => source.id === this.start.source) ?? usable[0];
    this.chosen = choice(
      "Which one?",
      sources.map((source) => ({
        value: String(source.id),
        label: source.name,
        hint: hint(source),
        disabled: source.state === "failed",
      })),
      { value: wanted && String(wanted.id), quiet: true, onchange: () => this.showSource() },
    );
    fill(this.sourceBox, this.chosen, this.columnBox, this.partsBox);
    this.showSource();
  }

  get source() {
    return this.sources.find((source) => String(source.id) === this.chosen?.value);
  }

  showSource() {
    const { source } = this;
    const chosen = this.column?.value;
    fill(this.columnBox);
    this.column = null;
    if (source?.kind === "text" && source.text_columns.length > 1) {
      const names = source.text_columns;
      const guess =
        names.find((name) => name === chosen) ??
        this.start.column ??
        names.find((name) => /text|body|content|message|title/i.test(name)) ??
        names.at(-1);
      this.column = h(
        "select",
        names.map((name) => h("option", { value: name, selected: name === guess }, name)),
      );
      this.columnBox.append(field("Column with the text", this.column));
    }
    this.showParts();
    this.showExpected();
  }

  /** How precise the answer will be, once the items are counted. */
  async showExpected() {
    const { source } = this;
    const { expected } = source?.items
      ? await get(`/sources/${source.id}/plan`, {}, { signal: this.signal }).catch(() => ({ expected: [] }))
      : { expected: [] };
    if (source?.id !== this.source?.id) return; // another one was chosen meanwhile
    this.expected = expected;
    this.showSizes();
  }

  /** A table or folder may have parts to compare, which are then collections of their own. */
  showParts() {
    const { columns = [], text_columns: texts = [] } = this.source ?? {};
    // What people read has no parts, and neither has a file.
    const names = columns.filter((name) => name !== "file" && (texts.length !== 1 || name !== texts[0]));
    const wanted = this.parts?.value ?? this.start.by; // the list of sources may be shown again while they are read
    const open = this.partsBox.querySelector("details")?.open || Boolean(wanted);
    fill(this.partsBox);
    this.parts = null;
    if (!names.length) return;
    this.parts = h(
      "select",
      { onchange: () => this.showSizes() },
      h("option", { value: "" }, "All items together"),
      names.map((name) => h("option", { value: name, selected: name === wanted }, `Each ${name}`)),
    );
    this.partsBox.append(
      h(
        "details.more",
        { open },
        h("summary", "Compare parts of it"),
        field("One answer for", this.parts, "Each part has a sample of its own."),
      ),
    );
  }

  /** Ask again until every collection is counted; keep what the person chose meanwhile. */
  async watch(sources) {
    while (sources.some((source) => source.state === "reading" || source.counting)) {
      try {
        await pause(700, this.signal);
      } catch {
        return;
      }
      const now = await get("/sources", {}, { signal: this.signal }).catch(() => sources);
      if (JSON.stringify(now) === JSON.stringify(sources)) continue;
      const focused = this.sourceBox.contains(document.activeElement);
      this.showSources((sources = now));
      if (focused && !this.sourceBox.contains(document.activeElement)) this.chosen.querySelector(":checked")?.focus();
    }
  }

  // The groups

  addGroup(name, focus = false) {
    const input = h("input", {
      maxlength: 200,
      value: name,
      autocomplete: "off",
      dir: "auto",
      placeholder: ["women", "men", "others"][this.groupList.children.length] ?? "",
    });
    const drop = h(
      "button.quiet",
      {
        type: "button",
        onclick: () => (row.remove(), this.numberGroups(), this.groupList.querySelector("input")?.focus()),
      },
      "×",
    );
    const row = h("li", input, drop);
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // Enter goes on to the next group, and starts nothing
      const next = row.nextElementSibling?.querySelector("input");
      if (next) next.focus();
      else this.basis.querySelector(":checked").focus();
    });
    input.addEventListener("input", () => this.target.groups(this.groups));
    this.groupList.append(row);
    this.numberGroups();
    if (focus) input.focus();
  }

  numberGroups() {
    const rows = [...this.groupList.children];
    rows.forEach((row, at) => {
      row.querySelector("input").setAttribute("aria-label", `Group ${at + 1}`);
      const drop = row.querySelector("button");
      drop.setAttribute("aria-label", `Remove group ${at + 1}`);
      drop.hidden = rows.length <= 2;
    });
    this.more.hidden = rows.length >= MOST_GROUPS;
    this.target.groups(this.groups);
  }

  /** Fill in a question that is known. */
  take(attribute, groups) {
    this.attribute.input.value = attribute;
    fill(this.groupList);
    for (const name of groups) this.addGroup(name);
    announce(`${attribute}: ${groups.join(", ")}`);
  }

  get groups() {
    return [...this.groupList.querySelectorAll("input")].map((input) => input.value.trim()).filter(Boolean);
  }

  // Labelled examples

  showControl() {
    this.control.hidden = this.have.value !== "control";
    if (!this.control.hidden) this.useControl();
  }

  useControl() {
    const set = this.controls.find((each) => String(each.id) === this.control.input.value);
    if (!set) return;
    this.take(set.attribute, set.groups);
  }

  // How many labels

  showSizes() {
    const items = this.source?.items ?? Infinity;
    const known = new Map(this.expected.map(({ labels, width }) => [labels, width]));
    const sizes = [30, 60, 100, 200].filter((number) => number <= items);
    if (!sizes.length) sizes.push(items);
    if (!sizes.includes(this.size)) this.size = sizes.includes(USUAL) ? USUAL : sizes.at(-1);
    const hint = (number) =>
      [
        this.parts?.value ? "of each part" : `about ${duration(number * SECONDS)}`,
        known.has(number) && !this.parts?.value && `±${count(Math.max(1, Math.round(25 * known.get(number))), "point")}`,
      ]
        .filter(Boolean)
        .join("\n");
    if (this.sizes && sizes.join() === this.offered) {
      for (const number of sizes) this.sizes.hint(String(number), hint(number));
      return this.nameButton();
    }
    this.offered = sizes.join();
    this.sizes = choice(
      "How many do you want to label?",
      sizes.map((number) => ({ value: String(number), label: whole(number), hint: hint(number) })),
      { value: String(this.size), inline: true, onchange: (value) => ((this.size = Number(value)), this.nameButton()) },
    );
    const focused = this.sizeBox.contains(document.activeElement);
    fill(
      this.sizeBox,
      this.sizes,
      h(
        "p.hint",
        "“±5 points” means: the share could be 5 percentage points higher or lower. Often it is better than that. ",
        "Choose the number now and stay with it: if you add labels later because of the result, the interval is ",
        "somewhat too narrow for its 95%.",
      ),
    );
    if (focused) this.sizes.querySelector(":checked").focus();
    this.nameButton();
  }

  nameButton() {
    const each = this.parts?.value ? ` of each ${this.parts.value}` : "";
    this.go.textContent = `Draw ${count(this.size, "item")}${each} and start`;
  }

  // Start

  /** Put the focus on the first thing that is missing. */
  focus() {
    const open = [this.attribute.input, ...this.groupList.querySelectorAll("input"), this.name.input].find(
      (input) => !input.value,
    );
    if (this.sources.length) (open ?? this.go).focus({ preventScroll: true });
  }

  /** Whether everything is there; problems are shown where they are. */
  check() {
    const { groups } = this;
    const same = groups.find(
      (name, at) => groups.findIndex((other) => other.toLowerCase() === name.toLowerCase()) < at,
    );
    this.attribute.problem(
      this.attribute.input.value.trim() ? "" : "Type a word for it, such as gender, age or dialect.",
    );
    this.groupProblem.textContent =
      groups.length < 2 ? "Name at least two groups." : same ? `Two groups are called “${same}”.` : "";
    this.name.problem(this.name.input.value.trim() ? "" : "Type a name, such as your initials.");
    const wrong =
      this.attribute.querySelector("[aria-invalid]") ??
      (this.groupProblem.textContent
        ? ([...this.groupList.querySelectorAll("input")].find((input) => !input.value.trim()) ??
          this.groupList.querySelector("input"))
        : null) ??
      this.name.querySelector("[aria-invalid]");
    wrong?.focus();
    return !wrong;
  }

  async begin() {
    if (!this.check()) return;
    keepAnnotator(this.name.input.value);
    const { source } = this;
    // With a control set, items are drawn in pairs.
    const size = this.have.value === "control" ? this.size - (this.size % 2) : this.size;
    const attribute = this.attribute.input.value.trim();
    const project = await post("/projects", {
      name: `${attribute} in ${source.name}`.slice(0, 200),
      source: source.id,
      column: this.column?.value ?? null,
      by: this.parts?.value || null,
      attribute,
      groups: this.groups,
      basis: this.basis.value,
      purpose: this.have.value === "make" ? "control" : "audit",
      control: this.have.value === "control" ? Number(this.control.input.value) : null,
      size,
      ...this.target.value,
    });
    this.job.scrollIntoView({ block: "nearest" });
    await showJob(await post(`/projects/${project.id}/sample`, { size }), this.job, {
      title: "Drawing random items",
      signal: this.signal,
    });
    go(`#/label/${project.id}`);
  }
}
