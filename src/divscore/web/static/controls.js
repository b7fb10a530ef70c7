// Control sets: their list, and how labelled examples that exist already become one.

import { get, post } from "./api.js";
import { action, dialog, empty, field, fill, h, toast } from "./element.js";
import { showJob } from "./jobs.js";
import { readySources } from "./newaudit.js";
import { go } from "./router.js";
import { count } from "./words.js";

/** A control set as a line of a list. @param {any} control */
export const controlLine = (control) =>
  h(
    "li",
    h(
      "a",
      { href: `#/curate/${control.id}` },
      h(
        "span.what",
        h("strong", { dir: "auto" }, control.name),
        h("span.hint", { dir: "auto" }, `${control.attribute}: ${control.groups.join(", ")}`),
      ),
      h(
        "span.row",
        control.published && h("span.badge.good", "published"),
        h("span.hint.number", `${count(control.labelled, "labelled example")}`),
      ),
    ),
  );

/** The list of control sets. @param {HTMLElement} main @param {any} route */
export async function showControls(main, { signal, title }) {
  title("Curate");
  const controls = await get("/control-sets", {}, { signal });
  const place = h("div");
  const add = action("button", "Read labelled examples", () => readExamples(place, signal));
  main.append(
    h(
      "div.page",
      h("div.heading", h("h1", "Control sets"), controls.length > 0 && add),
      place,
      controls.length
        ? h("ul.list", controls.map(controlLine))
        : empty(
            "No control set yet",
            "A control set has labelled examples of the groups. " +
              "Label a sample of a collection, or read examples that have labels already.",
            h("a.button.primary", { href: "#/" }, "Label a sample"),
            add,
          ),
    ),
  );
}

async function readExamples(place, signal) {
  const sources = (await readySources(signal)).filter((source) => source.state === "ready");
  if (!sources.length) return toast("No folder or table is open. Start divscore with --source PATH.", { kind: "note" });
  const source = field(
    "Folder or table",
    h(
      "select",
      sources.map((each) => h("option", { value: each.id }, each.name)),
    ),
    "A table with a column of group names, or a folder with one sub-folder for each group",
  );
  const attribute = field(
    "Groups",
    h("input", { type: "text", maxlength: 200 }),
    "What the names of the sub-folders say: for example gender",
  );
  const column = field("Column of the groups", h("select"));
  const update = () => {
    const about = sources.find((each) => String(each.id) === source.input.value);
    const table = about && !about.columns.includes("folder");
    [attribute.hidden, column.hidden] = [table, !table];
    attribute.input.value ||= "group";
    const guess =
      about?.columns.find((name) => /group|gender|sex|label|class|attribute/i.test(name)) ?? about?.text_columns.at(-1);
    fill(
      column.input,
      about?.columns.map((name) => h("option", { value: name, selected: name === guess }, name)),
    );
  };
  source.input.addEventListener("change", update);
  update();
  const answer = await dialog({
    title: "Read labelled examples",
    body: [source, column, attribute],
    actions: [
      { label: "Cancel", value: null },
      { label: "Read", value: true, primary: true },
    ],
    check: (value) => {
      if (!value || attribute.hidden || attribute.input.value.trim()) return true;
      attribute.problem("Say what the groups are about.");
      attribute.input.focus();
      return false;
    },
  });
  if (!answer) return;
  const name = sources.find((each) => String(each.id) === source.input.value).name;
  const groups = attribute.hidden ? column.input.value : attribute.input.value.trim();
  const started = await post(
    "/control-sets",
    { source: Number(source.input.value), attribute: groups, name },
    { signal },
  );
  const result = await showJob(started, place, { title: "Reading labelled examples", signal });
  go(`#/curate/${result.control}`);
}
