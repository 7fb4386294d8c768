// The points that the user has put, and the attention of each: where it takes its motion from.

import { fetchAttention, pairUrl } from "./api.js";
import { valueAt } from "./assets.js";
import { byId, icon, make } from "./dom.js";
import { inWords } from "./inspector.js";
import { store } from "./store.js";

// Distinguishable on dark grey, by lightness or hue, with any kind of colour vision.
const COLORS = [[255, 177, 59], [79, 206, 255], [255, 128, 205], [140, 255, 150], [190, 160, 255]];

let serial = 0;

const inFlight = new Map(); // point id -> whether the point has moved since its request was sent

export const css = ([r, g, b], alpha = 1) => `rgb(${r} ${g} ${b} / ${alpha})`;

// Move the last point here, or add a point if `more`.
export function putPoint({ x, y }, more) {
  let { points } = store.state;
  if (points.length && !more) return movePoint(points.at(-1).id, { x, y });
  if (points.length === COLORS.length) points = points.slice(1);
  const color = COLORS.find((one) => !points.some((point) => point.color === one));
  const point = { id: ++serial, x, y, color, map: null };
  store.set({ points: [...points, point], adding: false, solo: null });
  loadAttention(point.id);
}

// The old attention is shown until the new one has arrived.
export function movePoint(id, { x, y }) {
  change(id, { x, y });
  store.set({ solo: null });
  loadAttention(id);
}

const removePoint = (id) =>
  store.set({ points: store.state.points.filter((point) => point.id !== id), peek: null });

export const clearPoints = () => store.set({ points: [] });

// Request all attention maps again: the pair or the model has changed.
export const reloadAttention = () => store.state.points.forEach(({ id }) => loadAttention(id));

export const hasAttention = ({ models, shown }) =>
  Boolean(models.find((model) => model.name === shown)?.attention);

// Compares jobs, not assets: the frames of a pair arrive before its results.
const isShown = ({ job, pair, model }) => {
  const { assets } = store.state;
  return assets?.job.id === job.id && assets.pair === pair && assets.model === model;
};

function change(id, patch) {
  const points = store.state.points.map((one) => (one.id === id ? { ...one, ...patch } : one));
  store.set({ points });
}

// Fetch the attention of a point. A point that is dragged during a request waits for the response,
// so that requests do not pile up.
async function loadAttention(id) {
  if (inFlight.has(id)) {
    inFlight.set(id, true);
    return;
  }
  const { assets, points } = store.state;
  const point = points.find((one) => one.id === id);
  if (!point || !assets || !hasAttention(store.state)) return;
  inFlight.set(id, false);
  try {
    const url = pairUrl(assets.job, assets.pair, assets.model, "attention");
    const map = await fetchAttention(url, point);
    if (isShown(assets)) change(id, { map: withStrength(map) });
  } catch (error) {
    // Between two jobs, the old one is deleted but still shown; its errors do not matter.
    if (store.state.job?.id === assets.job.id) store.set({ notice: error.message });
  }
  const again = inFlight.get(id) || !isShown(assets);
  inFlight.delete(id);
  if (again) loadAttention(id);
}

// Glow: the attention of each point in its colour, drawn over the frame.

// Only cells above the average glow, from 0 at the average to 1 at the maximum. The power makes faint
// light visible.
function withStrength(map) {
  const average = map.data.reduce((sum, weight) => sum + weight, 0) / map.data.length;
  const share = (weight) => Math.max(weight - average, 0) / Math.max(255 - average, 1);
  return { ...map, strength: Float32Array.from(map.data, (weight) => share(weight) ** 0.55) };
}

const WHITE = 0.65; // above this strength, light turns white
let cachedGlow = { points: null, solo: null, glow: null };

// A picture of all maps, or only that of the point `solo`, and its place on the image.
export function glowOf(points, solo) {
  if (cachedGlow.points !== points || cachedGlow.solo !== solo) {
    const chosen = points.filter(({ id }) => id === solo);
    const visible = chosen.length ? chosen : points;
    cachedGlow = { points, solo, glow: makeGlow(visible.filter(({ map }) => map)) };
  }
  return cachedGlow.glow;
}

function makeGlow(lit) {
  if (!lit.length) return null;
  const { width, height, left, top } = lit[0].map;
  // One more cell on all sides, copied from its neighbour: otherwise scaling fades at the edges.
  const [columns, rows] = [width + 2, height + 2];
  const inside = (value, size) => Math.min(Math.max(value - 1, 0), size - 1);
  const canvas = new OffscreenCanvas(columns, rows);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const cell = inside(row, height) * width + inside(column, width);
      picture.data.set(mix(lit, cell), 4 * (row * columns + column));
    }
  }
  context.putImageData(picture, 0, 0);
  return { canvas, x: -8 - left, y: -8 - top, width: 8 * columns, height: 8 * rows };
}

// The colour of a cell: close to that of the point with the strongest attention. A plain sum would
// turn everything white.
function mix(lit, cell) {
  let [red, green, blue, total, most] = [0, 0, 0, 1e-9, 0];
  for (const { color, map } of lit) {
    const strength = map.strength[cell];
    const share = strength ** 4;
    red += share * color[0];
    green += share * color[1];
    blue += share * color[2];
    total += share;
    most = Math.max(most, strength);
  }
  const white = (0.75 * Math.max(0, most - WHITE)) / (1 - WHITE);
  const lighten = (sum) => sum / total + (255 - sum / total) * white;
  return [lighten(red), lighten(green), lighten(blue), 250 * most];
}

// The list of points below the large view, with the values of each.

function item(point, { assets, solo }) {
  const value = valueAt(assets?.values, point.x, point.y);
  const words = value && inWords(value);
  const dot = make("i", { className: "dot" });
  dot.style.background = css(point.color);
  const choose = make(
    "button", { type: "button", className: "choose" },
    dot, make("span", { className: "where" }, `${point.x}, ${point.y}`),
    make("span", { className: "soft" }, words ? `${words.length}, ${words.angle}` : ""),
    value?.occluded ? make("span", { className: "tag" }, words.seen) : "",
  );
  choose.ariaPressed = String(solo === point.id);
  choose.addEventListener("click", () => store.set({ solo: solo === point.id ? null : point.id }));
  const remove = make("button", { type: "button", className: "button square plain" }, icon("close"));
  remove.ariaLabel = `Remove the point at ${point.x}, ${point.y}`;
  remove.addEventListener("click", () => removePoint(point.id));
  const element = make("li", { className: "point" }, choose, remove);
  if (point.map) {
    const percent = (100 * point.map.largest).toPrecision(2);
    element.title = `Largest attention weight: ${percent} %, of a cell of 8 x 8 pixels`;
  }
  element.addEventListener("pointerenter", () => store.set({ peek: point.id }));
  element.addEventListener("pointerleave", () => store.set({ peek: null }));
  return element;
}

function showPoints(state) {
  const { points, assets } = state;
  const list = byId("points");
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.replaceChildren(...points.map((point) => item(point, state)));
  list.querySelectorAll("button")[focused]?.focus(); // the focused button was replaced
  const hint = byId("hint");
  hint.hidden = points.length > 0;
  hint.textContent = hasAttention(state) || !assets
    ? "Click a pixel to see where it takes its motion from."
    : `${state.shown} has no attention; click a pixel to see its motion.`;
  byId("add").ariaPressed = String(state.adding);
  byId("add").disabled = !points.length;
}

export function setUpPointList() {
  byId("add").addEventListener("click", () => store.set({ adding: !store.state.adding }));
  store.on(["points", "assets", "adding", "shown", "solo"], showPoints);
  showPoints(store.state);
}
