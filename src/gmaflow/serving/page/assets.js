// All results of one pair and model, fetched once.

import { fetchImage, fetchValues, pairUrl } from "./api.js";

const CACHE_SIZE = 12; // pairs of a clip to keep
const PICTURES = ["frame1", "frame2", "flow", "warped", "occlusion", "confidence"];
const cache = new Map();

export function forgetAssets() {
  cache.clear();
}

// Return a promise of the pictures and values of a pair, fetched once.
export function loadPair(job, pair, model) {
  const key = `${pair}/${model}/${job.max_flow}`; // the longest motion sets the colour scale
  if (!cache.has(key)) {
    const loading = fetchPair(job, pair, model);
    loading.catch(() => cache.delete(key));
    cache.set(key, loading);
    if (cache.size > CACHE_SIZE) cache.delete(cache.keys().next().value);
  }
  return cache.get(key);
}

// Only the two frames, while the rest is computed.
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
  const requests = Object.fromEntries(PICTURES.map((view) => [view, fetchImage(url(view))]));
  requests.values = fetchValues(url("values"));
  if (other) {
    requests.difference = fetchImage(url("difference"));
    requests.otherFlow = fetchImage(url("flow", other));
    requests.otherValues = fetchValues(url("values", other));
  }
  const responses = await Promise.all(Object.values(requests));
  const assets = Object.fromEntries(Object.keys(requests).map((key, i) => [key, responses[i]]));
  const { width, height } = assets.frame1;
  return {
    ...assets, job, pair, model, other, width, height,
    rim: job.max_flow,
    dusk: duskOf(assets.frame1),
    outline: outlineOf(assets.values),
    steps: new Map(),
  };
}

// The flow after some refinements; the final flow is in `assets.flow`.
export async function loadStep(assets, iteration) {
  if (!assets.steps.has(iteration)) {
    const url = pairUrl(assets.job, assets.pair, assets.model, `flow?iteration=${iteration}`);
    assets.steps.set(iteration, await fetchImage(url));
  }
  return assets.steps.get(iteration);
}

// The frame in dark grey, as the background of the glow.
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

// The values of a pixel, or null outside the image.
export function valueAt(values, x, y) {
  if (!values || x < 0 || y < 0 || x >= values.width || y >= values.height) return null;
  const at = 4 * (y * values.width + x);
  const [u, v, occluded, confidence] = values.data.subarray(at, at + 4);
  return { u, v, occluded, confidence, length: Math.hypot(u, v) };
}

// Occluded pixels: their outline, and the pixel in the middle of the largest area.

// A smooth white outline of the occluded areas. The view of hidden pixels shows each pixel.
function outlineOf(values) {
  const { width, height } = values;
  const smooth = blur(maskOf(values), width, height, 5);
  const covered = (i) => smooth[i] > 0.5;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let i = width; i < width * (height - 1); i++) {
    const inside = covered(i - 1) && covered(i + 1) && covered(i - width) && covered(i + width);
    if (covered(i) && !inside) picture.data.set([255, 255, 255, 130], 4 * i);
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

// The occluded pixel with the most occluded neighbours, or null if there is none.
export function mostCovered(values) {
  const { width, height } = values;
  const mask = maskOf(values);
  const density = blur(mask, width, height, Math.max(4, Math.round(Math.min(width, height) / 24)));
  let best = -1;
  mask.forEach((covered, i) => {
    if (covered && (best < 0 || density[i] > density[best])) best = i;
  });
  return best < 0 ? null : { x: best % width, y: Math.floor(best / width) };
}

function maskOf({ width, height, data }) {
  return Float32Array.from({ length: width * height }, (_, i) => Number(data[4 * i + 2] === 1));
}

// The mean over a square of pixels up to `reach` away; zero outside the image.
function blur(mask, width, height, reach) {
  const rows = blurLines(mask, { count: width, step: 1, lines: height, skip: width, reach });
  return blurLines(rows, { count: height, step: width, lines: width, skip: 1, reach });
}

// The mean along lines: `count` values `step` apart, `lines` of them `skip` apart.
function blurLines(values, { count, step, lines, skip, reach }) {
  const result = new Float32Array(values.length);
  for (let line = 0; line < lines; line++) {
    let sum = 0;
    for (let i = -reach; i < count; i++) {
      if (i + reach < count) sum += values[line * skip + (i + reach) * step];
      if (i - reach > 0) sum -= values[line * skip + (i - reach - 1) * step];
      if (i >= 0) result[line * skip + i * step] = sum / (2 * reach + 1);
    }
  }
  return result;
}
