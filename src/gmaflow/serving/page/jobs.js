// Jobs: start one, follow it, show its results.

import { forgetJob, seekPair, startJob, watchJob } from "./api.js";
import { forgetAssets, loadFrames, loadPair, mostCovered } from "./assets.js";
import { resetCamera } from "./camera.js";
import { hasAttention, putPoint, relightPoints } from "./points.js";
import { store } from "./store.js";

let stopWatching = () => {};
let attempt = 0; // number of the latest submission; responses to older ones are ignored
let continuing = false; // the job has the same input as the previous one
let shownKey = null; // pair and model that are shown or being loaded
let suggested = null; // the point that the page has put itself

// Submit an input: fields for the server, and a label. Nothing changes until the server has accepted
// it, because it may refuse.
export async function run(source) {
  const own = ++attempt;
  const { model, compare, iters, job: before } = store.state;
  store.set({ notice: null, asking: null, playing: false, sending: source.label });
  const settings = { iters, ...(model && { model }), ...(compare && { compare_model: compare }) };
  try {
    const started = await startJob({ ...source.fields, ...settings });
    if (own !== attempt) return void forgetJob(started.id).catch(() => {});
    stopWatching();
    if (before) forgetJob(before.id).catch(() => {}); // it is no longer needed
    forgetAssets();
    continuing = source === store.state.source;
    store.set({ source, pair: 0, iteration: null, stepFlow: null });
    stopWatching = watchJob(started.id, follow, fail);
  } catch (error) {
    if (own === attempt) fail(error);
  }
}

export const runAgain = () => store.state.source && run(store.state.source);

// Cancel the upload or the job. Finished pairs stay.
export function cancel() {
  const { sending, job } = store.state;
  if (sending) {
    attempt++;
    store.set({ sending: null });
  } else if (job) {
    forgetJob(job.id).catch(fail);
  }
}

const fail = (error) => store.set({ notice: error.message, sending: null });

function follow(job) {
  const fresh = store.state.job?.id !== job.id;
  const shown = job.models.includes(store.state.shown) ? store.state.shown : job.models[0];
  store.set({ job, shown });
  if (job.state === "failed") store.set({ notice: job.error });
  // Only now: the previous job keeps sending events while the next one is uploaded.
  if (fresh) {
    store.set({ sending: null });
    shownKey = null;
    showFrames(job);
  }
  showPair();
}

// Show the frames before the results.
async function showFrames(job) {
  const frames = await loadFrames(job, 0, job.models[0]).catch(() => null);
  const { job: now, assets } = store.state;
  if (frames && now?.id === job.id && assets?.job.id !== job.id) display(frames);
}

export const isReady = (job, pair) => job?.done_pairs?.includes(pair) ?? false;

// Go to a pair of a clip. If it is not ready, it is computed next.
export function goToPair(pair) {
  const { job } = store.state;
  store.set({ pair });
  if (job?.state === "running" && !isReady(job, pair)) seekPair(job.id, pair).catch(() => {});
  return showPair();
}

// Show the current pair and model, if they are ready and not shown already.
export async function showPair() {
  const { job, pair, shown } = store.state;
  const key = `${job?.id}/${pair}/${shown}`;
  if (!job || !shown || key === shownKey || !isReady(job, pair)) return;
  shownKey = key;
  try {
    const assets = await loadPair(job, pair, shown);
    if (key !== shownKey) return;
    display(assets);
  } catch (error) {
    shownKey = null;
    store.set({ notice: error.message });
  }
}

// The same input with other settings keeps points and camera; a new input resets them.
function display(assets) {
  const { assets: before } = store.state;
  const sameJob = before?.job.id === assets.job.id;
  const begins = !sameJob && !continuing;
  store.set({ assets, stepFlow: null, iteration: null, ...(begins && { points: [] }) });
  if (begins) resetCamera();
  const untouched = store.state.points.every(({ id, x, y }) => `${id}/${x}/${y}` === suggested);
  const sameMaps = sameJob && before.pair === assets.pair && before.model === assets.model;
  if (untouched && (begins || (before.partial && !assets.partial))) suggestPoint(assets);
  else if (!sameMaps) relightPoints();
}

// Put a first point: where does an occluded pixel, which cannot be matched, take its motion from?
function suggestPoint(assets) {
  const middle = { x: assets.width >> 1, y: assets.height >> 1 };
  const place = assets.partial ? middle : mostCovered(assets.values);
  if (!place || !hasAttention(store.state)) return;
  putPoint(place, false);
  const { id, x, y } = store.state.points.at(-1);
  suggested = `${id}/${x}/${y}`;
}
