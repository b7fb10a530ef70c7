// Keys of the labelling page: which key does what, and the dialog that changes it.

import { dialog, h } from "./element.js";

const PLACE = "divscore:keys";
const DIGITS = "1234567890-=".split("");
/** What keys can do, besides one action for each group ("group-0" …). */
export const ACTIONS = {
  unsure: ["u", "Unsure"],
  skip: ["s", "Skip"],
  undo: ["Backspace", "Undo"],
  previous: ["ArrowLeft", "Previous item"],
  next: ["ArrowRight", "Next item"],
  grid: ["g", "One item or grid"],
  help: ["?", "Keys"],
};
const SHOWN = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  Backspace: "⌫",
  " ": "Space",
  Delete: "Del",
};

const usual = () => {
  const keys = Object.fromEntries(Object.entries(ACTIONS).map(([action, [key]]) => [action, key]));
  DIGITS.forEach((digit, group) => (keys[`group-${group}`] = digit));
  return keys;
};

function load() {
  try {
    return { ...usual(), ...JSON.parse(localStorage.getItem(PLACE) ?? "{}") };
  } catch {
    return usual();
  }
}

let keys = load();

const spelled = (key) => (key.length === 1 ? key.toLowerCase() : key);

/** The key of an action as buttons show it. @param {string} action */
export const shown = (action) => SHOWN[keys[action]] ?? keys[action].toUpperCase();

/** What a key press means, or null. @param {KeyboardEvent} event */
export function meaning(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey) return event.key.toLowerCase() === "z" ? "undo" : null;
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const name = spelled(event.key);
  const found = Object.keys(keys).find((action) => keys[action] === name);
  if (found) return found;
  // Where digits need the shift key, the position counts.
  const digit = /^Digit(\d)$/.exec(event.code)?.[1];
  return (digit && Object.keys(keys).find((action) => keys[action] === digit)) ?? null;
}

/**
 * Let the person choose keys.
 * @param {string[]} groups names of the groups
 * @returns {Promise<boolean>} whether they changed
 */
export async function chooseKeys(groups) {
  const chosen = { ...keys };
  const names = [
    ...groups.map((name, group) => [`group-${group}`, name]),
    ...Object.entries(ACTIONS).map(([action, [, name]]) => [action, name]),
  ];
  const problem = h("p.wrong", { role: "alert" });
  const row = ([action, name]) => {
    const input = h("input.keyname", {
      value: SHOWN[chosen[action]] ?? chosen[action].toUpperCase(),
      readonly: true,
      "aria-label": `Key for ${name}`,
    });
    input.addEventListener("keydown", (event) => {
      if (["Tab", "Escape", "Enter", "Shift", "Control", "Alt", "Meta"].includes(event.key)) return;
      event.preventDefault();
      const wanted = spelled(event.key);
      const taken = names.find(([other]) => other !== action && chosen[other] === wanted);
      problem.textContent = taken
        ? `${input.value === wanted ? "" : (SHOWN[wanted] ?? wanted.toUpperCase())} is the key for “${taken[1]}” already.`
        : "";
      if (taken) return;
      chosen[action] = wanted;
      input.value = SHOWN[wanted] ?? wanted.toUpperCase();
    });
    return h("li", h("span", { dir: "auto" }, name), input);
  };
  const answer = await dialog({
    title: "Keys",
    body: [
      h(
        "p.muted",
        "One key labels the item, saves it and shows the next one. To change a key, click it and press another.",
      ),
      h("ul.keylist", names.map(row)),
      problem,
    ],
    actions: [
      { label: "Usual keys", value: "usual" },
      { label: "Done", value: "done", primary: true },
    ],
  });
  if (!answer) return false;
  keys = answer === "usual" ? usual() : chosen;
  try {
    localStorage.setItem(PLACE, JSON.stringify(keys));
  } catch {
    // they then last as long as the page
  }
  return true;
}
