// The answer, once the planned number of labels is reached: headline, intervals, trust, and what can be done next.

import { get, post } from "./api.js";
import { intervalBars, sharesOf } from "./charts.js";
import { action, announce, complain, fill, h } from "./element.js";
import { showJob } from "./jobs.js";
import { go } from "./router.js";
import { count } from "./words.js";

const TRUST = {
  good: "You can rely on this interval",
  caution: "Use with caution",
  poor: "Do not rely on this result",
};

/**
 * Compute the answer of a project, or show the one that is there.
 * @param {HTMLElement} place
 * @param {any} project
 * @param {{signal: AbortSignal, annotator: string, again: boolean, back: () => void, more: (size: number) => Promise<void>, other: () => void}} options
 *   `again`: labels changed since the last answer; `back` shows the labels; `more` draws items; `other` changes the annotator
 */
export async function showAnswer(place, project, { signal, annotator, again, back, more, other }) {
  const { answer: known } = await get(`/projects/${project.id}/progress`, { annotator }, { signal });
  let audit = known;
  const notes = [];
  const heading = h(
    "h1",
    { tabIndex: -1 },
    project.purpose === "control" ? "All items have labels" : "Computing the answer …",
  );
  const body = h("div.stack");
  fill(place, h("div.page.narrow.answer", h("p.kicker", { dir: "auto" }, project.name), heading, body));
  heading.focus({ preventScroll: true });
  if (project.purpose === "audit") {
    if (again || !audit) {
      try {
        audit = (
          await showJob(await post(`/projects/${project.id}/audit`), body, {
            title: "Reading the collection",
            signal,
            onwarning: (text) => notes.push(text),
          })
        ).audit;
      } catch (error) {
        if (signal.aborted) return;
        heading.textContent = "The answer could not be computed";
        fill(
          body,
          h("p.lead", error.readable ? error.message : "The job was stopped."),
          h(
            "div.actions",
            h(
              "button.primary",
              {
                type: "button",
                onclick: () => showAnswer(place, project, { signal, annotator, again, back, more, other }).catch(complain),
              },
              "Try again",
            ),
            h("button", { type: "button", onclick: back }, "Look at the labels"),
          ),
        );
        return;
      }
    }
    const document = await get(`/audits/${audit}`, {}, { signal });
    const results = document.collections;
    const target = document.target?.shares;
    heading.textContent = document.headline;
    announce(document.headline);
    fill(
      body,
      h(
        "p.row",
        h(`span.badge.${trustOf(results)}`, TRUST[trustOf(results)]),
        h("span.hint", `from ${count(labelsOf(document), "label")}`),
      ),
      h(
        "div.card.shares",
        charts(document).map(([name, rows]) => [
          name && h("h2", { dir: "auto" }, name),
          intervalBars(rows, { target: Boolean(target), label: name || "Shares" }),
        ]),
        h("p.hint", "With 95% confidence, the true share is inside the bar."),
      ),
      await disagreementNote(project, annotator, signal),
      [...warningsOf(results), ...notes].map((text) => h("p.note", text)),
      h(
        "div.actions",
        h("a.button.primary.large", { href: `#/audits/${audit}` }, "Read the report"),
        h("button.large", { type: "button", onclick: back }, "Look at the labels"),
      ),
    );
  } else {
    fill(
      body,
      h(
        "p.lead",
        `${count(project.drawn, "item")} can become a control set: labelled examples with which you audit other collections of this kind.`,
      ),
    );
  }
  body.append(await nextSteps(project, body, { signal, annotator, more, other, back }));
}

/** How far the worst of several results can be trusted. @param {any[]} results */
const trustOf = (results) => Object.keys(TRUST).findLast((trust) => results.some((each) => each.trust === trust));

const labelsOf = ({ collections, control }) =>
  collections.reduce((sum, each) => sum + (each.labels?.labelled ?? 0), 0) || control.labelled;

const warningsOf = (results) =>
  results.flatMap((each) => each.warnings.map((text) => (results.length > 1 ? `${each.name}: ${text}` : text)));

/** What is charted: the groups of one collection; of several, the share of the first of two groups, or each in turn. */
function charts({ groups, target, collections }) {
  const shares = collections.map((each) => sharesOf({ groups, target: target?.shares, ...each }));
  if (collections.length === 1) return [["", shares[0]]];
  if (groups.length > 2) return collections.map((each, at) => [each.name, shares[at]]);
  return [[`Share of ${groups[0]}`, shares.map(([first], at) => ({ ...first, name: collections[at].name }))]];
}

/** What nobody has settled yet makes the interval wider. */
async function disagreementNote(project, annotator, signal) {
  const { disagreements } = await get(`/projects/${project.id}/agreement`, { annotator }, { signal });
  const open = disagreements.filter((each) => each.settled === null).length;
  if (!open) return null;
  return h(
    "div.note.stack",
    h("p", `People disagree about ${count(open, "item")}: without a label until somebody settles them.`),
    h("div.row", h("a.button", { href: `#/settle/${project.id}` }, `Settle ${count(open, "disagreement")}`)),
  );
}

const download = (path, annotator, name, text) =>
  h("a.button", { href: `/api/v1${path}?${new URLSearchParams({ annotator })}`, download: name }, text);

async function nextSteps(project, body, { signal, annotator, more, other, back }) {
  const { annotators } = await get(`/projects/${project.id}`, {}, { signal });
  const place = h("div");
  const control = action(`button${project.purpose === "control" ? ".primary" : ""}`, "Make a control set", async () => {
    const made = await showJob(await post(`/projects/${project.id}/control`), place, {
      title: "Making the control set",
      signal,
    });
    go(`#/curate/${made.control}`);
  });
  const step = (name, hint, ...buttons) => h("li", h("div", h("h3", name), h("p.hint", hint)), h("div.row", buttons));
  const number = project.control ? 40 : 30;
  const steps = [
    step(
      "Use these labels for other collections",
      "A control set has your labelled examples. You can choose among them and publish it.",
      control,
    ),
    step(
      "Make the interval narrower",
      "More random items of the same collection; the labels so far stay. The interval keeps its 95% only for a number of labels that was fixed before: if you add labels because of this result, it is somewhat too narrow, and the report says that labels were added.",
      action("button", `Label ${number} more${project.by ? ` of each ${project.by}` : ""}`, () => more(number)),
    ),
    annotators.length > 1
      ? step(
          "Compare people",
          `${annotators.join(", ")} labelled this sample.`,
          h("a.button", { href: `#/settle/${project.id}` }, "See where they differ"),
          h("button", { type: "button", onclick: other }, "Label as somebody else"),
        )
      : step(
          "Check with a second person",
          "They label the same items without seeing your labels.",
          h("button", { type: "button", onclick: other }, "Label as somebody else"),
        ),
    step(
      "Take the labels with you",
      "One row for each label (item, annotator, group, time), or one for each item: divscore can audit the second.",
      download(`/projects/${project.id}/labels.csv`, annotator, `labels-${project.id}.csv`, "Download the labels"),
      download(`/projects/${project.id}/sample.csv`, annotator, `sample-${project.id}.csv`, "Download the labelled sample"),
    ),
  ];
  if (project.purpose === "control")
    body.append(h("div.actions", h("button", { type: "button", onclick: back }, "Look at the labels")));
  return h("section.next", h("h2", "What next"), place, h("ul", steps));
}
