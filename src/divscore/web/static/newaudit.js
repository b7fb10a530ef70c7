// A new audit: which folder or table, with which control set.

import { get, pause, post } from "./api.js";
import { action, back, empty, field, fill, h } from "./element.js";
import { showJob } from "./jobs.js";
import { go } from "./router.js";

/** Sources as they are once all of them were opened. @param {AbortSignal} signal */
export async function readySources(signal) {
  for (;;) {
    const sources = await get("/sources", {}, { signal });
    if (sources.every((source) => source.state !== "reading")) return sources;
    await pause(300, signal);
  }
}

/** Fields that choose a source, its column, and a control set that fits. */
export function sourceFields(sources, controls, { source: wanted = null, control: known = null } = {}) {
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
          { value: each.id, selected: String(each.id) === known },
          `${each.name} (${each.attribute}: ${each.groups.join(", ")})`,
        ),
      ),
    ),
    "Labelled examples of the groups",
  );
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
  };
  source.input.addEventListener("change", update);
  update();
  return {
    parts: [source, column, control],
    usable,
    chosen,
    value: () => ({
      source: Number(source.input.value),
      column: column.hidden ? null : column.input.value,
      control: Number(control.input.value),
    }),
  };
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
  const fields = sourceFields(sources, controls, { source: query.get("source"), control: query.get("control") });
  const place = h("div");
  const start = action("button.primary.large", "Audit", async () => {
    const wish = fields.value();
    const same = (each) => each.source === wish.source && each.control === wish.control && each.column === wish.column;
    // The same source with the same control set has one history.
    const known = collections.find(same) ?? (await post("/collections", { ...wish, name: fields.chosen().name }));
    const result = await showJob(await post(`/collections/${known.id}/audits`, {}), place, {
      title: `Auditing ${known.name}`,
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
