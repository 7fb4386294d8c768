// Everything the server knows about one pair and one model, fetched once.

import { fetchImage, fetchValues, pairUrl } from "./api.js";

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
  const views = ["frame1", "frame2"];
  const [frame1, frame2] = await Promise.all(views.map((view) => fetchImage(pairUrl(job, pair, model, view))));
  const { width, height } = frame1;
  return { frame1, frame2, dusk: duskOf(frame1), job, pair, model, width, height, partial: true, steps: new Map() };
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
    const gray = 0.45 * (0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]);
    data[i] = data[i + 1] = data[i + 2] = gray;
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

// The border of what is covered in frame 2, in white, without crumbs and jags: it is there to guide
// the eye, and the view of hidden pixels shows each of them.
function outlineOf({ width, height, data }) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  const mask = Float32Array.from({ length: width * height }, (_, i) => Number(data[4 * i + 2] === 1));
  const smooth = blur(blur(mask, width, height, 1, width), height, width, width, 1);
  const covered = (i) => smooth[i] > 0.5;
  for (let i = width; i < width * (height - 1); i++) {
    const inside = covered(i - 1) && covered(i + 1) && covered(i - width) && covered(i + width);
    if (covered(i) && !inside) picture.data.set([255, 255, 255, 130], 4 * i);
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

// The mean over a window along lines: `count` values each `step` apart, `lines` of them `skip` apart.
function blur(values, count, lines, step, skip) {
  const reach = 5;
  const result = new Float32Array(values.length);
  for (let line = 0; line < lines; line++) {
    let sum = 0;
    for (let i = -reach; i < count + reach; i++) {
      if (i + reach < count && i + reach >= 0) sum += values[line * skip + (i + reach) * step];
      if (i - reach - 1 >= 0) sum -= values[line * skip + (i - reach - 1) * step];
      if (i >= 0 && i < count) result[line * skip + i * step] = sum / (2 * reach + 1);
    }
  }
  return result;
}

// What is known of a pixel, or null outside the image.
export function valueAt(values, x, y) {
  if (!values || x < 0 || y < 0 || x >= values.width || y >= values.height) return null;
  const at = 4 * (y * values.width + x);
  const [u, v, occluded, confidence] = values.data.subarray(at, at + 4);
  return { u, v, occluded, confidence, length: Math.hypot(u, v) };
}

// The pixel in the thick of what is covered: with the most covered neighbours. Null if none is.
export function mostHidden(values) {
  const { width, height, data } = values;
  const reach = Math.max(4, Math.round(Math.min(width, height) / 24));
  const hidden = (x, y) => data[4 * (y * width + x) + 2] === 1;
  let [best, most] = [null, 0];
  for (let y = reach; y < height - reach; y += 4) {
    for (let x = reach; x < width - reach; x += 4) {
      if (!hidden(x, y)) continue;
      let count = 0;
      for (let j = -reach; j <= reach; j += 2) {
        for (let i = -reach; i <= reach; i += 2) count += hidden(x + i, y + j);
      }
      if (count > most) [best, most] = [{ x, y }, count];
    }
  }
  return best;
}
