// Jobs: start one, follow it, show its results.

import { forgetJob, seekPair, startJob, watchJob } from "./api.js";
import { forgetAssets, loadFrames, loadPair, mostCovered } from "./assets.js";
import { resetCamera } from "./camera.js";
import { hasAttention, putPoint, reloadAttention } from "./points.js";
import { moveMarks } from "./marks.js";
import { setIn, stateOf, store } from "./store.js";
import { refreshTrails, showFrame } from "./tracks.js";

// What the latest submission of each tab is: its number (responses to older ones are ignored), how to stop
// watching it, and whether it has the same input as the one before.
const latest = {
  flow: { attempt: 0, stopWatching() {}, continuing: false },
  tracks: { attempt: 0, stopWatching() {}, continuing: false },
};
let shownKey = null; // pair and model that are shown or being loaded
let suggested = null; // the point that the page has put itself

// Submit an input: fields for the server, and a label; in the tab of tracks also the frame to track from.
// Nothing changes until the server has accepted it, because it may refuse.
export async function run(source, reference = 0) {
  const { tab, model, compare, iters, job: before } = store.state;
  const submission = latest[tab];
  const attempt = ++submission.attempt;
  store.set({ notice: null, asking: null, playing: false, sending: source.label });
  const kind = tab === "tracks" ? { reference } : compare && { compare_model: compare };
  try {
    const started = await startJob({ ...source.fields, iters, ...(model && { model }), ...kind });
    if (attempt !== submission.attempt) return void forgetJob(started.id).catch(() => {});
    submission.stopWatching();
    if (before) forgetJob(before.id).catch(() => {}); // it is no longer needed
    submission.continuing = source === stateOf(tab).source;
    if (tab === "tracks") {
      prepareMarks(submission.continuing, reference);
      following = true;
    } else forgetAssets();
    setIn(tab, { source, pair: reference, iteration: null, stepFlow: null });
    submission.stopWatching = watchJob(started.id, (job) => follow(tab, job), (error) => fail(tab, error));
  } catch (error) {
    if (attempt === submission.attempt) fail(tab, error);
  }
}

// Marks of the same input move with it to another reference; a new input starts without marks.
function prepareMarks(continuing, reference) {
  const { marks, trails } = store.state;
  const size = stateOf("tracks").assets;
  const moves = continuing && trails && size && reference !== trails.reference;
  store.set({
    trails: null,
    marks: moves ? moveMarks(marks, trails, reference, size) : continuing ? marks : [],
  });
}

export const runAgain = () => {
  const { source, job } = store.state;
  if (source) run(source, job?.reference ?? 0);
};

// Track from the frame that is shown.
export function trackFromHere() {
  const { tab, source, job, pair } = store.state;
  if (tab === "tracks" && source && job && pair !== job.reference) run(source, pair);
}

// Cancel the upload or the job. Finished pairs stay.
export function cancel() {
  const { tab, sending, job } = store.state;
  if (sending) {
    latest[tab].attempt++;
    store.set({ sending: null });
  } else if (job) {
    forgetJob(job.id).catch((error) => fail(tab, error));
  }
}

const fail = (tab, error) => setIn(tab, { notice: error.message, sending: null });

function follow(tab, job) {
  const { job: before, shown: chosen } = stateOf(tab);
  const shown = job.models.includes(chosen) ? chosen : job.models[0];
  setIn(tab, { job, shown });
  if (job.state === "failed") setIn(tab, { notice: job.error });
  // Only now: the previous job keeps sending events while the next one is uploaded.
  if (before?.id !== job.id) setIn(tab, { sending: null });
  if (tab === store.state.tab) showJob(before);
}

// Update the current tab with what has changed in its job since the status `before`.
export function showJob(before = null) {
  const { tab, job, pair, assets } = store.state;
  if (!job) return;
  if (tab === "tracks") {
    showFrame(following ? newestFrame(job) : pair);
    if (before?.id !== job.id || before.tracked_frames.length < job.tracked_frames.length) refreshTrails();
    return;
  }
  if (assets?.job.id !== job.id && before?.id !== job.id) {
    shownKey = null;
    showFrames(job);
  }
  showPair();
}

let following = true; // in the tab of tracks: show each frame when it is tracked, until the user goes to another

// Frames before the reference are tracked first, from late to early.
function newestFrame({ reference, tracked_frames: frames }) {
  return frames.at(-1) > reference ? frames.at(-1) : frames[0] ?? reference;
}

// Show the frames before the results.
async function showFrames(job) {
  const frames = await loadFrames(job, 0, job.models[0]).catch(() => null);
  const { job: now, assets } = store.state;
  if (frames && now?.id === job.id && assets?.job.id !== job.id) display(frames); // not in another tab
}

export const isReady = (job, pair) => job?.done_pairs?.includes(pair) ?? false;

// Go to a pair or a frame of a clip. If the pair is not ready, it is computed next.
export function goToPair(pair) {
  const { job, tab } = store.state;
  if (tab === "tracks") {
    following = false;
    return showFrame(pair);
  }
  store.set({ pair });
  if (job?.state === "running" && !isReady(job, pair)) seekPair(job.id, pair).catch(() => {});
  return showPair();
}

// Show the current pair and model, if they are ready and not shown already.
export async function showPair() {
  const { job, pair, shown, tab } = store.state;
  const key = `${job?.id}/${pair}/${shown}`;
  if (tab !== "flow" || !job || !shown || key === shownKey || !isReady(job, pair)) return;
  shownKey = key;
  try {
    const assets = await loadPair(job, pair, shown);
    if (key !== shownKey || store.state.tab !== "flow") return;
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
  const isNewInput = !sameJob && !latest.flow.continuing;
  store.set({ assets, stepFlow: null, iteration: null, ...(isNewInput && { points: [] }) });
  if (isNewInput) resetCamera();
  const untouched = store.state.points.every(({ id, x, y }) => `${id}/${x}/${y}` === suggested);
  const sameMaps = sameJob && before.pair === assets.pair && before.model === assets.model;
  if (untouched && (isNewInput || (before.partial && !assets.partial))) suggestPoint(assets);
  else if (!sameMaps) reloadAttention();
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
