// From a source to results on the page: start a job, follow it, show its pairs.

import { forgetJob, seekPair, startJob, watchJob } from "./api.js";
import { forgetAssets, loadFrames, loadPair } from "./assets.js";
import { resetCamera } from "./camera.js";
import { mostCovered } from "./covered.js";
import { hasAttention, putPoint, relightPoints } from "./points.js";
import { store } from "./store.js";

let stopWatching = () => {};
let attempt = 0; // the number of what was sent last; answers to what was sent before are not wanted
let continuing = false; // the job has the same input as the one before
let shownKey = null; // of the pair and model that are shown or being loaded
let suggested = null; // the point that we put ourselves, and where

// Compute a source: fields for the server, and what to call it. Until the server has taken it,
// everything stays as it is: it may refuse.
export async function run(source) {
  const own = ++attempt;
  const { model, compare, iters, job: before } = store.state;
  store.set({ notice: null, asking: null, playing: false, sending: source.label });
  const settings = { iters, ...(model && { model }), ...(compare && { compare_model: compare }) };
  try {
    const started = await startJob({ ...source.fields, ...settings });
    if (own !== attempt) return void forgetJob(started.id).catch(() => {});
    stopWatching();
    if (before) forgetJob(before.id).catch(() => {}); // it takes time or memory, and is not wanted
    forgetAssets();
    continuing = source === store.state.source;
    store.set({ source, pair: 0, iteration: null, stepFlow: null });
    stopWatching = watchJob(started.id, follow, fail);
  } catch (error) {
    if (own === attempt) fail(error);
  }
}

export const runAgain = () => store.state.source && run(store.state.source);

// Cancel what is sent or computed. Pairs that are done stay.
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
  // Not before: a job that runs goes on telling of itself while the next is on its way.
  if (fresh) {
    store.set({ sending: null });
    shownKey = null;
    showFrames(job);
  }
  showPair();
}

// What is looked at can be seen before anything is known about it.
async function showFrames(job) {
  const frames = await loadFrames(job, 0, job.models[0]).catch(() => null);
  const { job: now, assets } = store.state;
  if (frames && now?.id === job.id && assets?.job.id !== job.id) display(frames);
}

export const isReady = (job, pair) => job?.done_pairs?.includes(pair) ?? false;

// Go to a pair of a clip. One that is not computed yet is asked for, and shown when it is.
export function goToPair(pair) {
  const { job } = store.state;
  store.set({ pair });
  if (job?.state === "running" && !isReady(job, pair)) seekPair(job.id, pair).catch(() => {});
  return showPair();
}

// Show the pair and model the state names, if they are there and not shown already.
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

// The same input with other settings keeps points and camera; a new one begins afresh.
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

// Begin with the question the page is about, until the reader asks one: where does a pixel that
// cannot be matched get its motion from?
function suggestPoint(assets) {
  const middle = { x: assets.width >> 1, y: assets.height >> 1 };
  const place = assets.partial ? middle : mostCovered(assets.values);
  if (!place || !hasAttention(store.state)) return;
  putPoint(place, false);
  const { id, x, y } = store.state.points.at(-1);
  suggested = `${id}/${x}/${y}`;
}
