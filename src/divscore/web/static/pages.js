// Pages: browser extensions that may ask this server, and the audits of web pages that were saved.

import { get, pause, post, remove } from "./api.js";
import { intervalBars, trustBadge } from "./charts.js";
import { action, announce, complain, empty, fill, h, sure } from "./element.js";
import { percent, when } from "./words.js";

const EVERY = 2000; // milliseconds between two looks for extensions that ask

/** Show who is paired, and saved audits of pages by study. */
export async function mount(main, { signal, title }) {
  title("Pages");
  const pairings = h("div");
  const runs = h("div");
  main.append(
    h(
      "div.page.stack-wide",
      h("h1", "Pages"),
      h(
        "p.lead",
        "Audits of web pages, made with the browser extension. It sends pictures and texts of a page to this ",
        "computer only.",
      ),
      h("section", h("h2", { tabIndex: -1 }, "Extensions"), pairings),
      h("section", h("h2", "Saved audits"), runs),
    ),
  );
  await Promise.all([showPairings(pairings, signal), showRuns(runs, signal)]);
  watchPairings(pairings, signal);
}

let shown = "";

async function showPairings(place, signal) {
  const list = await get("/pairings", {}, { signal });
  shown = JSON.stringify(list);
  if (!list.length)
    return fill(
      place,
      empty("No extension is paired", "Open the options of the extension and press Pair. The request appears here."),
    );
  const again = async () => {
    await showPairings(place, signal);
    place.previousElementSibling.focus(); // the button that was pressed is gone
  };
  fill(
    place,
    h(
      "ul.list",
      list.map((each) => h("li", h("div.line", about(each), decision(each, again)))),
    ),
  );
}

const about = (each) =>
  h(
    "span.what",
    h("strong", { dir: "auto" }, each.name),
    each.state === "pending"
      ? h(
          "span.asks",
          "asks to be paired. Accept it only if the extension shows the code ",
          h("code", each.code),
          ".",
        )
      : h("span.hint", `paired ${when(each.made)}; it can audit pages, and nothing else`),
  );

function decision(each, again) {
  const decide = (how, done) => async () => {
    await post(`/pairings/${each.request}/${how}`, {});
    announce(done);
    await again();
  };
  if (each.state === "pending")
    return h(
      "span.row",
      action("button.primary", "Accept", decide("accept", "Accepted")),
      action("button", "Reject", decide("reject", "Rejected")),
    );
  return action("button.quiet", "Revoke", async () => {
    if (
      !(await sure(
        "Revoke this pairing?",
        "The extension can no longer send anything until it is paired again.",
        "Revoke",
      ))
    )
      return;
    await remove(`/pairings/${each.id}`);
    await again();
  });
}

async function watchPairings(place, signal) {
  try {
    for (;;) {
      await pause(EVERY, signal);
      if (document.visibilityState !== "visible" || place.querySelector("[aria-busy=true]")) continue;
      const list = await get("/pairings", {}, { signal });
      if (JSON.stringify(list) === shown) continue;
      await showPairings(place, signal);
      if (list.some((each) => each.state === "pending")) announce("An extension asks to be paired");
    }
  } catch (error) {
    if (error.name === "Gone") watchPairings(place, signal);
    else complain(error);
  }
}

async function showRuns(place, signal) {
  const saved = await get("/page-audits", { saved: true }, { signal });
  if (!saved.length)
    return fill(
      place,
      empty("Nothing is saved yet", "Audit a page with the extension, then press Save evidence in its panel."),
    );
  const studies = Map.groupBy(saved, (each) => each.study || "");
  fill(
    place,
    [...studies].map(([study, runs]) =>
      h("section.card.stack", h("h3", { dir: "auto" }, study || "Without a study"), spread(runs), runs.map(oneRun)),
    ),
  );
}

/** How much the runs of a study differ, next to the interval of each. */
function spread(runs) {
  const variation = runs.find((each) => each.variation)?.variation;
  if (!variation)
    return runs.length < 2
      ? h("p.hint", "Repeat the search: differences between runs show what one interval cannot.")
      : null;
  const parts = Object.entries(variation.spread).map(([group, value]) => `${group} ${(100 * value).toFixed(1)} points`);
  return h(
    "p",
    `${variation.runs} runs; standard deviation between them: ${parts.join(", ")}. `,
    "An interval is about one run and does not include this.",
  );
}

const wanted = (shares) =>
  Object.entries(shares)
    .map(([name, share]) => `${name} ${percent(share)}`)
    .join(", ");

function oneRun(run) {
  const target = run.target;
  const rows = Object.entries(run.shares ?? {}).map(([name, value]) => ({
    name,
    value,
    ends: run.share_intervals?.[name] ?? null,
    wanted: target?.shares[name] ?? 1 / Object.keys(run.shares).length,
  }));
  const options = { label: run.run || run.title || "Shares", target: Boolean(target) };
  return h(
    "article.run.stack",
    h(
      "div.row.spread",
      h(
        "div.what",
        h("h4", { dir: "auto" }, run.run || run.title || "Without a name"),
        h("p.hint", [when(run.saved), run.url].join(" · ")),
      ),
      run.trust && trustBadge(run.trust),
    ),
    rows.length > 0 && intervalBars(rows, options),
    target && h("p.hint", { dir: "auto" }, `Target: ${wanted(target.shares)}${target.source && ` (${target.source})`}`),
    h(
      "p.row",
      h("a.button", { href: `#/audits/${run.audit}` }, "Report"),
      h("a.button", { href: `/api/v1/page-audits/${run.id}/evidence.zip`, download: "" }, "Evidence"),
    ),
  );
}
