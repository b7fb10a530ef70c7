// Blind: whoever labels a sample sees what others made of it only after the last item, or on purpose.

import { get } from "./api.js";
import { annotator } from "./annotator.js";
import { announce, empty, h } from "./element.js";
import { go } from "./router.js";
import { listed } from "./words.js";

const PLACE = "divscore:seen";
const seen = () => new Set(JSON.parse(sessionStorage.getItem(PLACE) ?? "[]"));

/** Who asks, for calls whose answer depends on it. */
export const asking = () => (annotator() ? { annotator: annotator() } : {});

/**
 * Projects that others have labels in and this person has not finished, except those that were opened on purpose.
 * @param {AbortSignal} signal
 * @returns {Promise<any[]>}
 */
export const blindProjects = async (signal) =>
  (await get("/projects", asking(), { signal })).filter((project) => project.blind && !seen().has(project.id));

/**
 * Audits without those that come from labels of these projects: their answers, and what was audited with them.
 * @param {any[]} audits
 * @param {{blind: any[], collections: any[], controls: any[]}} known
 */
export function visible(audits, { blind, collections, controls }) {
  const hidden = new Set(blind.map((project) => project.id));
  const made = new Map(controls.map((control) => [control.id, control.project]));
  const labels = new Map(collections.map((collection) => [collection.id, made.get(collection.control)]));
  return audits.filter((audit) => !hidden.has(audit.project) && !hidden.has(labels.get(audit.collection)));
}

/** What stands in the place of results. @param {any[]} projects @param {() => void} show called on purpose */
export function hiddenNotice(projects, show) {
  const open = () => {
    sessionStorage.setItem(PLACE, JSON.stringify([...seen(), ...projects.map((project) => project.id)]));
    announce("Shown");
    show();
  };
  return empty(
    "Label all items first",
    `Results of ${listed(projects.map((project) => `“${project.name}”`))} would influence you, ${annotator()}. ` +
      "They are shown when you have labelled all items.",
    projects.length === 1 && h("a.button.primary", { href: `#/label/${projects[0].id}` }, "Open the labels"),
    h("button", { type: "button", onclick: open }, "I do not label them: show"),
  );
}

/**
 * Show the notice in place of a page that is about one of these projects; whether it was needed.
 * @param {HTMLElement} main
 * @param {(number|null|undefined)[]} numbers
 * @param {AbortSignal} signal
 */
export async function keptBlind(main, numbers, signal) {
  const wanted = numbers.filter(Boolean);
  const projects = wanted.length ? (await blindProjects(signal)).filter((each) => wanted.includes(each.id)) : [];
  if (projects.length)
    main.append(h("div.page.narrow.stack-wide", h("h1", "Not yet"), hiddenNotice(projects, () => go(location.hash))));
  return projects.length > 0;
}
