// The list of projects: what was asked about which collection, how far it is, and the next step.

import { get, putTable, remove } from "./api.js";
import { asking } from "./blind.js";
import { action, announce, h, sure, toast } from "./element.js";
import { count, listed, when } from "./words.js";

/** What kinds of items are called. */
export const KINDS = { image: "picture", text: "text", vectors: "vector", unknown: "item" };

/** How far a project is, in words. @param {any} project */
const state = (project) => {
  if (!project.drawn) return "Nothing drawn yet";
  const done = labelled(project);
  if (done < project.drawn)
    return `${done} of ${count(project.drawn, "item")} labelled${project.blind ? " by you" : ""}`;
  return project.audit ? "Answered" : `All ${count(project.drawn, "item")} labelled`;
};

/** Items that count as labelled for who asks: others have finished what they did not begin. @param {any} project */
const labelled = (project) => (project.blind ? project.own : project.answered);

/**
 * A list of links to projects, the newest first.
 * @param {any[]} projects
 * @param {{sources: any[], most?: number, onchange?: () => void}} options
 */
export function projectList(projects, { sources, most = 1000, onchange }) {
  const names = new Map(sources.map((source) => [source.id, source.name]));
  return h(
    "ul.list.projects",
    projects.slice(0, most).map((project) => {
      const part = project.drawn ? labelled(project) / project.drawn : 0;
      const about = `${listed(project.groups)} in ${names.get(project.source) ?? "a collection that is not open"} · ${when(project.made)}`;
      const link = h(
        "a.line",
        { href: `#/label/${project.id}` },
        h("span.about", h("span.name", { dir: "auto" }, project.name), h("span.hint", { dir: "auto" }, about)),
        h(
          "span.done",
          h("progress", { max: 1, value: part, "aria-hidden": "true" }),
          h("span.hint.number", state(project)),
        ),
      );
      const take = async () => {
        if (
          !(await sure(
            `Remove “${project.name}”?`,
            `The labels of ${count(project.answered, "item")} are removed with it. Reports stay.`,
            "Remove",
          ))
        )
          return;
        await remove(`/projects/${project.id}`);
        announce("Removed");
        onchange();
      };
      return h(
        "li",
        link,
        onchange &&
          project.drawn > 0 &&
          action("button.quiet.take", "Import labels", async () => (await importLabels(project)) && onchange()),
        onchange && action("button.quiet.take", "Remove", take, { "aria-label": `Remove ${project.name}` }),
      );
    }),
  );
}

/** Let the person choose a table of labels, and add them to a project. @param {any} project */
async function importLabels(project) {
  const input = h("input", { type: "file", accept: ".csv,text/csv" });
  const chosen = await new Promise((resolve) => {
    input.addEventListener("change", () => resolve(input.files[0]));
    input.addEventListener("cancel", () => resolve(null));
    input.click();
  });
  if (!chosen) return false;
  const { saved, unchanged, unknown } = await putTable(`/projects/${project.id}/labels.csv`, await chosen.text());
  const rest = [
    unchanged && `${count(unchanged, "label")} were here already`,
    unknown && `${count(unknown, "row")} are about items that are not in the sample`,
  ].filter(Boolean);
  toast([`${count(saved, "label")} added`, ...rest].join("; ") + ".", { kind: saved ? "done" : "note" });
  return true;
}

/** Projects and sources, to make the list from. @param {AbortSignal} signal */
export const loadProjects = async (signal) => {
  const [projects, sources] = await Promise.all([get("/projects", asking(), { signal }), get("/sources", {}, { signal })]);
  return { projects, sources };
};
