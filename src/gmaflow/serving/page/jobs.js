// From a source to results on the page: start a job, follow it, show its pairs.

import { forgetJob, seekPair, startJob, watchJob } from "./api.js";
import { forgetAssets, loadFrames, loadPair, mostHidden } from "./assets.js";
import { resetCamera } from "./camera.js";
import { hasAttention, putPoint, relightPoints } from "./points.js";
import { store } from "./store.js";

let stopWatching = () => {};
let attempt = 0;

// Compute a source: fields for the server, and what to call it. Until the server has taken it,
// everything stays as it is: it may refuse.
export async function run(source) {
  const own = ++attempt;
  const { model, compare, iters, job: before } = store.state;
  store.set({ notice: null, playing: false, sending: source.label });
  const settings = { iters, ...(model && { model }), ...(compare && { compare_model: compare }) };
  try {
    const started = await startJob({ ...source.fields, ...settings });
    if (own !== attempt) return void forgetJob(started.id).catch(() => {});
    stopWatching();
    if (before) forgetJob(before.id).catch(() => {}); // it takes time or memory, and is not wanted
    forgetAssets();
    store.set({ source, pair: 0, iteration: null, stepFlow: null });
    stopWatching = watchJob(started.id, (now) => follow(now, own), fail);
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

function follow(job, own) {
  if (own !== attempt) return;
  const fresh = store.state.job?.id !== job.id;
  const shown = job.models.includes(store.state.shown) ? store.state.shown : job.models[0];
  store.set({ job, shown, sending: null, notice: job.state === "failed" ? job.error : null });
  if (fresh) {
    shownKey = null;
    showFrames(job);
  }
  showPair();
}

// What is looked at can be seen before anything is known about it.
async function showFrames(job) {
  const frames = await loadFrames(job, 0, job.models[0]).catch(() => null);
  const { job: now, assets } = store.state;
  if (frames && now?.id === job.id && assets?.job.id !== job.id) {
    store.set({ assets: frames, points: [] });
    resetCamera();
  }
}

export const isReady = (job, pair) => job?.done_pairs?.includes(pair) ?? false;

// Go to a pair of a clip. One that is not computed yet is asked for, and shown when it is.
export function goToPair(pair) {
  const { job } = store.state;
  store.set({ pair });
  if (job?.state === "running" && !isReady(job, pair)) seekPair(job.id, pair).catch(() => {});
  return showPair();
}

let shownKey = null;

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

function display(assets) {
  const { assets: before, points } = store.state;
  const known = before?.job.id === assets.job.id;
  store.set({ assets, stepFlow: null, iteration: null });
  if (!known) resetCamera();
  if (known && points.length) return relightPoints();
  if (known && !before.partial) return;
  // Begin with the question the page is about: a pixel that cannot be matched.
  store.set({ points: [] });
  const start = hasAttention(store.state) ? mostHidden(assets.values) : null;
  if (start) putPoint(start, false);
}
