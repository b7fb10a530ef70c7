"use strict";
(() => {
  const draw = JSON.parse(document.getElementById("draw").textContent);
  const get = (id) => document.getElementById(id);
  const [KEYS, UNSURE, MOST] = ["1234567890-=".split(""), "unsure", 12];
  const CODES = { Minus: "-", Equal: "=" }; // where digits need the shift key, the position of a key counts
  const number = draw.items.length;
  const place = `divscore-draw-${document.body.dataset.draw}`;
  let groups = draw.groups;
  let labels = draw.labels.slice();
  let saved = JSON.stringify(labels);
  let at = 0;
  let kept = true; // whether the browser keeps labels
  const done = []; // what Undo takes back

  const spelled = (name) => name.trim().toLowerCase();
  const isUnsure = (label) => ["unsure", "?", "unknown"].includes(spelled(label));
  const known = (label) => label !== "" && !isUnsure(label);

  const keep = () => {
    try {
      localStorage.setItem(place, JSON.stringify({ groups, labels, saved }));
    } catch {
      kept = false;
    }
  };
  try {
    const before = JSON.parse(localStorage.getItem(place));
    if (before && before.labels.length === number) ({ groups, labels, saved } = before);
  } catch {
    kept = false;
  }

  // What is shown

  const showItem = () => {
    const { text, image, problem } = draw.items[at];
    let content;
    if (image) {
      content = document.createElement("img");
      content.src = image;
      content.alt = `Item ${at + 1}`;
    } else if (text !== undefined) {
      content = document.createElement("blockquote");
      content.dir = "auto";
      content.tabIndex = 0; // a long text is scrolled
      content.textContent = text;
    } else {
      content = document.createElement("p");
      content.className = "absent";
      content.textContent = `This item cannot be shown: it ${problem}.`;
    }
    get("item").replaceChildren(content);
    get("position").textContent = `Item ${at + 1} of ${number}`;
  };

  const showState = () => {
    const labelled = labels.filter(known).length;
    const unsure = labels.filter(isUnsure).length;
    get("counted").textContent = `${labelled} of ${number} labelled${unsure ? `, ${unsure} unsure` : ""}`;
    get("progress").value = labelled + unsure;
    const label = labels[at];
    get("label").textContent = label === "" ? "Not labelled" : `Labelled: ${label}`;
    get("label").classList.toggle("known", label !== "");
    for (const button of get("choices").children) {
      const same = spelled(button.dataset.group) === spelled(label);
      button.setAttribute("aria-pressed", String(same || (button.id === "unsure" && isUnsure(label))));
    }
    get("undo").disabled = done.length === 0;
    Array.from(get("overview").children).forEach((entry, row) => {
      const button = entry.firstChild;
      button.lastChild.textContent = isUnsure(labels[row]) ? "?" : labels[row];
      button.className = labels[row] === "" ? "" : isUnsure(labels[row]) ? "done unsure" : "done";
      button.setAttribute("aria-label", `Item ${row + 1}: ${labels[row] || "not labelled"}`);
      button.toggleAttribute("aria-current", row === at);
    });
    const changed = saved !== JSON.stringify(labels);
    get("save").disabled = labels.every((each) => each === "");
    get("state").textContent = changed ? "Not saved yet" : labelled ? "Saved" : "";
    if (!kept && changed) get("state").textContent = "Only on this page: save before you close it";
    get("state").classList.toggle("unsaved", changed);
  };

  const say = (text) => { get("news").textContent = text; };

  const go = (row) => {
    at = (row + number) % number;
    showItem();
    showState();
  };

  // What a person does

  const choose = (label) => {
    done.push([at, labels[at]]);
    labels[at] = label;
    keep();
    const item = at + 1;
    const open = labels.findIndex((_, step) => labels[(at + step) % number] === "");
    if (open < 0) {
      showState();
      say(`Item ${item}: ${label}. All ${number} items are done: save the table.`);
      return;
    }
    go(at + open);
    say(`Item ${item}: ${label}.`);
  };

  const undo = () => {
    if (!done.length) return;
    const [row, label] = done.pop();
    labels[row] = label;
    keep();
    go(row);
    say(`Undone: item ${row + 1} is ${label === "" ? "not labelled" : label}.`);
  };

  // The same text as the table that `divscore sample` writes.
  const cell = (text) => {
    const safe = /^[=+\-@\t\r](?!\d+([.,]\d+)?$)/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const table = () => {
    const raw = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const [own, names] = [draw.columns.indexOf("group"), draw.columns.indexOf("groups")];
    const lines = draw.rows.map((row, item) => row.map((text, column) => {
      if (column === own) return cell(labels[item]);
      return column === names ? cell(groups.join(" | ")) : raw(text);
    }).join(","));
    const text = [draw.columns.join(","), ...lines, ""].join("\r\n");
    return /^[\x00-\x7f]*$/.test(text) ? text : `\ufeff${text}`;
  };

  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv;charset=utf-8" }));
    link.download = draw.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    saved = JSON.stringify(labels);
    keep();
    showState();
    const left = labels.filter((label) => label === "").length;
    say(`Saved ${draw.file}${left ? `; ${left} items have no label yet` : ""}.`);
  };

  // The names of the groups, if nobody gave them

  const addName = (value) => {
    const entry = document.createElement("li");
    const input = document.createElement("input");
    const position = get("names").children.length + 1;
    input.value = value;
    input.maxLength = 60;
    input.autocomplete = "off";
    input.setAttribute("aria-label", `Group ${position}`);
    entry.append(input);
    get("names").append(entry);
    get("more").disabled = position >= MOST;
    return input;
  };
  const askNames = () => {
    get("names").replaceChildren();
    for (const name of groups.length ? groups : ["", ""]) addName(name);
    get("naming").hidden = false;
    get("work").hidden = true;
    get("names").querySelector("input").focus();
  };
  const takeNames = (event) => {
    event.preventDefault();
    const inputs = Array.from(get("names").querySelectorAll("input"), (input) => input.value.trim());
    const names = inputs.filter((name, row) => name || row < groups.length);
    const bad = names.find((name) => name === "" || isUnsure(name) || name.includes("|") || /^[01]$/.test(name));
    let problem = "";
    if (names.length < 2) problem = "Name at least two groups.";
    else if (bad !== undefined) problem = bad ? `“${bad}” cannot be the name of a group.` : "A group has no name.";
    else if (new Set(names.map(spelled)).size < names.length) problem = "Two groups have the same name.";
    get("problem").textContent = problem;
    if (problem) return;
    labels = labels.map((label) => {
      const group = groups.findIndex((name) => spelled(name) === spelled(label));
      return group < 0 ? label : names[group];
    });
    groups = names;
    keep();
    start();
    get("position").focus();
  };

  const start = () => {
    get("naming").hidden = true;
    get("work").hidden = false;
    get("work").classList.toggle("many", groups.length > 6);
    get("rename").hidden = draw.groups.length > 0;
    const choice = (name, shown, shortcut) => {
      const [button, text, key] = ["button", "bdi", "kbd"].map((tag) => document.createElement(tag));
      button.type = "button";
      button.dataset.group = name;
      button.setAttribute("aria-keyshortcuts", shortcut);
      text.textContent = shown;
      key.textContent = shortcut;
      key.setAttribute("aria-hidden", "true");
      button.append(text, key);
      button.addEventListener("click", () => choose(name));
      return button;
    };
    get("choices").replaceChildren(...groups.map((name, row) => choice(name, name, KEYS[row])), choice(UNSURE, "Unsure", "U"));
    get("choices").lastChild.id = "unsure";
    get("overview").replaceChildren(...draw.items.map((_, row) => {
      const [entry, button, mark] = ["li", "button", "b"].map((tag) => document.createElement(tag));
      button.type = "button";
      button.append(String(row + 1), mark);
      button.addEventListener("click", () => { go(row); say(""); });
      entry.append(button);
      return entry;
    }));
    go(Math.max(0, labels.indexOf("")));
  };

  get("back").addEventListener("click", () => { go(at - 1); say(""); });
  get("skip").addEventListener("click", () => { go(at + 1); say(""); });
  get("undo").addEventListener("click", undo);
  get("save").addEventListener("click", save);
  get("more").addEventListener("click", () => addName("").focus());
  get("rename").addEventListener("click", askNames);
  get("naming").addEventListener("submit", takeNames);
  addEventListener("beforeunload", (event) => { if (saved !== JSON.stringify(labels)) event.preventDefault(); });
  addEventListener("keydown", (event) => {
    if (get("work").hidden || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "INPUT") return;
    const key = KEYS.includes(event.key) ? event.key : CODES[event.code] ?? event.code.replace(/^Digit/, "");
    const actions = {
      u: () => choose(UNSURE),
      backspace: undo,
      arrowleft: () => { go(at - 1); say(""); },
      arrowright: () => { go(at + 1); say(""); },
    };
    const action = actions[event.key.toLowerCase()] ?? (KEYS.indexOf(key) in groups ? () => choose(groups[KEYS.indexOf(key)]) : null);
    if (!action || event.repeat) return;
    event.preventDefault();
    action();
  });

  if (groups.length) start();
  else askNames();
})();
