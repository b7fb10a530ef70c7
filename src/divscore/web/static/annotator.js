// Who labels: asked once, kept in this browser.

import { dialog, field, h } from "./element.js";

const PLACE = "divscore:annotator";
let name = "";
try {
  name = localStorage.getItem(PLACE) ?? "";
} catch {
  // then it is asked once a page
}

/** The name, or "" if it was not asked yet. */
export const annotator = () => name;

/** Keep a name. @param {string} given */
export function keepAnnotator(given) {
  name = given.trim().slice(0, 200);
  try {
    localStorage.setItem(PLACE, name);
  } catch {
    // it then lasts as long as the page
  }
}

/** Ask for the name, if need be. @param {boolean} [again] ask even if it is known @returns {Promise<string>} */
export async function askAnnotator(again = false) {
  if (name && !again) return name;
  const entry = field(
    "Your name",
    h("input", { value: name, maxlength: 200, autocomplete: "name" }),
    "Each person labels without seeing the labels of others.",
  );
  const check = (value) => {
    const given = entry.input.value.trim();
    entry.problem(value && !given ? "Type a name, such as your initials." : "");
    return !value || Boolean(given);
  };
  const answer = await dialog({
    title: "Who labels?",
    body: entry,
    actions: [...(again ? [{ label: "Cancel", value: null }] : []), { label: "Continue", value: true, primary: true }],
    check,
  });
  if (answer) keepAnnotator(entry.input.value);
  return name;
}
