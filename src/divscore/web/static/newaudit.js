// A new audit: which folder or table, with which control set, against which target.

import { get, patch, pause, post } from "./api.js";
import { action, back, empty, field, fill, h } from "./element.js";
import { showJob } from "./jobs.js";
import { go } from "./router.js";
import { targetFields } from "./target.js";

/** Sources as they are once all of them were opened. @param {AbortSignal} signal */
export async function readySources(signal) {
  for (;;) {
    const sources = await get("/sources", {}, { signal });
    if (sources.every((source) => source.state !== "reading")) return sources;
    await pause(300, signal);
  }
}

/** Fields that choose a source, its column, a control set that fits, and a target. */
export function sourceFields(sources, controls, collections, { source: wanted = null, control: first = null } = {}) {
  const usable = sources.filter((source) => source.state === "ready");
  const source = field(
    "Folder or table",
    h(
      "select",
      usable.map((each) => h("option", { value: each.id, selected: String(each.id) === wanted }, each.name)),
    ),
    "Named when divscore was started, or in the project folder",
  );
  const column = field("Column with the texts", h("select"));
  const control = field(
    "Control set",
    h(
      "select",
      controls.map((each) =>
        h(
          "option",
          { value: each.id, selected: String(each.id) === first },
          `${each.name} (${each.attribute}: ${each.groups.join(", ")})`,
        ),
      ),
    ),
    "Labelled examples of the groups",
  );
  const target = targetFields();
  const chosen = () => usable.find((each) => String(each.id) === source.input.value);
  const update = () => {
    const about = chosen();
    const columns = about?.kind === "text" ? about.text_columns : [];
    column.hidden = columns.length < 2;
    fill(
      column.input,
      columns.map((name) =>
        h("option", { value: name, selected: /^(text|body|content|post|name)$/i.test(name) }, name),
      ),
    );
    const fits = controls.filter((each) => each.kinds.includes(about?.kind));
    if (fits.length && !fits.some((each) => String(each.id) === control.input.value))
      control.input.value = String(fits[0].id);
    control.problem(
      about && about.kind !== "unknown" && !fits.length
        ? `No control set has ${{ image: "images", text: "texts", vectors: "vectors" }[about.kind]}.`
        : "",
    );
    showTarget();
  };
  const wish = () => ({
    source: Number(source.input.value),
    column: column.hidden ? null : column.input.value,
    control: Number(control.input.value),
  });
  // The same source with the same control set is one collection, with one history and one target.
  const known = () =>
    collections.find(
      (each) => each.source === wish().source && each.control === wish().control && each.column === wish().column,
    );
  const showTarget = () => {
    target.groups(controls.find((each) => String(each.id) === control.input.value)?.groups ?? []);
    target.set(known()?.target, known()?.target_source);
  };
  source.input.addEventListener("change", update);
  for (const each of [column, control]) each.input.addEventListener("change", showTarget);
  update();
  /** The collection of what was chosen, with its target; made if there is none yet. */
  const collection = async (more = {}) => {
    const wanted = { ...target.value, ...more };
    if (known()) return patch(`/collections/${known().id}`, wanted);
    const made = await post("/collections", { ...wish(), name: chosen().name, ...wanted });
    collections.push(made); // whoever tries again means the same one
    return made;
  };
  return { parts: [source, column, control, target], usable, collection };
}

/** The page of a new audit. @param {HTMLElement} main @param {any} route */
export async function showForm(main, { query, signal, title }) {
  title("New audit");
  const [sources, controls, collections] = await Promise.all([
    readySources(signal),
    get("/control-sets", {}, { signal }),
    get("/collections", {}, { signal }),
  ]);
  const page = h("div.page.narrow", back("#/audits", "Audits"), h("h1", "New audit"));
  main.append(page);
  if (!controls.length) {
    page.append(
      empty(
        "No control set yet",
        "An audit without labels of its own needs a control set: labelled examples of the groups.",
        h("a.button.primary", { href: "#/" }, "Label a sample"),
        h("a.button", { href: "#/curate" }, "Read labelled examples"),
      ),
    );
    return;
  }
  const wanted = { source: query.get("source"), control: query.get("control") };
  const fields = sourceFields(sources, controls, collections, wanted);
  const place = h("div");
  const start = action("button.primary.large", "Audit", async () => {
    const audited = await fields.collection();
    const result = await showJob(await post(`/collections/${audited.id}/audits`, {}), place, {
      title: `Auditing ${audited.name}`,
      signal,
    });
    go(`#/audits/${result.audit}`);
  });
  page.append(
    h(
      "p.lead",
      "divscore compares each item with the labelled examples of a control set and reports shares of the whole " +
        "collection.",
    ),
    h("div.stack.form", fields.parts, h("div.actions", start), place),
  );
}
