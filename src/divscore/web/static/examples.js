// Labelled examples as people see them: small in lists, large in a dialog with what others object to.

import { get } from "./api.js";
import { dialog, field, h } from "./element.js";
import { count } from "./words.js";

const AT_ONCE = 100;
const REASONS = {
  add: ["Fills a gap", "Typical of its group", "Rarely shown"],
  drop: ["Label is wrong", "Stereotype", "Like another one", "Poor quality"],
};

/**
 * Examples of a control set, asked for together and kept.
 * @param {number} control
 * @param {AbortSignal} signal
 */
export function exampleStore(control, signal) {
  const known = new Map();
  let waiting = new Map();
  async function fetchAll(wanted) {
    const rows = [...wanted.keys()];
    for (let at = 0; at < rows.length; at += AT_ONCE) {
      const some = rows.slice(at, at + AT_ONCE);
      try {
        const query = some.map((row) => `row=${row}`).join("&");
        for (const example of await get(`/control-sets/${control}/items?${query}`, {}, { signal }))
          wanted.get(example.row).resolve(example);
      } catch (error) {
        for (const row of some) {
          known.delete(row);
          wanted.get(row).reject(error);
        }
      }
    }
  }
  return {
    /** @param {number} row @returns {Promise<any>} */
    get(row) {
      if (!known.has(row)) {
        if (!waiting.size)
          queueMicrotask(() => {
            const wanted = waiting;
            waiting = new Map();
            fetchAll(wanted);
          });
        const promise = new Promise((resolve, reject) => waiting.set(row, { resolve, reject }));
        promise.catch(() => {});
        known.set(row, promise);
      }
      return known.get(row);
    },
    forget: () => known.clear(),
  };
}

/** What an example is: its picture, its text, or its name. @param {any} example @param {number} [size] pixels */
export function content(example, size = 480) {
  if (example.image) {
    const image = h("img", { src: `${example.image}?size=${size}`, alt: "", loading: "lazy", decoding: "async" });
    image.addEventListener("error", () => image.replaceWith(h("span.absent", example.id)));
    return image;
  }
  return h("span.text", { dir: "auto" }, example.text ?? example.id);
}

/**
 * A list of examples, each a button.
 * @param {number[]} rows
 * @param {{store: any, plane: any, open: (row: number) => void, marks?: (row: number) => string[], made?: Map<string, any>}} options
 *   `marks` are short words on an example; `made` keeps elements for the next time
 */
export function exampleList(rows, { store, plane, open, marks = () => [], made = new Map() }) {
  return h(
    "ul.gallery",
    rows.map((row) => {
      const words = marks(row);
      const name = [row, ...words].join(" ");
      if (made.has(name)) return made.get(name);
      const label = [plane.ids[row], plane.labels_of[plane.groups[row]], ...words].join(", ");
      const button = h(
        "button.example",
        { type: "button", "aria-label": label, title: plane.ids[row], onclick: () => open(row), dataset: { row } },
        h("span.absent", plane.ids[row]),
        words.length > 0 && h("span.marks", words.join(" · ")),
      );
      store.get(row).then(
        (example) => {
          button.classList.toggle("written", !example.image);
          button.firstChild.replaceWith(content(example));
        },
        () => {},
      );
      made.set(name, h("li", button));
      return made.get(name);
    }),
  );
}

/**
 * Show an example large; the person may add or drop it, and says why.
 * @param {any} example
 * @param {{chosen: boolean, change: any|null, of: number}} state
 *   `change` is what was changed by hand; `of`: examples of its group
 * @returns {Promise<{change: "add"|"drop"|"undo", reason: string}|null>}
 */
export async function exampleDialog(example, { chosen, change, of }) {
  const reason = field(
    "Why?",
    h("input", { type: "text", maxlength: 2000, autofocus: true }),
    "Kept with the choice, and shown to whoever reads it",
  );
  const verb = chosen ? "drop" : "add";
  const usual = h(
    "div.row.usual",
    { role: "group", "aria-label": "Usual reasons" },
    REASONS[verb].map((words) => h("button", { type: "button", onclick: () => (reason.input.value = words) }, words)),
  );
  const standing = example.standing;
  const body = [
    h(`div.shown${example.image ? "" : ".written"}`, content(example, 960)),
    h(
      "dl.fact-list",
      h("div", h("dt", "Name"), h("dd", { dir: "auto" }, example.id)),
      h("div", h("dt", "Group"), h("dd", { dir: "auto" }, example.group)),
      standing &&
        h(
          "div",
          h("dt", "Typical of its group"),
          h("dd", `${standing.rank.toLocaleString("en")} of ${of.toLocaleString("en")}`),
        ),
      standing &&
        h(
          "div",
          h("dt", "Mean similarity"),
          h("dd.number", `${standing.own.toFixed(3)} to its group, ${standing.others.toFixed(3)} to others`),
        ),
      h(
        "div",
        h("dt", "State"),
        h(
          "dd",
          change
            ? `${chosen ? "Added" : "Dropped"} by hand: ${change.reason}`
            : chosen
              ? "Representative"
              : "Not a representative",
        ),
      ),
    ),
    example.objections.length > 0 &&
      h("section", h("h3", count(example.objections.length, "objection")), objectionList(example.objections)),
    !change && reason,
    !change && usual,
  ];
  const answer = await dialog({
    title: example.group,
    body: body.filter(Boolean),
    wide: true,
    actions: [
      { label: "Close", value: null },
      change
        ? { label: "Undo", value: "undo", primary: true }
        : { label: chosen ? "Drop" : "Add", value: verb, primary: true },
    ],
    check: (value) => {
      if (!value || value === "undo" || reason.input.value.trim()) return true;
      reason.problem(chosen ? "Say why you drop it." : "Say why you add it.");
      reason.input.focus();
      return false;
    },
  });
  return answer && { change: answer, reason: reason.input.value.trim() };
}

/** What others object to. @param {any[]} objections */
export const objectionList = (objections, open = null) =>
  h(
    "ul.objections",
    objections.map((each) =>
      h(
        "li",
        h("p", { dir: "auto" }, each.objection),
        each.proposal && h("p", { dir: "auto" }, `Proposal: ${each.proposal}`),
        h("p.hint", [each.by || "anonymous", each.date, each.status || "open"].filter(Boolean).join(" · ")),
        open &&
          each.row !== null &&
          h("button.quiet", { type: "button", onclick: () => open(each.row) }, `Show ${each.id}`),
      ),
    ),
  );
