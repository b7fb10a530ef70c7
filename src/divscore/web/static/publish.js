// Publishing a control set: the questions that only people can answer, the job, and what was written.

import { get, post } from "./api.js";
import { announce, choice, dialog, field, fill, h, uniqueId } from "./element.js";
import { showJob } from "./jobs.js";
import { count } from "./words.js";

const TITLES = {
  title: "Title",
  publisher: "Publisher",
  contact: "Contact",
  license: "Licence",
  definition: "Definition",
  basis: "Basis",
  labelled_by: "Labelled by",
  labelled_how: "How it was labelled",
  source: "Source of the examples",
  items: "Where the items are",
  left_out: "Left out",
  consent: "Consent",
  biases: "Known biases",
  uses: "Uses",
  unsuitable: "Unsuitable uses",
  maintenance: "Maintenance",
  citation: "Citation",
  language: "Languages",
};
const SHORT = new Set(["title", "publisher", "contact", "license", "basis", "language"]);

/**
 * Ask the questions of a publication and publish. What was typed is kept in this browser until it is published.
 * @param {any} control
 * @param {HTMLElement} place for the progress, then for the result
 * @param {{choices: any[], save: () => Promise<any>, changed: boolean, signal: AbortSignal}} options
 *   `save` keeps what is shown now as a choice
 * @returns {Promise<boolean>} whether it was published
 */
export async function publishControl(control, place, { choices, save, changed, signal }) {
  const publication = await get(`/control-sets/${control.id}/publication`, {}, { signal });
  const memory = `divscore-about-${control.digest.slice(0, 16)}`;
  const typed = JSON.parse(localStorage.getItem(memory) ?? "{}");
  const fields = publication.questions.map(({ name, question, optional, answer }) => {
    const input = SHORT.has(name)
      ? h("input", { type: "text", maxlength: 20000 })
      : h("textarea", { rows: 2, maxlength: 20000 });
    input.name = name;
    input.value = typed[name] ?? answer;
    return Object.assign(field(TITLES[name] ?? name, input, question), { optional });
  });
  const answers = () =>
    Object.fromEntries(fields.map(({ input }) => [input.name, input.value.trim()]).filter(([, text]) => text));
  const keep = () =>
    localStorage.setItem(
      memory,
      JSON.stringify(Object.fromEntries(fields.map(({ input }) => [input.name, input.value]))),
    );
  const which = field(
    "Representatives",
    h(
      "select",
      h("option", { value: "now" }, changed ? "As shown on this page (saved as a choice)" : "As shown on this page"),
      choices.map((each) => h("option", { value: each.id }, `Saved choice: ${each.name}`)),
      h("option", { value: "as it is" }, `As the control set has them: ${control.method}`),
    ),
  );
  const ids = choice(
    "Names of the examples",
    [
      { value: "names", label: "Names without folders" },
      { value: "numbers", label: "Numbers", hint: "where names say who somebody is" },
    ],
    { inline: true },
  );
  const measure = h("input", { type: "checkbox", checked: true });
  const form = h(
    "div.stack",
    { oninput: keep },
    h(
      "p",
      "The folder has the vectors and groups of the examples, a dataset card, and a table in which others can ",
      "object. Images and texts are not copied. An empty answer is published as “not stated”.",
    ),
    which,
    fields.filter((each) => !each.optional),
    h(
      "details.more",
      h("summary", "Optional answers"),
      h(
        "div.stack",
        fields.filter((each) => each.optional),
      ),
    ),
    ids,
    h("label.tick", measure, h("span", "Measure error and coverage on splits of the examples (takes some seconds)")),
  );
  const wrong = h("p.wrong", { id: uniqueId(), role: "alert" });
  const understood = h("input", { type: "checkbox", "aria-describedby": wrong.id });
  form.append(
    h(
      "div.note.stack",
      h("p", publication.warning),
      publication.personal && [
        h("label.tick", understood, h("span", "I may publish the face descriptors of these people")),
        wrong,
      ],
    ),
  );
  const check = () => {
    const missing = publication.personal && !understood.checked;
    wrong.textContent = missing ? "Tick this to publish, or cancel." : "";
    if (missing) understood.focus();
    return !missing;
  };
  const edition = publication.edition + 1;
  const agreed = await dialog({
    title: edition > 1 ? `Publish edition ${edition}` : "Publish this control set",
    body: form,
    wide: true,
    check,
    actions: [
      { label: "Cancel", value: null },
      { label: "Publish", value: true, primary: true },
    ],
  });
  if (!agreed) return false;
  let number = null;
  if (which.input.value === "now") number = (await save()).id;
  else if (which.input.value !== "as it is") number = Number(which.input.value);
  const started = await post(
    `/control-sets/${control.id}/publish`,
    { choice: number, about: answers(), ids: ids.value, measure: measure.checked, faces: understood.checked },
    { signal },
  );
  place.scrollIntoView({ block: "nearest" });
  const result = await showJob(started, place, { title: "Publishing", signal });
  localStorage.removeItem(memory);
  showResult(place, control, result);
  return true;
}

function showResult(place, control, result) {
  const problems = result.problems.filter(Boolean);
  const heading = h("h2", { tabIndex: -1 }, `Edition ${result.edition} is published`);
  fill(
    place,
    h(
      "div.card.stack",
      heading,
      h("p", "The folder is ", h("code", result.folder), ". Put it where others can read it."),
      problems.length > 0 &&
        h(
          "div.note",
          h("p", "Readers will see:"),
          h(
            "ul.points",
            problems.map((text) => h("li", text)),
          ),
        ),
      result.missing.length > 0 &&
        h(
          "p.hint",
          `${count(result.missing.length, "question")} without an answer: `,
          `${result.missing.map((name) => (TITLES[name] ?? name).toLowerCase()).join(", ")}.`,
        ),
      h(
        "div.actions",
        h(
          "a.button.primary",
          { href: `/api/v1/control-sets/${control.id}/publication.zip`, download: `control-set-${control.id}.zip` },
          "Save as a zip file",
        ),
      ),
    ),
  );
  heading.focus();
  announce(heading.textContent);
}
