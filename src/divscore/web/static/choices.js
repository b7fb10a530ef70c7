// Choices of representatives: the table of saved ones, what two have in common, and what was changed by hand.

import { h, put } from "./element.js";
import { count, when, whole } from "./words.js";

/**
 * Choices that were kept: load, remove, compare two.
 * @param {any[]} choices
 * @param {{load: (choice: any) => void, discard: (choice: any) => void, compare: (a: any, b: any) => void}} options
 */
export function choiceTable(choices, { load, discard, compare }) {
  if (!choices.length) return h("p.hint", "No choice is saved yet.");
  const hand = (choice) =>
    [choice.added.length && `${choice.added.length} added`, choice.dropped.length && `${choice.dropped.length} dropped`]
      .filter(Boolean)
      .join(", ") || "–";
  const table = h(
    "div.box.flat",
    { tabindex: 0, role: "region", "aria-label": "Saved choices" },
    h(
      "table",
      h(
        "thead",
        h(
          "tr",
          ["Name", "Size", "α", "By hand", "Saved", ""].map((name) =>
            h(["Size", "α"].includes(name) ? "th.number" : "th", { scope: "col" }, name || h("span.hidden", "Actions")),
          ),
        ),
      ),
      h(
        "tbody",
        choices.map((choice) =>
          h(
            "tr",
            h("th", { scope: "row", dir: "auto" }, choice.name),
            h("td.number", choice.size),
            h("td.number", Number(choice.alpha.toFixed(3))),
            h("td", hand(choice)),
            h("td", when(choice.made)),
            h(
              "td",
              h(
                "div.row",
                h(
                  "button.quiet",
                  { type: "button", onclick: () => load(choice), "aria-label": `Load ${choice.name}` },
                  "Load",
                ),
                h(
                  "button.quiet",
                  { type: "button", onclick: () => discard(choice), "aria-label": `Remove ${choice.name}` },
                  "Remove",
                ),
              ),
            ),
          ),
        ),
      ),
    ),
  );
  if (choices.length < 2) return table;
  const options = () => choices.map((choice) => h("option", { value: choice.id }, choice.name));
  const [a, b] = [
    h("select", { "aria-label": "First choice" }, options()),
    h("select", { "aria-label": "Second choice" }, options()),
  ];
  [a.value, b.value] = [String(choices.at(-2).id), String(choices.at(-1).id)];
  const chosen = (select) => choices.find((choice) => String(choice.id) === select.value);
  return put(
    h("div.stack"),
    table,
    h(
      "div.row.compare",
      a,
      h("span", "and"),
      b,
      h("button", { type: "button", onclick: () => compare(chosen(a), chosen(b)) }, "Compare"),
    ),
  );
}

/**
 * What two choices have in common, and what only one of them has.
 * @param {any} result
 * @param {any[]} choices the two
 * @param {{end: () => void, list: (rows: number[]) => HTMLElement}} options
 */
export function comparison(result, [a, b], { end, list }) {
  const side = (choice, own, only) =>
    h(
      "section",
      h("h3", { dir: "auto" }, choice.name),
      h(
        "p.hint",
        `${whole(own.representatives.length)} representatives; `,
        `${whole(own.gaps.count)} of ${whole(own.gaps.of)} have none near. `,
        `${count(only.length, "is only", "are only")} here:`,
      ),
      only.length ? list(only) : h("p.hint", "none"),
    );
  return [
    h(
      "div.row.spread",
      h("h3", { tabIndex: -1 }, `${whole(result.both.length)} representatives are in both`),
      h("button.quiet", { type: "button", onclick: end }, "End comparison"),
    ),
    h("div.sides", side(a, result.a, result.only_a), side(b, result.b, result.only_b)),
  ];
}

/**
 * What was added and dropped by hand, and why.
 * @param {{added: any[], dropped: any[]}} draft
 * @param {string[]} ids
 * @param {{open: (row: number) => void, undo: (row: number) => void}} options
 */
export function handList({ added, dropped }, ids, { open, undo }) {
  if (!added.length && !dropped.length)
    return h("p.hint", "Nothing was changed by hand. Open an example on the map or in a list to add or drop it.");
  const line = (each, verb) =>
    h(
      "li",
      h(
        "div.line",
        h(
          "span.what",
          h("strong", { dir: "auto" }, `${verb} ${ids[each.row]}`),
          h("span.hint", { dir: "auto" }, each.reason),
        ),
        h(
          "span.row",
          h("button.quiet", { type: "button", onclick: () => open(each.row) }, "Open"),
          h(
            "button.quiet",
            { type: "button", "aria-label": `Undo: ${verb} ${ids[each.row]}`, onclick: () => undo(each.row) },
            "Undo",
          ),
        ),
      ),
    );
  return h(
    "ul.list",
    added.map((each) => line(each, "Added")),
    dropped.map((each) => line(each, "Dropped")),
  );
}
