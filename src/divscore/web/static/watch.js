// Watch: a collection that changes. Its shares now and over time, and how programs add and remove items.

import { get, patch, pause, post, remove } from "./api.js";
import { historyTable } from "./audits.js";
import { blindProjects, keptBlind, visible } from "./blind.js";
import { figure, historyChart, intervalBars, legend, sharesOf, trustBadge } from "./charts.js";
import { action, announce, complain, copy, dialog, empty, field, fill, h, sure, toast } from "./element.js";
import { showJob } from "./jobs.js";
import { readySources, sourceFields } from "./newaudit.js";
import { go } from "./router.js";
import { targetFields, targetWords } from "./target.js";
import { count, when } from "./words.js";

const EVERY = 1000; // milliseconds between two looks
const KINDS = { text: "texts", image: "images", vectors: "vectors" };

/** Show the list of collections that change, or one of them. */
export async function mount(main, route) {
  return route.parts[0] ? showWatched(main, route.parts[0], route) : showList(main, route);
}

const changing = (collection) => collection.live || collection.source === null;

async function showList(main, { signal, title }) {
  title("Watch");
  const [controls, blind] = await Promise.all([get("/control-sets", {}, { signal }), blindProjects(signal)]);
  const list = h("ul.list");
  const body = h("div");
  const buttons = [
    action("button", "Watch a folder or table", () => watchSource(controls, signal)),
    action("button.primary", "New collection", () => newCollection(controls)),
  ];
  main.append(
    h(
      "div.page",
      h("div.heading", h("h1", "Watch"), controls.length > 0 && h("div.row", buttons)),
      h("p.lead.below", "Collections that change. divscore audits a watched collection again whenever it has changed."),
      body,
    ),
  );
  let before = "";
  const look = async () => {
    const [collections, every] = await Promise.all([
      get("/collections", {}, { signal }),
      get("/audits", {}, { signal }),
    ]);
    const audits = visible(every, { blind, collections, controls });
    const shown = collections.filter(changing);
    const now = JSON.stringify(shown);
    if (now === before) return;
    before = now;
    if (!shown.length)
      fill(
        body,
        controls.length
          ? empty(
              "Nothing is watched yet",
              "Watch a folder or table on this computer, or begin a collection that programs add items to.",
            )
          : empty(
              "No control set yet",
              "A watched collection is audited with a control set: labelled examples of the groups.",
              h("a.button.primary", { href: "#/" }, "Label a sample"),
              h("a.button", { href: "#/curate" }, "Read labelled examples"),
            ),
      );
    else
      fill(
        body,
        fill(
          list,
          shown.map((each) =>
            line(
              each,
              audits.find((audit) => audit.id === each.audit),
            ),
          ),
        ),
      );
  };
  await look();
  repeat(look, signal);
}

const line = (each, audit) =>
  h(
    "li",
    h(
      "a",
      { href: `#/watch/${each.id}` },
      h(
        "span.what",
        h("strong", { dir: "auto" }, each.name),
        h(
          "span.hint",
          audit
            ? sharesOf(audit)
                .slice(0, 3)
                .map((share) => `${share.name} ${figure(share)}`)
                .join(", ")
            : each.audit
              ? "audited"
              : "not audited yet",
        ),
      ),
      h(
        "span.row",
        each.source === null ? h("span.badge", KINDS[each.kind]) : h("span.badge", "folder or table"),
        !each.live && h("span.badge.caution", "paused"),
        h(
          "span.hint.number",
          [each.count !== null && count(each.count, "item"), audit && when(audit.at)].filter(Boolean).join(" · "),
        ),
      ),
    ),
  );

/** Do something again and again until the page is left; a server that is gone is asked again. */
async function repeat(work, signal) {
  try {
    for (;;) {
      await pause(EVERY, signal);
      if (document.visibilityState === "visible")
        await work().catch((error) => error.name === "Gone" || Promise.reject(error));
    }
  } catch (error) {
    complain(error);
  }
}

async function watchSource(controls, signal) {
  const collections = await get("/collections", {}, { signal });
  const fields = sourceFields(await readySources(signal), controls, collections);
  if (!fields.usable.length)
    return toast("No folder or table is open. Start divscore with --source PATH.", { kind: "note" });
  const answer = await dialog({
    title: "Watch a folder or table",
    body: fields.parts,
    actions: [
      { label: "Cancel", value: null },
      { label: "Watch", value: true, primary: true },
    ],
  });
  if (!answer) return;
  go(`#/watch/${(await fields.collection({ live: true })).id}`);
}

async function newCollection(controls) {
  const name = field("Name", h("input", { type: "text", maxlength: 200, value: "New items", autofocus: true }));
  const control = field(
    "Control set",
    h(
      "select",
      controls.map((each) =>
        h("option", { value: each.id }, `${each.name} (${each.attribute}: ${each.groups.join(", ")})`),
      ),
    ),
  );
  const kind = field("Items", h("select"), "What programs will send");
  const target = targetFields();
  const update = () => {
    const chosen = controls.find((each) => String(each.id) === control.input.value);
    fill(
      kind.input,
      chosen.kinds.map((each) => h("option", { value: each }, KINDS[each])),
    );
    target.groups(chosen.groups);
  };
  control.input.addEventListener("change", update);
  update();
  const answer = await dialog({
    title: "New collection",
    body: [name, control, kind, target],
    actions: [
      { label: "Cancel", value: null },
      { label: "Make", value: true, primary: true },
    ],
    check: (value) => {
      if (!value || name.input.value.trim()) return true;
      name.problem("Give it a name.");
      name.input.focus();
      return false;
    },
  });
  if (!answer) return;
  const made = await post("/collections", {
    name: name.input.value.trim(),
    control: Number(control.input.value),
    kind: kind.input.value,
    live: true,
    ...target.value,
  });
  go(`#/watch/${made.id}`);
}

// One collection

async function showWatched(main, number, { signal, title }) {
  const path = `/collections/${encodeURIComponent(number)}`;
  const first = await get(path, {}, { signal });
  title(first.name);
  const { project } = await get(`/control-sets/${first.control}`, {}, { signal });
  if (await keptBlind(main, [project], signal)) return;
  const [state, now, past, place] = [h("p.hint.number", { role: "status" }), h("section"), h("section"), h("div")];
  const pauseButton = action("button", "", async () => {
    await patch(path, { live: pauseButton.dataset.live !== "true" });
    await look(true);
  });
  const again = action("button", "Audit now", async () => {
    await showJob(await post(`${path}/audits`, {}), place, { title: `Auditing ${first.name}`, signal });
    await look(true);
  });
  const discard = action("button.quiet.danger", "Remove", async () => {
    if (
      !(await sure(
        `Remove ${first.name}?`,
        "Its items are removed from the project; files on the disk and finished audits stay.",
        "Remove",
      ))
    )
      return;
    await remove(path);
    go("#/watch");
  });
  main.append(
    h(
      "div.page.stack-wide",
      h("p.back", h("a", { href: "#/watch" }, "← Watch")),
      h(
        "div.heading",
        h("div", h("h1", { dir: "auto" }, first.name), state),
        h("div.row", pauseButton, again, discard),
      ),
      place,
      now,
      past,
      first.source === null
        ? additions(first)
        : h(
            "section",
            h("h2", "Where items come from"),
            h(
              "p",
              "While it is watched, divscore looks at the files of this folder or table every second and audits it " +
                "again when it has changed.",
            ),
          ),
    ),
  );
  let [before, shown] = ["", null];
  const look = async (force = false) => {
    const collection = await get(path, {}, { signal });
    const mark = JSON.stringify(collection);
    if (mark === before && !force) return;
    before = mark;
    state.textContent = [
      collection.count !== null && count(collection.count, "item"),
      collection.skipped > 0 && `${collection.skipped} skipped`,
      collection.live ? "audited whenever it changes" : "paused: not audited by itself",
      targetWords(collection),
    ]
      .filter(Boolean)
      .join(" · ");
    pauseButton.dataset.live = String(collection.live);
    pauseButton.textContent = collection.live ? "Pause" : "Watch";
    if (collection.audit === shown && !force) return;
    const history = await get(`${path}/audits`, {}, { signal });
    if (shown !== null && collection.audit !== shown && history.length) announce(history.at(-1).headline);
    shown = collection.audit;
    showNow(now, history);
    showPast(past, history);
  };
  await look();
  repeat(look, signal);
}

function showNow(place, history) {
  const audit = history.at(-1);
  if (!audit) return fill(place, empty("Not audited yet", "The shares appear here after the first audit."));
  fill(
    place,
    h("h2", "Now"),
    h(
      "div.card.stack",
      h("p.headline", { dir: "auto" }, audit.headline),
      h(
        "p.row",
        trustBadge(audit.trust),
        h("span.hint", when(audit.at)),
        h("a", { href: `#/audits/${audit.id}` }, "Read the report"),
      ),
      intervalBars(sharesOf(audit), { target: Boolean(audit.target) }),
      audit.warnings.map((text) => h("p.note", text)),
    ),
  );
}

function showPast(place, history) {
  if (history.length < 2) return fill(place);
  const open = place.querySelector("details")?.open ?? false;
  fill(
    place,
    h("h2", "Over time"),
    h("div.card.stack", historyChart(history), history[0].groups.length > 2 && legend(history[0].groups)),
    h("details.more", { open }, h("summary", count(history.length, "audit")), historyTable(history)),
  );
}

// How programs add items

const EXAMPLES = {
  text: { id: "post-1", text: "A text" },
  image: { id: "photo-1", image: "the bytes of a picture, in base64" },
  vectors: { id: "item-1", vector: [0.1, 0.2, 0.3] },
};

function additions(collection) {
  const address = `${location.origin}/api/v1/collections/${collection.id}`;
  let secret = "TOKEN";
  const body = JSON.stringify({ items: [EXAMPLES[collection.kind]] });
  const gone = JSON.stringify({ ids: [EXAMPLES[collection.kind].id] });
  const command = (method, place, data) =>
    [
      `curl -X ${method} ${address}/${place}`,
      `-H "Authorization: Bearer ${secret}"`,
      '-H "Content-Type: application/json"',
      `-d '${data}'`,
    ].join(" \\\n  ");
  const commands = () => ({
    "Add or replace items": command("PUT", "items", body),
    "Remove items": command("POST", "remove", gone),
  });
  const place = h("div.stack");
  const show = () =>
    fill(
      place,
      Object.entries(commands()).map(([name, command]) =>
        h(
          "div.command",
          h(
            "div.row.spread",
            h("h3", name),
            action("button.quiet", "Copy", () => copy(command), { "aria-label": `Copy: ${name}` }),
          ),
          h("pre", { tabIndex: 0, role: "region", "aria-label": name }, h("code", command)),
        ),
      ),
    );
  const token = action("button", "Make a token", async () => {
    secret = (await post("/tokens", {})).token;
    show();
    token.remove();
    hint.textContent =
      "The token is in the commands. It works until divscore is stopped; whoever has it can use this project.";
    announce(hint.textContent);
  });
  const hint = h("p.hint", "Programs need a token. It works until divscore is stopped.");
  show();
  return h(
    "section.stack",
    h("h2", "Add items"),
    h("p", "Programs add and remove items by their ids. The same request twice changes nothing."),
    h("div.row", token, hint),
    place,
  );
}
