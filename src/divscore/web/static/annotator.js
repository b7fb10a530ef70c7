// Who labels: asked once, kept in this browser.

import { post } from "./api.js";
import { action, copy, dialog, field, h } from "./element.js";

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

/**
 * Ask for the name, if need be.
 * @param {boolean} [again] ask for that of somebody else, even if one is known
 * @returns {Promise<string>}
 */
export async function askAnnotator(again = false) {
  if (name && !again) return name;
  const entry = field(
    again ? "Name of the other person" : "Your name",
    h("input", { maxlength: 200, autocomplete: again ? "off" : "name" }),
    "Each person labels without seeing the labels of others.",
  );
  const check = (value) => {
    const given = entry.input.value.trim();
    entry.problem(value && !given ? "Type a name, such as your initials." : "");
    return !value || Boolean(given);
  };
  const answer = await dialog({
    title: "Who labels?",
    body: again ? [entry, invitation()] : entry,
    actions: [...(again ? [{ label: "Cancel", value: null }] : []), { label: "Continue", value: true, primary: true }],
    check,
  });
  if (answer) keepAnnotator(entry.input.value);
  return name;
}

/** A link with which another browser gets in: that of a second person, here or through a tunnel. */
function invitation() {
  const link = field("Link", h("input", { readonly: true, onfocus: () => link.input.select() }), "It works once.");
  link.hidden = true;
  const make = action("button", "Make a link for another browser", async () => {
    link.input.value = `${location.origin}/?token=${(await post("/links")).token}`;
    link.hidden = false;
    link.input.focus();
    make.replaceWith(action("button", "Copy the link", () => copy(link.input.value)));
  });
  return h("div.stack", h("p.hint", "Or they label in a browser of their own, at the same time."), link, make);
}
