// The map: labelled examples in a plane, on a canvas. The pool is drawn small, representatives large.

import { announce, h } from "./element.js";

const [NEAR, MARGIN] = [14, 18]; // pixels
const MANY = 2000; // examples: from here on the pool is drawn finely, without shapes
const SHAPES = ["circle", "square", "triangle", "diamond"]; // groups differ in shape, not only in colour

/**
 * @typedef {{points: [number, number][], groups: number[], labels_of: string[], ids: string[], explained: [number, number]}} Plane
 * @typedef {{representatives: Set<number>, gaps: Set<number>, byHand: Set<number>, sides: Map<number, string>|null}} Shown
 *   `sides` colours representatives of a comparison: "both", "a" or "b"
 */

/**
 * Draw labelled examples; an example is reached by the mouse or by arrow keys.
 * @param {Plane} plane
 * @param {{onopen: (row: number) => void, describe: (row: number) => Promise<Node[]>, signal: AbortSignal}} options
 *   `describe` fills the box at the pointer
 */
export function exampleMap(plane, { onopen, describe, signal }) {
  const canvas = h("canvas", {
    tabIndex: 0,
    role: "application",
    "aria-roledescription": "map",
    "aria-label": "Map of the labelled examples. Arrow keys go from one to the next, Enter opens it.",
  });
  const box = h("div.tip", { hidden: true, "aria-hidden": "true" });
  const element = h("div.map", canvas, box);
  const base = document.createElement("canvas"); // all but the marked example, drawn when the choice changes
  let [places, marked, size] = [/** @type {[number, number][]} */ ([]), -1, [0, 0]];
  /** @type {Shown} */
  let shown = { representatives: new Set(), gaps: new Set(), byHand: new Set(), sides: null };

  const spans = [0, 1].map((axis) => {
    const values = plane.points.map((point) => point[axis]);
    const [low, high] = [
      values.reduce((a, b) => Math.min(a, b), Infinity),
      values.reduce((a, b) => Math.max(a, b), -Infinity),
    ];
    return { low, high, width: high - low || 1 };
  });

  function resize() {
    const width = element.clientWidth;
    if (!width) return;
    const height = Math.round(Math.min(width * 0.8, 520));
    const ratio = window.devicePixelRatio || 1;
    size = [width, height];
    for (const each of [canvas, base])
      [each.width, each.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    canvas.style.height = `${height}px`;
    places = plane.points.map(([x, y]) => [
      MARGIN + ((x - spans[0].low) / spans[0].width) * (width - 2 * MARGIN),
      height - MARGIN - ((y - spans[1].low) / spans[1].width) * (height - 2 * MARGIN),
    ]);
    draw();
  }

  const colour = (name) => getComputedStyle(element).getPropertyValue(name).trim();

  function pen(target) {
    const context = target.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return context;
  }

  function draw() {
    const context = pen(base);
    context.clearRect(0, 0, ...size);
    const [ground, many] = [colour("--bg"), places.length > MANY];
    plane.labels_of.forEach((_, group) => {
      const own = colour(`--group-${group % 12}`);
      context.globalAlpha = shown.sides ? 0.18 : 0.4;
      context.fillStyle = own;
      context.beginPath();
      places.forEach(([x, y], row) => {
        if (plane.groups[row] !== group || shown.representatives.has(row)) return;
        if (many) context.fillRect(x - 1.2, y - 1.2, 2.4, 2.4);
        else outline(context, SHAPES[group % 4], x, y, 2.6);
      });
      context.fill();
      context.globalAlpha = 1;
    });
    if (!shown.sides) {
      const radius = many ? 3.5 : 6.5;
      context.strokeStyle = colour("--poor");
      context.lineWidth = many ? 0.8 : 1.5;
      context.beginPath();
      for (const row of shown.gaps) {
        const [x, y] = places[row];
        context.moveTo(x + radius, y);
        context.arc(x, y, radius, 0, 7);
      }
      context.stroke();
    }
    for (const row of shown.representatives) {
      const group = plane.groups[row];
      const side = shown.sides?.get(row);
      context.fillStyle = side
        ? colour({ both: "--muted", a: "--group-2", b: "--group-3" }[side])
        : colour(`--group-${group % 12}`);
      context.strokeStyle = ground;
      context.lineWidth = 1.5;
      context.beginPath();
      outline(context, SHAPES[group % 4], ...places[row], 6.5);
      context.fill();
      context.stroke();
    }
    context.strokeStyle = colour("--text");
    context.lineWidth = 2;
    for (const row of shown.byHand) {
      const [x, y] = places[row];
      context.strokeRect(x - 9, y - 9, 18, 18);
    }
    paint();
  }

  function paint() {
    const context = pen(canvas);
    context.clearRect(0, 0, ...size);
    context.drawImage(base, 0, 0, ...size);
    if (marked < 0) return;
    const [x, y] = places[marked];
    context.strokeStyle = colour("--text");
    context.lineWidth = 2.5;
    context.beginPath();
    context.arc(x, y, 11, 0, 7);
    context.stroke();
  }

  async function mark(row, { spoken = false } = {}) {
    if (row === marked) return;
    marked = row;
    paint();
    box.hidden = row < 0;
    canvas.classList.toggle("pointing", row >= 0);
    if (row < 0) return;
    if (spoken)
      announce(
        [
          plane.ids[row],
          plane.labels_of[plane.groups[row]],
          shown.representatives.has(row) ? "representative" : "no representative",
          ...(shown.gaps.has(row) ? ["no representative near"] : []),
        ].join(", "),
      );
    const content = await describe(row).catch(() => null);
    if (marked !== row || !content) return;
    box.replaceChildren(...content);
    const [x, y] = places[row];
    box.classList.toggle("left", x > size[0] / 2);
    box.style.setProperty("--x", `${x > size[0] / 2 ? size[0] - x : x}px`);
    box.style.setProperty("--y", `${Math.min(y, size[1] - 40)}px`);
  }

  /** The example nearest to a place on the canvas, representatives before others. */
  function nearest(x, y) {
    let [best, found] = [NEAR ** 2, -1];
    places.forEach(([a, b], row) => {
      const distance = (a - x) ** 2 + (b - y) ** 2 - (shown.representatives.has(row) ? 16 : 0);
      if (distance < best) [best, found] = [distance, row];
    });
    return found;
  }

  /** The nearest example in a direction, with little to the side. */
  function next([dx, dy]) {
    if (marked < 0) return [...shown.representatives][0] ?? 0;
    const [x, y] = places[marked];
    let [best, found] = [Infinity, marked];
    places.forEach(([a, b], row) => {
      const [ahead, aside] = [(a - x) * dx + (b - y) * dy, Math.abs((a - x) * dy - (b - y) * dx)];
      const cost = ahead + 2 * aside;
      if (row !== marked && ahead > 0.01 && cost < best) [best, found] = [cost, row];
    });
    return found;
  }

  canvas.addEventListener("pointermove", (event) => mark(nearest(event.offsetX, event.offsetY)), { signal });
  canvas.addEventListener("pointerleave", () => mark(-1), { signal });
  canvas.addEventListener("blur", () => mark(-1), { signal });
  canvas.addEventListener(
    "click",
    (event) => {
      const row = nearest(event.offsetX, event.offsetY);
      if (row >= 0) onopen(row);
    },
    { signal },
  );
  canvas.addEventListener(
    "keydown",
    (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (step) mark(next(step), { spoken: true });
      else if (["Enter", " "].includes(event.key) && marked >= 0) onopen(marked);
      else if (event.key === "Escape") mark(-1);
      else return;
      event.preventDefault();
    },
    { signal },
  );
  const watcher = new ResizeObserver(resize);
  watcher.observe(element);
  signal.addEventListener("abort", () => watcher.disconnect(), { once: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, { signal });

  element.show = (/** @type {Shown} */ what) => {
    shown = what;
    if (size[0]) draw();
  };
  return element;
}

function outline(context, shape, x, y, radius) {
  const side = radius * 0.9;
  if (shape === "circle") {
    context.moveTo(x + radius, y);
    context.arc(x, y, radius, 0, 7);
  } else if (shape === "square") {
    context.rect(x - side, y - side, 2 * side, 2 * side);
  } else {
    const corners =
      shape === "triangle"
        ? [
            [0, -1.2],
            [1.1, 0.8],
            [-1.1, 0.8],
          ]
        : [
            [0, -1.25],
            [1.25, 0],
            [0, 1.25],
            [-1.25, 0],
          ];
    corners.forEach(([a, b], at) => context[at ? "lineTo" : "moveTo"](x + a * radius, y + b * radius));
    context.closePath();
  }
}
