"use strict";
(() => {
  // Browsers that do not know ::details-content print an open element only.
  const details = document.querySelector("details");
  let opened = false;
  addEventListener("beforeprint", () => { opened = !details.open; details.open = true; });
  addEventListener("afterprint", () => { if (opened) details.open = false; });

  const table = document.getElementById("collections");
  if (!table || table.dataset.sorted === undefined) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const ranks = { good: 0, caution: 1, poor: 2 };
  const order = new Intl.Collator(undefined, { numeric: true });

  const value = (row, at) => {
    const text = row.cells[at].textContent;
    const kind = heads[at].dataset.kind;
    if (kind === "trust") return ranks[text];
    if (kind !== "number") return text;
    const number = parseFloat(text.replace(/[(,<>]/g, "").replace("\u2212", "-"));
    return Number.isNaN(number) ? null : number;
  };

  const sort = (at, upwards) => {
    const keyed = rows.map((row) => [value(row, at), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const found = typeof a === "string" ? order.compare(a, b) : a - b;
      return upwards ? found : -found;
    });
    body.append(...keyed.map(([, row]) => row));
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[at].setAttribute("aria-sort", upwards ? "ascending" : "descending");
  };

  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(at, head.getAttribute("aria-sort") !== "ascending"));
    head.replaceChildren(button);
  });
  heads[Number(table.dataset.sorted)].setAttribute("aria-sort", "ascending");

  const tools = document.querySelector(".tools");
  const status = tools.querySelector("[role=status]");
  const input = document.getElementById("filter");
  const words = (row) => Array.from(row.cells).filter((_, at) => /trust|verdict/.test(heads[at].dataset.kind));
  const texts = new Map(rows.map((row) => [
    row,
    [row.cells[0].textContent, row.cells[0].title, ...words(row).map((cell) => cell.textContent)].join(" ").toLowerCase(),
  ]));
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = !texts.get(row).includes(wanted);
      shown += !row.hidden;
    }
    status.textContent = wanted ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
  });
  tools.hidden = rows.length < 10;
})();
