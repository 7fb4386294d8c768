// Everything the server knows about one pair and one model, fetched once.

import { fetchImage, fetchValues, pairUrl } from "./api.js";
import { outlineOf } from "./covered.js";

const KEPT = 12; // pairs; a clip has many
const PICTURES = ["frame1", "frame2", "flow", "warped", "occlusion", "confidence"];
const kept = new Map();

export function forgetAssets() {
  kept.clear();
}

// Return a promise of the pair's pictures and values. Asking twice fetches once.
export function loadPair(job, pair, model) {
  const key = `${pair}/${model}/${job.max_flow}`; // the longest motion sets the scale of colours
  if (!kept.has(key)) {
    const loading = fetchPair(job, pair, model);
    loading.catch(() => kept.delete(key));
    kept.set(key, loading);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  }
  return kept.get(key);
}

// The two frames alone, while the rest is computed.
export async function loadFrames(job, pair, model) {
  const fetchFrame = (view) => fetchImage(pairUrl(job, pair, model, view));
  const [frame1, frame2] = await Promise.all(["frame1", "frame2"].map(fetchFrame));
  const { width, height } = frame1;
  return {
    frame1, frame2, job, pair, model, width, height,
    dusk: duskOf(frame1),
    partial: true,
    steps: new Map(),
  };
}

async function fetchPair(job, pair, model) {
  const url = (view, name = model) => pairUrl(job, pair, name, view);
  const other = job.models.find((name) => name !== model) ?? null;
  const wanted = Object.fromEntries(PICTURES.map((view) => [view, fetchImage(url(view))]));
  wanted.values = fetchValues(url("values"));
  if (other) {
    wanted.difference = fetchImage(url("difference"));
    wanted.otherFlow = fetchImage(url("flow", other));
    wanted.otherValues = fetchValues(url("values", other));
  }
  const found = await Promise.all(Object.values(wanted));
  const assets = Object.fromEntries(Object.keys(wanted).map((key, i) => [key, found[i]]));
  const { width, height } = assets.frame1;
  return {
    ...assets, job, pair, model, other, width, height,
    rim: job.max_flow,
    dusk: duskOf(assets.frame1),
    outline: outlineOf(assets.values),
    steps: new Map(),
  };
}

// The flow after some refinements; the last is what `assets.flow` holds already.
export async function loadStep(assets, iteration) {
  if (!assets.steps.has(iteration)) {
    const url = pairUrl(assets.job, assets.pair, assets.model, `flow?iteration=${iteration}`);
    assets.steps.set(iteration, await fetchImage(url));
  }
  return assets.steps.get(iteration);
}

// The frame in grey and dark: it still tells where we are, and leaves all colour to what glows.
function duskOf(frame) {
  const canvas = new OffscreenCanvas(frame.width, frame.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(frame, 0, 0);
  const picture = context.getImageData(0, 0, frame.width, frame.height);
  const { data } = picture;
  for (let i = 0; i < data.length; i += 4) {
    const gray = 0.4 * (0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]);
    data[i] = data[i + 1] = data[i + 2] = gray;
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

// What is known of a pixel, or null outside the image.
export function valueAt(values, x, y) {
  if (!values || x < 0 || y < 0 || x >= values.width || y >= values.height) return null;
  const at = 4 * (y * values.width + x);
  const [u, v, occluded, confidence] = values.data.subarray(at, at + 4);
  return { u, v, occluded, confidence, length: Math.hypot(u, v) };
}
