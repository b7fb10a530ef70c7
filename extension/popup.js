/** Popup: what an audit uses, the result of this tab, and what was saved. */
import { at, element, explained, loadTexts, percent, range, shown, tell, text } from "./ui.js";

/** @param {any} answer */
const failed = (answer) => answer?.problem && at("status").replaceChildren(explained(answer.problem, answer.address ?? ""));

/** @param {string} id @param {[string|number, string][]} choices @param {string|number} chosen */
function choose(id, choices, chosen) {
  at(id).replaceChildren(...choices.map(([value, name]) => element("option", { value: String(value) }, name)));
  at(id).value = String(chosen);
}

/** @param {number} page */
async function download(page) {
  const answer = await tell("zip", { page });
  if (failed(answer)) return;
  const data = Uint8Array.from(atob(answer.zip), (letter) => letter.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([data], { type: "application/zip" }));
  const link = element("a", { href: url, download: `evidence-${page}.zip` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {any[]} pages */
function drawHistory(pages) {
  if (!pages.length) return at("history").replaceChildren(element("p", { className: "small" }, text("nothingSaved")));
  /** @type {Map<string, any[]>} */
  const studies = new Map();
  for (const page of pages) studies.set(page.study, [...(studies.get(page.study) ?? []), page]);
  at("history").replaceChildren(...[...studies].flatMap(([study, some]) => [
    element("h2", {}, study || text("noStudy")),
    some[0].variation ? element("p", { className: "small" }, text("variation", some[0].variation.runs,
      Object.entries(some[0].variation.spread).map(([name, value]) => `${name} ±${Math.round(100 * Number(value))}`)
        .join(", "))) : null,
    ...some.map((page) => element("div", { className: "small row" },
      element("span", {}, [page.run || page.title || page.url, `${page.saved.slice(0, 16).replace("T", " ")} UTC`,
        ...Object.entries(page.shares ?? {}).slice(0, 2).filter(([, share]) => share !== null)
          .map(([name, share]) => `${name} ${percent(Number(share))} (${range(page.share_intervals[name])})`),
      ].join(" · ")),
      element("button", { onclick: () => download(page.id), "aria-label": `${text("evidence")} ${page.id}` },
        text("evidence")))),
  ].filter((each) => each !== null)));
}

async function main() {
  const settings = await tell("settings");
  await loadTexts(settings.language);
  const wanted = new URLSearchParams(location.search).get("evidence");
  if (wanted) await download(Number(wanted));
  at("options").addEventListener("click", () => chrome.runtime.openOptionsPage());
  const status = await tell("status");
  const current = await tell("current");
  if (status.problem) {
    failed(status);
    return;
  }
  at("ready").hidden = false;
  if (!status.controls.length) failed({ problem: { key: "noControl", detail: "" } });
  if (current.run?.problem) failed({ problem: current.run.problem, address: status.address });
  if (current.result) at("current").replaceChildren(...shown(current.result, current.run));

  const controls = status.controls;
  choose("control", controls.map((/** @type {any} */ each) => [each.id, `${each.name} (${each.attribute})`]),
    controls.some((/** @type {any} */ each) => each.id === settings.control) ? settings.control : controls[0]?.id ?? "");
  choose("mode", [["auto", text("modeAuto")], ["image", text("modeImage")], ["text", text("modeText")]], settings.mode);
  choose("depth", [[0, text("depthAll")], ...[50, 100, 200].map((n) => /** @type {[number, string]} */ (
    [n, text("firstItems", n)]))], settings.depth);
  for (const id of ["run", "study"]) at(id).value = settings[id];
  at("pictures").checked = settings.pictures;
  drawTarget();

  function drawTarget() {
    const control = controls.find((/** @type {any} */ each) => String(each.id) === at("control").value);
    const target = settings.targets[control?.id] ?? { shares: {}, source: "" };
    at("target").replaceChildren(...(control?.groups ?? []).map((/** @type {string} */ name) => element("label", {},
      text("targetOf", name), element("input", {
        type: "number", min: "0", max: "100", step: "any", name,
        value: target.shares[name] === undefined ? "" : String(Number((100 * target.shares[name]).toPrecision(12))), onchange: keep,
      }))));
    at("source").value = target.source;
  }

  async function keep() {
    const control = Number(at("control").value);
    /** @type {Record<string, number>} */
    const shares = {};
    for (const input of at("target").querySelectorAll("input")) {
      if (input.value !== "") shares[input.name] = Number(input.value) / 100;
    }
    settings.targets[control] = { shares, source: at("source").value };
    if (!Object.keys(shares).length) delete settings.targets[control];
    await tell("keep", { values: {
      control, mode: at("mode").value, depth: Number(at("depth").value), run: at("run").value.trim(),
      study: at("study").value.trim(), pictures: at("pictures").checked, targets: settings.targets,
    } });
  }
  for (const id of ["control", "mode", "depth", "run", "study", "pictures", "source"]) {
    at(id).addEventListener("change", id === "control" ? async () => {
      drawTarget();
      await keep();
    } : keep);
  }
  for (const id of ["start", "area"]) {
    at(id).addEventListener("click", async () => {
      await keep();
      await tell("start", { area: id === "area" });
      close();
    });
  }
  const pages = await tell("history");
  if (!failed(pages)) drawHistory(pages);
}

main();
