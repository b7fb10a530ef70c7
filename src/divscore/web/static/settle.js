// Several annotators: how well they agree, and the items on which they do not, settled by keys.

import { get, put } from "./api.js";
import { askAnnotator } from "./annotator.js";
import { announce, complain, empty, field, fill, h, key } from "./element.js";
import { meaning, shown } from "./keys.js";
import { UNSURE } from "./labels.js";
import { count, listed } from "./words.js";

/** What a value of κ means (Landis and Koch 1977). */
const meaningOf = (kappa) => {
  const steps = [
    [0.81, "almost perfect"],
    [0.61, "substantial"],
    [0.41, "moderate"],
    [0.21, "fair"],
    [0, "slight"],
  ];
  return steps.find(([least]) => kappa >= least)?.[1] ?? "less than by chance";
};

/** @param {HTMLElement} main @param {any} route */
export async function mount(main, { parts, signal, title }) {
  const project = await get(`/projects/${parts[0]}`, {}, { signal });
  title(`Agreement: ${project.name}`);
  const page = h("div.page.settle");
  main.append(page);
  page.append(
    h(
      "div.heading",
      h("div", h("p.kicker", { dir: "auto" }, project.name), h("h1", "Do people agree?")),
      h("a.button", { href: `#/label/${project.id}` }, "Back to the labels"),
    ),
  );
  const by = await askAnnotator();
  const ready = by && (await get(`/projects/${project.id}/progress`, { annotator: by }, { signal })).ready;
  if (!ready) {
    page.append(
      empty(
        "Label all items first",
        "Labels of others are shown to people who have labelled all items themselves: they would influence you.",
        h("a.button.primary", { href: `#/label/${project.id}` }, "Open the labels"),
      ),
    );
    return;
  }
  const agreement = await get(`/projects/${project.id}/agreement`, { annotator: by }, { signal });
  if (agreement.both === 0) {
    page.append(
      empty(
        "Only one person so far",
        "Let a second person label the same items: open the labels and choose another name.",
        h("a.button.primary", { href: `#/label/${project.id}` }, "Open the labels"),
      ),
    );
    return;
  }
  const { kappa, annotators, both, disagreements } = agreement;
  const facts = h(
    "div.facts",
    fact(
      kappa?.value === null || !kappa ? "not defined" : kappa.value.toFixed(2),
      kappa
        ? `${kappa.name}’s κ: ${kappa.value === null ? "all labels are the same" : `${meaningOf(kappa.value)} agreement`}`
        : "κ",
    ),
    fact(`${both - disagreements.length} of ${both}`, "items with the same label from everybody"),
    fact(String(annotators.length), listed(annotators)),
  );
  page.append(
    facts,
    h(
      "p.hint",
      "κ is 1 if all agree and 0 if they agree as often as by chance. An open disagreement counts as unsure in the audit.",
    ),
  );
  if (!disagreements.length) {
    page.append(empty("No disagreements", "Everybody gave every item the same label."));
    return;
  }
  const items = new Map(
    (await get(`/projects/${project.id}/items`, { annotator: by }, { signal })).items.map((item) => [
      item.id,
      item,
    ]),
  );
  new Settling(page, project, disagreements, items, by, signal);
}

const fact = (value, what) => h("div.fact", h("strong.number", value), h("span.hint", { dir: "auto" }, what));

/** One disagreement after the other. */
class Settling {
  constructor(page, project, disagreements, items, by, signal) {
    Object.assign(this, { project, disagreements, items, by, signal, at: 0 });
    this.heading = h("h2");
    this.view = h("div.stage.small");
    this.said = h("ul.said");
    this.reason = field(
      "Why (optional)",
      h("input", { maxlength: 2000, autocomplete: "off" }),
      "Kept with the decision.",
    );
    this.choices = h("div.choices", { role: "group", "aria-label": project.attribute });
    this.list = h("ol.chips");
    const labels = [...project.groups.map((name, group) => [name, `group-${group}`]), [UNSURE, "unsure"]];
    this.labels = labels;
    this.choices.append(
      ...labels.map(([label, action], at) =>
        h(
          at < project.groups.length ? "button.group" : "button.other",
          { type: "button", dataset: { label }, onclick: () => this.decide(label) },
          h("span", { dir: "auto" }, at < project.groups.length ? label : "Unsure"),
          key(shown(action)),
        ),
      ),
    );
    this.reason.input.addEventListener("keydown", (event) => event.key === "Enter" && this.choices.firstChild.focus());
    page.append(
      h("section.card.settling", this.heading, this.view, this.said, this.choices, this.reason),
      h("section", h("h2", "All disagreements"), this.list),
    );
    document.addEventListener("keydown", (event) => this.press(event), { signal });
    this.show(
      Math.max(
        0,
        disagreements.findIndex((each) => each.settled === null),
      ),
    );
  }

  get open() {
    return this.disagreements.filter((each) => each.settled === null).length;
  }

  show(at) {
    this.at = at;
    const each = this.disagreements[at];
    const item = this.items.get(each.item);
    this.heading.textContent = `Disagreement ${at + 1} of ${this.disagreements.length}`;
    fill(
      this.view,
      item?.image
        ? h("img", { src: `${item.image}?size=960`, alt: `Item ${item.number}` })
        : h("blockquote", { dir: "auto", tabindex: 0 }, item?.text ?? item?.name ?? "This item cannot be shown."),
    );
    fill(
      this.said,
      Object.entries(each.labels).map(([name, label]) =>
        h("li", h("span.hint", { dir: "auto" }, name), h("strong", { dir: "auto" }, label)),
      ),
    );
    this.reason.input.value = each.reason ?? "";
    for (const button of this.choices.children)
      button.setAttribute("aria-pressed", String(button.dataset.label === each.settled));
    this.showList();
  }

  showList() {
    fill(
      this.list,
      this.disagreements.map((each, at) =>
        h(
          "li",
          h(
            "button",
            {
              type: "button",
              "aria-current": at === this.at ? "true" : null,
              class: each.settled === null ? "" : "done",
              "aria-label": `Disagreement ${at + 1}: ${each.settled ?? "open"}`,
              onclick: () => this.show(at),
            },
            String(this.items.get(each.item)?.number ?? at + 1),
            h("span.tag", each.settled ?? ""),
          ),
        ),
      ),
    );
  }

  async decide(label) {
    const each = this.disagreements[this.at];
    try {
      const saved = await put(`/projects/${this.project.id}/settled/${each.item}`, {
        label,
        by: this.by,
        reason: this.reason.input.value.trim(),
      });
      Object.assign(each, { settled: saved.settled, reason: saved.reason });
    } catch (error) {
      return complain(error);
    }
    announce(`${label}. ${this.open} left`);
    const next = this.disagreements.findIndex((other) => other.settled === null);
    this.show(next === -1 ? this.at : next);
    if (next === -1) this.finished();
  }

  finished() {
    if (this.done) return;
    this.done = h(
      "div.note",
      h("p", `All ${count(this.disagreements.length, "disagreement")} are settled.`),
      h("div.actions", h("a.button.primary", { href: `#/label/${this.project.id}?again` }, "Compute the answer")),
    );
    this.list.before(this.done);
    this.done.querySelector("a").focus();
  }

  press(event) {
    if (event.defaultPrevented || event.repeat || document.querySelector("dialog[open]")) return;
    if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
    const action = meaning(event);
    const step = { previous: -1, next: 1 }[action];
    if (step && this.disagreements[this.at + step]) this.show(this.at + step);
    const found = this.labels.find(([, each]) => each === action);
    if (found) this.decide(found[0]);
    if (step || found) event.preventDefault();
  }
}
