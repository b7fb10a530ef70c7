// Audits: what was audited and when, the report in the page, and how a collection changed.

import { get, post, remove } from "./api.js";
import { blindProjects, hiddenNotice, keptBlind, visible } from "./blind.js";
import { figure, historyChart, legend, sharesOf, trustBadge } from "./charts.js";
import { controlLine } from "./controls.js";
import { action, back, complain, empty, fill, h, sure, toast } from "./element.js";
import { showJob } from "./jobs.js";
import { showForm } from "./newaudit.js";
import { go } from "./router.js";
import { targetWords } from "./target.js";
import { count, percent, signed, when } from "./words.js";

const FEW = 8; // audits in the list that are shown at once

/** Show the list, one audit, a collection, a difference, or the form of a new audit. */
export async function mount(main, route) {
  const [first, second] = route.parts;
  if (!first) return showList(main, route);
  if (first === "new") return showForm(main, route);
  if (first === "difference") return showDifference(main, route);
  if (first === "collection") return showCollection(main, second, route);
  return showReport(main, first, route);
}

/** One audit as a line of a list. @param {any} audit */
const auditLine = (audit) =>
  h(
    "li",
    h(
      "a",
      { href: `#/audits/${audit.id}` },
      h("span.what", h("strong", { dir: "auto" }, audit.name), h("span.hint", { dir: "auto" }, audit.headline)),
      h("span.row", trustBadge(audit.trust), h("span.hint.number", when(audit.at))),
    ),
  );

async function showList(main, { signal, title }) {
  title("Audits");
  const [blind, every, collections, controls, jobs] = await Promise.all([
    blindProjects(signal),
    ...["/audits", "/collections", "/control-sets", "/jobs"].map((path) => get(path, {}, { signal })),
  ]);
  const audits = visible(every, { blind, collections, controls });
  const running = h("section", { hidden: true }, h("h2", "Running"));
  const stopped = jobs.filter((job) => job.state === "interrupted");
  const heading = h(
    "div.heading",
    h("h1", "Audits"),
    controls.length > 0 && h("a.button.primary", { href: "#/audits/new" }, "New audit"),
  );
  const nothing = !audits.length && !collections.length && !controls.length && !blind.length;
  const named = Object.fromEntries(controls.map((control) => [control.id, control.name]));
  // Of a collection the newest one; the others are in its history. Of a question the newest answer.
  const same = (a, b) => (a.collection ? a.collection === b.collection : a.project && a.project === b.project);
  const newest = audits.filter((audit, at) => !audits.slice(0, at).some((each) => same(audit, each)));
  const latest = Object.fromEntries(audits.map((audit) => [audit.id, audit]));
  main.append(
    h(
      "div.page.stack-wide",
      heading,
      running,
      stopped.length > 0 &&
        h(
          "section",
          h("h2", "Interrupted"),
          h("p.hint", "divscore was stopped before these were finished."),
          h("ul.list", stopped.map(stoppedLine)),
        ),
      blind.length > 0 && hiddenNotice(blind, () => go("#/audits")),
      nothing &&
        empty(
          "No audits yet",
          "Label a sample of a folder or table, and its audit appears here.",
          h("a.button.primary", { href: "#/" }, "Start"),
        ),
      newest.length > 0 &&
        h(
          "section",
          h("h2", "Latest results"),
          h("ul.list", newest.slice(0, FEW).map(auditLine)),
          newest.length > FEW && older(newest.slice(FEW)),
        ),
      collections.length > 0 &&
        h(
          "section",
          h("h2", "Collections"),
          h(
            "ul.list",
            collections.map((each) => collectionLine(each, named[each.control], latest[each.audit])),
          ),
        ),
      controls.length > 0 && h("section", h("h2", "Control sets"), h("ul.list", controls.map(controlLine))),
    ),
  );
  for (const job of jobs) if (["queued", "running"].includes(job.state)) showRunning(job, running, signal);
}

const older = (audits) =>
  h("details.more", h("summary", `${count(audits.length, "older audit")}`), h("ul.list", audits.map(auditLine)));

const collectionLine = (each, control, audit) =>
  h(
    "li",
    h(
      "a",
      { href: `#/audits/collection/${each.id}` },
      h(
        "span.what",
        h("strong", { dir: "auto" }, each.name),
        h(
          "span.hint",
          audit
            ? `${sharesOf(audit)
                .slice(0, 3)
                .map((share) => `${share.name} ${figure(share)}`)
                .join(", ")} · ${when(audit.at)}`
            : each.audit
              ? "audited"
              : "not audited yet",
        ),
      ),
      h(
        "span.row",
        each.live && h("span.badge", "watched"),
        each.count !== null && h("span.hint.number", count(each.count, "item")),
        h("span.hint", { dir: "auto" }, `with ${control ?? "a control set"}`),
      ),
    ),
  );

const WORK = {
  audit: "Auditing",
  control: "Reading labelled examples",
  publish: "Publishing",
  sample: "Drawing a sample",
};

/** A job that an earlier start of divscore did not finish. @param {any} job */
const stoppedLine = (job) =>
  h(
    "li",
    h(
      "div.line",
      h("span.what", h("strong", WORK[job.kind] ?? "Work"), h("span.hint", job.request.path)),
      h(
        "span.row",
        action("button", "Start again", async () => {
          await post(job.request.path, job.request.body);
          go("#/audits");
        }),
        action("button.quiet", "Forget", async () => {
          await remove(`/jobs/${job.id}`);
          go("#/audits");
        }),
      ),
    ),
  );

async function showRunning(job, section, signal) {
  const place = h("div.card");
  section.append(place);
  section.hidden = false;
  try {
    const result = await showJob({ job: job.id }, place, { title: WORK[job.kind] ?? "Working", signal });
    fill(
      place,
      h(
        "p",
        `${WORK[job.kind] ?? "The job"}: done. `,
        result?.audit && h("a", { href: `#/audits/${result.audit}` }, "Read the report"),
      ),
    );
  } catch (error) {
    complain(error);
    if (!signal.aborted) place.remove();
    section.hidden = !section.querySelector(".card");
  }
}

// A report

async function showReport(main, number, { signal, title }) {
  const [document, audits] = await Promise.all([
    get(`/audits/${encodeURIComponent(number)}`, {}, { signal }),
    get("/audits", {}, { signal }),
  ]);
  const audit = audits.find((each) => String(each.id) === number);
  if (await keptBlind(main, [audit?.project], signal)) return;
  const name = audit?.name ?? document.collections[0].name;
  title(name);
  const frame = h("iframe.report", { src: `/api/v1/audits/${number}/report`, title: `Report: ${name}` });
  const others = audits.filter(
    (each) =>
      String(each.id) !== number && each.attribute === audit?.attribute && each.groups.join() === audit.groups.join(),
  );
  const select = h(
    "select",
    { "aria-label": "Compare with" },
    h("option", { value: "" }, "Compare with …"),
    others.slice(0, 100).map((each) => h("option", { value: each.id }, `${each.name}, ${when(each.at)}`)),
  );
  select.addEventListener("change", () => {
    if (!select.value) return;
    const [before, after] = [Number(select.value), Number(number)].sort((a, b) => a - b);
    go(`#/audits/difference?before=${before}&after=${after}`);
  });
  const discard = action("button.quiet.danger", "Remove", async () => {
    if (!(await sure("Remove this audit?", "Its report is removed from the project. This cannot be undone.", "Remove")))
      return;
    await remove(`/audits/${number}`);
    toast("The audit was removed.");
    go("#/audits");
  });
  main.append(
    h(
      "div.page.reading",
      back(
        audit?.collection ? `#/audits/collection/${audit.collection}` : "#/audits",
        audit?.collection ? "History of this collection" : "Audits",
      ),
      h("div.heading", h("div", h("h1", { dir: "auto" }, name), audit && h("p.hint", when(audit.at)))),
      h(
        "div.row.tools",
        audit?.project && h("a.button", { href: `#/label/${audit.project}` }, "Labels"),
        others.length > 0 && select,
        h(
          "a.button",
          { href: `/api/v1/audits/${number}/report`, target: "_blank", rel: "noopener" },
          "Open in a window",
        ),
        h(
          "a.button",
          { href: `/api/v1/audits/${number}/report`, download: `report-${number}.html` },
          "Save the report",
        ),
        h("a.button", { href: `/api/v1/audits/${number}`, download: `audit-${number}.json` }, "Save as JSON"),
        discard,
      ),
      frame,
    ),
  );
}

// A collection over time

/** The audits of a collection as a table; two of them can be chosen and compared. @param {any[]} audits */
export function historyTable(audits) {
  const groups = audits[0].groups;
  const picked = audits.length > 1 ? [audits.at(-2).id, audits.at(-1).id] : [];
  const compare = h(
    "button",
    {
      type: "button",
      disabled: audits.length < 2,
      onclick: () => go(`#/audits/difference?before=${Math.min(...picked)}&after=${Math.max(...picked)}`),
    },
    "Compare the two",
  );
  const boxes = new Map();
  const pick = (id, box) => {
    if (box.checked) picked.push(id);
    else picked.splice(picked.indexOf(id), 1);
    if (picked.length > 2) boxes.get(picked.shift()).checked = false; // the two that were chosen last
    compare.disabled = picked.length !== 2;
  };
  const rows = audits.toReversed().map((audit) => {
    const box = h("input", {
      type: "checkbox",
      checked: picked.includes(audit.id),
      "aria-label": `Compare the audit of ${when(audit.at)}`,
      onchange: () => pick(audit.id, box),
    });
    boxes.set(audit.id, box);
    return h(
      "tr",
      audits.length > 1 && h("td", box),
      h("th", { scope: "row" }, h("a", { href: `#/audits/${audit.id}` }, when(audit.at))),
      h("td.number", audit.count.toLocaleString("en")),
      sharesOf(audit).map((share) => h("td.number", figure(share))),
      h("td", trustBadge(audit.trust)),
    );
  });
  return h(
    "div.stack",
    h(
      "div.box.flat",
      { tabindex: 0, role: "region", "aria-label": "Audits of this collection" },
      h(
        "table",
        h(
          "thead",
          h(
            "tr",
            audits.length > 1 && h("th", { scope: "col" }, "Compare"),
            h("th", { scope: "col" }, "Time"),
            h("th.number", { scope: "col" }, "Items"),
            groups.map((name) => h("th.number", { scope: "col", dir: "auto" }, name)),
            h("th", { scope: "col" }, "Trust"),
          ),
        ),
        h("tbody", rows),
      ),
    ),
    audits.length > 1 && h("div.actions", compare),
  );
}

async function showCollection(main, number, { signal, title }) {
  const path = `/collections/${encodeURIComponent(number)}`;
  const [collection, history, controls, sources] = await Promise.all(
    [path, `${path}/audits`, "/control-sets", "/sources"].map((each) => get(each, {}, { signal })),
  );
  title(collection.name);
  const place = h("div");
  const control = controls.find((each) => each.id === collection.control);
  const source = sources.find((each) => each.id === collection.source);
  if (await keptBlind(main, [control?.project], signal)) return;
  const again = action("button.primary", history.length ? "Audit again" : "Audit now", async () => {
    const result = await showJob(await post(`${path}/audits`, {}), place, {
      title: `Auditing ${collection.name}`,
      signal,
    });
    toast("The audit is finished.", { label: "Read the report", act: () => go(`#/audits/${result.audit}`) });
    go(`#/audits/collection/${number}`);
  });
  const discard = action("button.quiet.danger", "Remove", async () => {
    if (
      !(await sure(
        `Remove ${collection.name}?`,
        "Its items are removed from the project; files on the disk and finished audits stay.",
        "Remove",
      ))
    )
      return;
    await remove(path);
    go("#/audits");
  });
  main.append(
    h(
      "div.page.stack-wide",
      back("#/audits", "Audits"),
      h(
        "div.heading",
        h(
          "div",
          h("h1", { dir: "auto" }, collection.name),
          h("p.hint", { dir: "auto" }, [
            source
              ? source.name
              : collection.source
                ? "a source that is not open now"
                : count(collection.count, "item"),
            ` · audited with ${control?.name ?? "a control set"}`,
            collection.target && ` · ${targetWords(collection)}`,
          ]),
        ),
        h(
          "div.row",
          h("a.button", { href: `#/watch/${number}` }, "Watch"),
          (source || !collection.source) && again,
          discard,
        ),
      ),
      place,
      history.length
        ? [
            h(
              "section",
              h("h2", "Over time"),
              h("div.card", historyChart(history), history[0].groups.length > 2 && legend(history[0].groups)),
            ),
            h("section", h("h2", "Audits"), historyTable(history)),
          ]
        : empty("Not audited yet", "The first audit shows the shares of the groups, with their intervals."),
    ),
  );
}

// What changed between two audits

async function showDifference(main, { query, signal, title }) {
  title("Difference");
  const [before, after] = [query.get("before"), query.get("after")];
  const [difference, audits] = await Promise.all([
    get("/audits/difference", { before, after }, { signal }),
    get("/audits", {}, { signal }),
  ]);
  const [first, second] = [before, after].map((number) => audits.find((each) => String(each.id) === number));
  if (await keptBlind(main, [first?.project, second?.project], signal)) return;
  const two = difference.groups.length === 2;
  // With two groups a disparity of d is a share of (1 + d) / 2 of the first.
  const value = (each) => (each === null ? "inconclusive" : two ? percent((1 + each) / 2) : each.toFixed(2));
  const points = (each) => (each === null ? "inconclusive" : two ? `${signed(50 * each, 1)} points` : signed(each));
  const range = (ends) => (ends ? `${points(ends[0])} to ${points(ends[1])}` : "");
  const what = two ? `share of ${difference.groups[0]}` : "disparity";
  main.append(
    h(
      "div.page.stack-wide",
      back(
        second?.collection ? `#/audits/collection/${second.collection}` : "#/audits",
        second?.collection ? "History of this collection" : "Audits",
      ),
      h("h1", { dir: "auto" }, difference.headline),
      first &&
        second &&
        h(
          "p.lead",
          "From the audit of ",
          h("a", { href: `#/audits/${before}` }, when(first.at)),
          " to that of ",
          h("a", { href: `#/audits/${after}` }, when(second.at)),
          ".",
        ),
      first?.parts === 1 &&
        second?.parts === 1 &&
        h(
          "div.card",
          historyChart(
            [first, second].sort((a, b) => a.id - b.id),
            { height: 200 },
          ),
        ),
      h(
        "div.box.flat",
        { tabindex: 0, role: "region", "aria-label": "Changes" },
        h(
          "table",
          h(
            "thead",
            h(
              "tr",
              ["Collection", `Before: ${what}`, `After: ${what}`, "Change", "95% interval", "Verdict"].map((name) =>
                h("th", { scope: "col" }, name),
              ),
            ),
          ),
          h(
            "tbody",
            difference.collections.map((each) =>
              h(
                "tr",
                h("th", { scope: "row", dir: "auto" }, each.name),
                h("td", value(each.before.disparity)),
                h("td", value(each.after.disparity)),
                h("td", points(each.change)),
                h("td", range(each.interval)),
                h("td", each.verdict),
              ),
            ),
            difference.new.map((name) =>
              h("tr", h("th", { scope: "row", dir: "auto" }, name), h("td", { colspan: 4 }), h("td", "new")),
            ),
            difference.vanished.map((name) =>
              h("tr", h("th", { scope: "row", dir: "auto" }, name), h("td", { colspan: 4 }), h("td", "vanished")),
            ),
          ),
        ),
      ),
      difference.notes.map((note) => h("p.note", note)),
      h(
        "div.actions",
        h(
          "a.button",
          {
            href: `/api/v1/audits/difference?before=${before}&after=${after}`,
            download: `difference-${before}-${after}.json`,
          },
          "Save as JSON",
        ),
      ),
    ),
  );
}
