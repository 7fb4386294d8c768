// The pixels asked about, and the attention of each: where it borrows its motion from.

import { fetchAttention, pairUrl } from "./api.js";
import { withStrength } from "./glow.js";
import { store } from "./store.js";

// Told apart on a dark grey ground, with any colour vision by lightness or hue.
const COLORS = [[255, 177, 59], [79, 206, 255], [255, 128, 205], [140, 255, 150], [190, 160, 255]];

let serial = 0;

const inFlight = new Map(); // point id -> the request under way

export const css = ([r, g, b], alpha = 1) => `rgb(${r} ${g} ${b} / ${alpha})`;

// Put a point: the last one moves here, or one more comes if `more`.
export function putPoint({ x, y }, more) {
  let { points } = store.state;
  if (points.length && !more) return movePoint(points.at(-1).id, { x, y });
  if (points.length === COLORS.length) points = points.slice(1);
  const color = COLORS.find((one) => !points.some((point) => point.color === one));
  const point = { id: ++serial, x, y, color, map: null };
  store.set({ points: [...points, point], adding: false, solo: null });
  light(point.id);
}

// The attention of where it was is shown until that of where it is now has come.
export function movePoint(id, { x, y }) {
  change(id, { x, y });
  store.set({ solo: null });
  light(id);
}

export const removePoint = (id) =>
  store.set({ points: store.state.points.filter((point) => point.id !== id), peek: null });

export const clearPoints = () => store.set({ points: [] });

// Ask again for all: the pair or the model has changed.
export const relightPoints = () => store.state.points.forEach(({ id }) => light(id));

export const hasAttention = ({ models, shown }) =>
  Boolean(models.find((model) => model.name === shown)?.attention);

// The frames of a pair come before its results; the attention is the same with both.
const isShown = ({ job, pair, model }) => {
  const { assets } = store.state;
  return assets?.job.id === job.id && assets.pair === pair && assets.model === model;
};

function change(id, patch) {
  const points = store.state.points.map((one) => (one.id === id ? { ...one, ...patch } : one));
  store.set({ points });
}

// Fetch the attention of a point. While a request is under way a dragged point only notes that it
// has moved, so that the server is asked no faster than it answers.
async function light(id) {
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
    // Between one job and the next, the old one is gone and still shown.
    if (store.state.job?.id === assets.job.id) store.set({ notice: error.message });
  }
  const again = inFlight.get(id) || !isShown(assets);
  inFlight.delete(id);
  if (again) light(id);
}
