// Elements, dialogs and messages. All text goes in as text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set([
  "value",
  "checked",
  "disabled",
  "selected",
  "indeterminate",
  "hidden",
  "tabIndex",
  "srcdoc",
]);

/**
 * Make an element: h("button.primary#go", {onclick: start}, "Start").
 * Attributes that are null, undefined or false are left out; `on…` are listeners; `dataset` and `vars` are objects
 * (`vars` are CSS variables: {"--part": 0.3}). Children may be nested lists, numbers, null and false.
 * @param {string} selector tag, classes and id
 * @param {Object<string, any>|Node|string|null} [attributes] or the first child
 * @param {...any} children
 * @returns {any} the element
 */
export function h(selector, attributes, ...children) {
  const [tag, ...parts] = selector.split(/(?=[.#])/);
  return filled(document.createElement(tag || "div"), parts, attributes, children);
}

/** The same for SVG: s("path.bar", {d: "M0 0h10"}) @returns {any} */
export function s(selector, attributes, ...children) {
  const [tag, ...parts] = selector.split(/(?=[.#])/);
  return filled(document.createElementNS(SVG, tag), parts, attributes, children);
}

function filled(element, parts, attributes, children) {
  for (const part of parts) {
    if (part[0] === "#") element.id = part.slice(1);
    else element.classList.add(part.slice(1));
  }
  const plain =
    attributes && typeof attributes === "object" && !(attributes instanceof Node) && !Array.isArray(attributes);
  if (attributes !== undefined && !plain) children.unshift(attributes);
  for (const [name, value] of Object.entries(plain ? attributes : {})) {
    if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "vars")
      for (const [key, each] of Object.entries(value)) element.style.setProperty(key, String(each));
    else if (name === "class")
      element.classList.add(
        ...String(value || "")
          .split(" ")
          .filter(Boolean),
      );
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  put(element, ...children);
  return element;
}

/** Add children to an element: nodes, texts, numbers, lists; null and false add nothing. */
export function put(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replace what is in an element. */
export const fill = (element, ...children) => {
  element.replaceChildren();
  return put(element, ...children);
};

let numbered = 0;
/** An id that no other element has. */
export const uniqueId = () => `e${++numbered}`;

/**
 * A labelled input: field("Groups", h("input"), "two to twelve, with commas").
 * The hint and later problems are announced with the input; `problem(text)` shows one, `problem("")` removes it.
 */
export function field(label, input, hint = "") {
  input.id ||= uniqueId();
  const [told, wrong] = [h("p.hint", { id: uniqueId() }, hint), h("p.wrong", { id: uniqueId(), role: "alert" })];
  input.setAttribute("aria-describedby", `${told.id} ${wrong.id}`);
  const element = h("div.field", h("label", { for: input.id }, label), input, hint && told, wrong);
  element.input = input;
  element.problem = (text) => {
    wrong.textContent = text;
    input.toggleAttribute("aria-invalid", Boolean(text));
    if (text) input.setAttribute("aria-invalid", "true");
  };
  return element;
}

/**
 * One of several, as cards with radio buttons: options are {value, label, hint, disabled}.
 * The element has `value` (readable and writable); `onchange` gets the value; `quiet` hides the legend from view only.
 * `hint(value, text)` changes the hint of an option: nobody's click or focus is lost, as with a new element.
 */
export function choice(
  legend,
  options,
  { value = options[0]?.value, onchange = () => {}, inline = false, quiet = false } = {},
) {
  const [name, hints] = [uniqueId(), new Map()];
  const element = h(`fieldset.choice${inline ? ".inline" : ""}`, h(`legend${quiet ? ".hidden" : ""}`, legend));
  for (const option of options) {
    const input = h("input", {
      type: "radio",
      name,
      value: option.value,
      checked: option.value === value,
      disabled: Boolean(option.disabled),
      onchange: () => onchange(option.value),
    });
    hints.set(option.value, h("span.hint", option.hint));
    element.append(h("label", input, h("span", h("span.name", option.label), hints.get(option.value))));
  }
  element.hint = (wanted, text) => (hints.get(wanted).textContent = text);
  Object.defineProperty(element, "value", {
    get: () => element.querySelector("input:checked")?.value ?? null,
    set: (wanted) =>
      element.querySelectorAll("input").forEach((input) => (input.checked = input.value === String(wanted))),
  });
  return element;
}

/**
 * A button that shows that it works: it is off while `work` runs, and an error becomes a toast.
 * @param {string} selector for h
 * @param {any} content
 * @param {() => Promise<any>} work
 */
export function action(selector, content, work, attributes = {}) {
  const button = h(selector, { type: "button", ...attributes }, content);
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    try {
      await work();
    } catch (error) {
      complain(error);
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
  return button;
}

/** Say something to those who use a screen reader. @param {string} text */
export function announce(text) {
  const spoken = document.getElementById("spoken");
  if (spoken) spoken.textContent = text;
}

/** Put text on the clipboard. @param {string} text */
export async function copy(text) {
  await navigator.clipboard.writeText(text);
  toast("Copied.");
}

/**
 * A message at the edge of the page that goes away by itself, unless it is an error.
 * @param {string} text
 * @param {{kind?: "done"|"error"|"note", label?: string, act?: () => void}} [options] `label` and `act` add a button
 */
export function toast(text, { kind = "done", label = "", act = () => {} } = {}) {
  const close = () => element.remove();
  const button = label && h("button.quiet", { type: "button", onclick: () => (close(), act()) }, label);
  const element = h(
    `div.toast.${kind}`,
    h("p", text),
    button,
    h("button.close", { type: "button", onclick: close, "aria-label": "Close" }, "×"),
  );
  document.getElementById("toasts").append(element);
  if (kind !== "error") setTimeout(close, 6000);
  return close;
}

/** Show an error to the person; what was cancelled on purpose is no error. @param {any} error */
export function complain(error) {
  if (error?.name === "AbortError") return;
  if (!error?.readable) console.error(error);
  toast(error?.readable ? error.message : "Something went wrong in this page. Reload it and try again.", {
    kind: "error",
  });
}

/**
 * Ask something in a dialog. `body` is what is inside; `actions` are [{label, value, primary, danger}].
 * Resolves with the value of the action, or null where the person closed it. `check` may return a promise or throw to
 * keep the dialog open (throw an error with `readable`, or show the problem yourself and return false).
 * @returns {Promise<any>}
 */
export function dialog({
  title,
  body = [],
  actions = [{ label: "Close", value: null }],
  check = (value) => true,
  wide = false,
}) {
  return new Promise((resolve) => {
    const heading = h("h2", { id: uniqueId() }, title);
    const wrong = h("p.wrong", { role: "alert" });
    const form = h("form", { method: "dialog" }, heading, h("div.body", body), wrong);
    const box = h(`dialog${wide ? ".wide" : ""}`, { "aria-labelledby": heading.id }, form);
    let answer = null;
    const end = async (value) => {
      try {
        if ((await check(value)) === false) return;
      } catch (error) {
        if (!error.readable) throw error;
        wrong.textContent = error.message;
        return;
      }
      answer = value;
      box.close();
    };
    const buttons = actions.map(({ label, value, primary = false, danger = false }) =>
      h(
        `button${primary ? ".primary" : ""}${danger ? ".danger" : ""}`,
        {
          type: primary ? "submit" : "button",
          onclick: primary ? () => {} : () => (value === null ? box.close() : end(value)),
        },
        label,
      ),
    );
    const main = actions.find((each) => each.primary);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (main) end(main.value);
      else box.close();
    });
    put(form, h("div.actions", buttons));
    box.addEventListener("close", () => {
      box.remove();
      resolve(answer);
    });
    document.body.append(box);
    box.showModal();
  });
}

/** Ask before something is removed. @returns {Promise<boolean>} */
export const sure = async (title, text, label) =>
  Boolean(
    await dialog({
      title,
      body: h("p", text),
      actions: [
        { label: "Cancel", value: null },
        { label, value: true, primary: true, danger: true },
      ],
    }),
  );

/** A key as it is shown on buttons. @param {string} text */
export const key = (text) => h("kbd", { "aria-hidden": "true" }, text);

/** What a page shows where a list is empty: a sentence, and what to do next. */
export const empty = (title, text, ...actions) =>
  h("div.empty", h("h2", title), h("p", text), h("div.actions", actions));

/** The link above a page that leads to where it belongs. @param {string} href @param {string} words */
export const back = (href, words) => h("p.back", h("a", { href }, `← ${words}`));
