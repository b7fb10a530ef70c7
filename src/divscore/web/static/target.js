// A target: the shares that a collection is compared with, in place of an even split, and where they come from.

import { field, fill, h } from "./element.js";

/**
 * Fields for a target, folded until they are needed. The element has `groups(names)`, which shows a field for each
 * group, `set(target, source)`, and `value`: what the API takes, with an empty target where nothing was entered.
 */
export function targetFields(names = []) {
  const typed = new Map(); // percent by group; names may change while somebody types
  const shares = h("div.shares");
  const source = field(
    "Where do these numbers come from?",
    h("input", { maxlength: 2000, autocomplete: "off", placeholder: "Census 2020" }),
    "Shown in the report.",
  );
  const element = h(
    "details.more.target",
    h("summary", "Compare with a target instead of an even split"),
    h("p.hint", "The percentage that each group should have, such as its share in a census. One group may stay empty."),
    shares,
    source,
  );
  element.groups = (wanted) => {
    names = wanted.filter(Boolean);
    fill(
      shares,
      names.map((name) => {
        const input = h("input", {
          type: "number",
          min: 0,
          max: 100,
          step: "any",
          value: typed.get(name) ?? "",
          oninput: () => typed.set(name, input.value),
        });
        return field(`${name}, %`, input);
      }),
    );
  };
  element.set = (target, from) => {
    typed.clear();
    for (const [name, share] of Object.entries(target ?? {})) typed.set(name, String(Number((100 * share).toFixed(2))));
    source.input.value = from ?? "";
    element.open = Boolean(target);
    element.groups(names);
  };
  Object.defineProperty(element, "value", {
    get: () => {
      const given = names.filter((name) => typed.get(name)).map((name) => [name, Number(typed.get(name)) / 100]);
      return { target: Object.fromEntries(given), target_source: given.length ? source.input.value.trim() : "" };
    },
  });
  element.groups(names);
  return element;
}

/** A target in words: "30% women, 70% men (Census 2020)". @param {{target: any, target_source: string}} about */
export const targetWords = ({ target, target_source: source }) => {
  const shares = Object.entries(target ?? {}).map(([name, share]) => `${Number((100 * share).toFixed(1))}% ${name}`);
  return shares.length ? `target ${shares.join(", ")}${source ? ` (${source})` : ""}` : "";
};
