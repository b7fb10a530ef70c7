// Charts in the look of the report: a light bar for the interval, a dark mark for the estimate, a line for the even
// split.

import { h, s } from "./element.js";
import { percent, when } from "./words.js";

const FOOT = 26;
const [MOST_BARS, MOST_TICKS] = [40, 6];

/**
 * @typedef {{name: string, value: number|null, ends: [number, number]|null, at?: string, wanted: number}} Estimate
 *   a share from 0 to 1, and the one it is compared with; a value of null is inconclusive
 */

/**
 * An SVG that is drawn again at each width, so that its letters keep their size.
 * @param {(width: number) => SVGElement} draw
 */
function responsive(draw) {
  const place = h("div.chart");
  let width = 0;
  new ResizeObserver(() => {
    const wanted = Math.round(place.clientWidth);
    if (!wanted || wanted === width) return;
    width = wanted;
    place.replaceChildren(draw(width));
  }).observe(place);
  return place;
}

const frame = (width, height, label, ...children) =>
  s("svg.plot", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);

const text = (kind, x, y, anchor, words) => s(`text.${kind}`, { x, y, "text-anchor": anchor }, words);

/** What a chart says in words, for those who do not see it. @param {Estimate} each */
const spoken = ({ name, value, ends }) => {
  if (value === null) return `${name}: inconclusive`;
  return `${name}: ${percent(value)}${ends ? `, between ${percent(ends[0])} and ${percent(ends[1])}` : ""}`;
};

/** The figure next to a bar: "21 % (18–24)". @param {Estimate} each */
export function figure(each) {
  if (each.value === null) return "inconclusive";
  const round = (value) => Math.round(100 * value);
  return percent(each.value) + (each.ends ? ` (${round(each.ends[0])}–${round(each.ends[1])})` : "");
}

/** The shares of an audit, by group. @param {any} audit @returns {Estimate[]} */
export const sharesOf = (audit) =>
  audit.groups.map((name) => ({
    name,
    value: audit.shares[name] ?? null,
    ends: audit.share_intervals[name]?.length === 2 ? audit.share_intervals[name] : null,
    at: audit.at,
    wanted: audit.target?.[name] ?? 1 / audit.groups.length,
  }));

/**
 * One bar for each group, from 0 to 100 %, with a line at the even split, or at the target of each.
 * @param {Estimate[]} rows
 * @param {{target?: boolean, label?: string}} [options]
 */
export function intervalBars(rows, { target = false, label = "Shares" } = {}) {
  return responsive((width) => {
    const narrow = width < 520;
    const [start, stop] = narrow ? [6, width - 6] : [Math.min(170, width * 0.25), width - 130];
    const [head, step] = [22, narrow ? 48 : 34];
    const foot = head + rows.length * step;
    const x = (value) => start + (stop - start) * value;
    const ticks = (narrow ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((value) => [
      s("path.rule", { d: `M${x(value)} ${head}V${foot}` }),
      text(
        "axis",
        x(value),
        foot + 18,
        value === 0 && narrow ? "start" : value === 1 && narrow ? "end" : "middle",
        percent(value),
      ),
    ]);
    const first = rows[0]?.wanted ?? 0;
    const lines = [
      rows.map((row, at) =>
        s("path.wanted", { d: `M${x(row.wanted)} ${head + at * step}V${head + (at + 1) * step}` }),
      ),
      text(
        "axis",
        Math.min(Math.max(x(first), 70), width - 70),
        14,
        "middle",
        target ? `target ${percent(first)}` : `even split ${percent(first)}`,
      ),
    ];
    const bars = rows.map((row, at) => {
      const y = head + at * step + (narrow ? 34 : step / 2);
      const base = narrow ? y - 15 : y + 4.5;
      return s(
        "g",
        s(
          "svg",
          { x: 0, y: base - 14, width: narrow ? width - 120 : start - 14, height: 22 },
          s("text.name", { y: 14 }, s("title", row.name), row.name),
        ),
        text("value", width, base, "end", figure(row)),
        row.value === null
          ? s("path.unknown", { d: `M${start} ${y}H${stop}` })
          : [
              row.ends && s("path.range", { d: `M${x(row.ends[0])} ${y}H${x(row.ends[1])}` }),
              s("circle.mark", { cx: x(row.value), cy: y, r: 5.5 }),
            ],
      );
    });
    return frame(width, foot + FOOT, `${label}. ${rows.map(spoken).join("; ")}`, ticks, lines, bars);
  });
}

/**
 * Shares over time: of the first group where there are two, of every group where there are more.
 * @param {any[]} audits the oldest first
 * @param {{height?: number}} [options]
 */
export function historyChart(audits, { height = 240 } = {}) {
  const groups = audits[0]?.groups ?? [];
  const shown = groups.length === 2 ? [0] : groups.map((_, at) => at);
  const series = shown.map((group) => ({ group, points: audits.map((audit) => sharesOf(audit)[group]) }));
  return responsive((width) => {
    const [start, stop, head, foot] = [48, width - 14, 22, height - FOOT];
    const known = series.flatMap((each) => each.points).filter((point) => point.value !== null);
    // The targets of the newest audit.
    const target = audits.at(-1).target;
    const wanted = [...new Set(series.map((each) => each.points.at(-1).wanted))];
    const all = [...known.flatMap((point) => point.ends ?? [point.value]), ...wanted];
    // The axis has room around what was measured, in steps that people count in.
    const spread = Math.max(...all) - Math.min(...all);
    const unit = [0.02, 0.05, 0.1, 0.25].find((each) => spread / each <= 5) ?? 0.25;
    const low = Math.max(0, Math.floor((Math.min(...all) - unit / 4) / unit) * unit);
    const high = Math.min(1, Math.ceil((Math.max(...all) + unit / 4) / unit) * unit);
    const y = (value) => foot - ((foot - head) * (value - low)) / (high - low);
    const times = audits.map((audit) => Date.parse(audit.at));
    const [first, last] = [times[0], times.at(-1)];
    const inner = [start + 16, stop - 16];
    const x = (time) =>
      last === first ? (start + stop) / 2 : inner[0] + ((inner[1] - inner[0]) * (time - first)) / (last - first);
    const lines = [];
    for (let value = low; value < high + unit / 2; value += unit)
      lines.push(
        s("path.rule", { d: `M${start} ${y(value)}H${stop}` }),
        text("axis", start - 8, y(value) + 4, "end", percent(value)),
      );
    return frame(
      width,
      height,
      `Shares over time. ${shown
        .map(
          (group) =>
            `${groups[group]}, from ${when(audits[0].at)} to ${when(audits.at(-1).at)}: ${series
              .find((each) => each.group === group)
              .points.map(figure)
              .slice(-20)
              .join(", ")}`,
        )
        .join("; ")}`,
      lines,
      wanted.map((share) => s("path.wanted", { d: `M${start} ${y(share)}H${stop}` })),
      text("axis", stop, 13, "end", `– – ${target ? "target" : "even split"} ${wanted.map(percent).join(", ")}`),
      text("axis", start, 13, "start", shown.length === 1 ? `share of ${groups[0]}` : "share"),
      timeTicks(times, x, width).map(([at, anchor, words]) => text("axis", at, height - 6, anchor, words)),
      series.map((each) => plotted(each, times, x, y, shown.length > 1)),
    );
  });
}

function plotted({ group, points }, times, x, y, coloured) {
  const known = points.map((point, at) => ({ ...point, x: x(times[at]) })).filter((point) => point.value !== null);
  const kind = coloured ? { vars: { "--own": `var(--group-${group})` } } : {};
  const path = (values) => values.map(([a, b], at) => `${at ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  const some = known.filter((point) => point.ends);
  const band = [
    ...some.map((point) => [point.x, y(point.ends[1])]),
    ...some.toReversed().map((point) => [point.x, y(point.ends[0])]),
  ];
  return s(
    `g${coloured ? ".own" : ""}`,
    kind,
    known.length > MOST_BARS && band.length > 2 && s("path.band", { d: `${path(band)}Z` }),
    s("path.line", { d: path(known.map((point) => [point.x, y(point.value)])) }),
    known.map((point) =>
      s(
        "g",
        s("title", `${when(point.at)} · ${point.name} ${figure(point)}`),
        known.length <= MOST_BARS &&
          point.ends &&
          s("path.range", { d: `M${point.x} ${y(point.ends[0])}V${y(point.ends[1])}` }),
        s("circle.mark", { cx: point.x, cy: y(point.value), r: known.length > MOST_BARS ? 2.5 : 5 }),
      ),
    ),
  );
}

/** Times under the axis: the first and the last, and those between that have room. */
function timeTicks(times, x, width) {
  const [first, last] = [times[0], times.at(-1)];
  const near = last - first < 36 * 3600e3 && new Date(first).toDateString() === new Date(last).toDateString();
  const seconds = last - first < 10 * 60e3;
  const name = (time) =>
    near
      ? new Date(time).toLocaleTimeString("en-GB", {
          hour: "2-digit",
          minute: "2-digit",
          ...(seconds && { second: "2-digit" }),
        })
      : new Date(time).toLocaleDateString("en-GB", {
          day: "numeric",
          month: "short",
          ...(last - first > 300 * 86400e3 && { year: "numeric" }),
        });
  if (first === last) return [[x(first), "middle", name(first)]];
  const number = Math.max(2, Math.min(MOST_TICKS, Math.floor(width / 130)));
  const ticks = Array.from({ length: number }, (_, at) => first + ((last - first) * at) / (number - 1));
  return ticks
    .map((time, at) => [x(time), at === 0 ? "start" : at === number - 1 ? "end" : "middle", name(time)])
    .filter(([, , words], at) => at === 0 || words !== name(ticks[at - 1]));
}

/** The mark of a group: its colour, and on the map its shape. @param {number} group @param {boolean} [shape] */
export const dot = (group, shape = false) =>
  h("span.dot", {
    vars: { "--own": `var(--group-${group % 12})` },
    dataset: { shape: shape ? group % 4 : 0 },
    "aria-hidden": "true",
  });

/** The groups and their colours. @param {string[]} names @param {{shapes?: boolean}} [options] */
export const legend = (names, { shapes = false } = {}) =>
  h(
    "ul.legend",
    names.map((name, at) => h("li", { dir: "auto" }, dot(at, shapes), name)),
  );

/** How far a result can be trusted, as a badge. @param {string} trust */
export const trustBadge = (trust) => h(`span.badge.${trust}`, `trust: ${trust}`);
