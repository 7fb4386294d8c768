// The results of a job that tracks: pictures of its frames, and the trails of the marks.

import { fetchImage, fetchTracks, frameUrl } from "./api.js";
import { resetCamera } from "./camera.js";
import { byId } from "./dom.js";
import { chosenPoints, colorOf } from "./marks.js";
import { store } from "./store.js";

const CACHE_PIXELS = 120e6; // of all cached pictures, 4 bytes each

const cache = new Map(); // address -> promise of a picture
let cachedJob = null;

function load(job, number, view) {
  if (cachedJob !== job.id) {
    cache.clear();
    cachedJob = job.id;
  }
  const url = frameUrl(job, number, view);
  if (!cache.has(url)) {
    const loading = fetchImage(url);
    loading.catch(() => cache.delete(url));
    cache.set(url, loading);
    const most = Math.max(12, CACHE_PIXELS / (job.width * job.height));
    if (cache.size > most) cache.delete(cache.keys().next().value);
  }
  return cache.get(url);
}

const isTracked = (job, number) => job?.tracked_frames?.includes(number) ?? false;

// All pictures of a frame. Those of the camera and of moving things exist once it is tracked, and not
// beyond a cut.
export async function loadFrame(job, number) {
  const tracked = isTracked(job, number);
  const views = tracked ? ["still", "moving"] : [];
  const [frame, still = null, moving = null] = await Promise.all([
    load(job, number, "frame"),
    ...views.map((view) => load(job, number, view).catch(() => null)),
  ]);
  return { job, number, tracked, frame, still, moving, width: frame.width, height: frame.height };
}

let shownKey = null; // the frame that is shown or being loaded

// Show a frame and everything that is known of it.
export async function showFrame(number) {
  const { job, assets } = store.state;
  const key = `${job.id}/${number}/${isTracked(job, number)}`;
  store.set({ pair: number });
  if (key === shownKey && assets?.job.id === job.id) return;
  shownKey = key;
  try {
    const loaded = await loadFrame(job, number);
    if (key !== shownKey) return;
    if (store.state.job?.id !== job.id) return void (shownKey = null); // in another tab: load it again later
    const isNewJob = store.state.assets?.job.id !== job.id;
    store.set({ assets: loaded });
    if (isNewJob && store.state.source !== framed) resetCamera();
    framed = store.state.source;
  } catch (error) {
    shownKey = null;
    complain(job, error);
  }
}

// Between two jobs, the old one is deleted but still shown; its errors do not matter.
function complain({ id }, { message }) {
  const { job, sending } = store.state;
  if (job?.id === id && !sending) store.set({ notice: message });
}

let framed = null; // the input that the camera was last reset for

// Trails: x, y, visibility, confidence, and x, y with the camera held still, for each frame and point.
export class Trails {
  constructor(job, { data, frames, count }) {
    Object.assign(this, { data, frames, count, reference: job.reference });
    this.colors = Array.from({ length: count }, (_, k) => colorOf(this.at(job.reference, k), job));
  }

  at(frame, point) {
    const [x, y, visible, confidence, stillX, stillY] = this.data.subarray(
      6 * (frame * this.count + point), 6 * (frame * this.count + point + 1));
    return { x, y, visible: visible > 0, confidence, stillX, stillY };
  }
}

let fetching = false;
let again = false;

// Fetch the trails of the marks. What changes meanwhile is fetched afterwards, so that requests do not
// pile up.
export async function refreshTrails() {
  const { job, marks, tab } = store.state;
  if (tab !== "tracks" || !job?.tracked_frames?.length) return;
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const tracks = await fetchTracks(job, chosenPoints(marks));
    if (store.state.job?.id === job.id) store.set({ trails: new Trails(job, tracks) });
  } catch (error) {
    complain(job, error);
  }
  fetching = false;
  if (again) {
    again = false;
    refreshTrails();
  }
}

// Of the points in a frame: how many are visible, how many are hidden, and the mean confidence.
export function countSeen(trails, frame) {
  let [visible, known, sum] = [0, 0, 0];
  for (let k = 0; trails && k < trails.count; k++) {
    const { x, visible: seen, confidence } = trails.at(frame, k);
    known += Number.isFinite(x);
    visible += seen;
    sum += seen ? confidence : 0;
  }
  return { visible, hidden: known - visible, confidence: sum / visible };
}

function showCounts({ tab, trails, pair, job }) {
  if (tab !== "tracks") return;
  const { visible, hidden, confidence } = countSeen(trails, pair);
  const words = {
    points: trails ? String(trails.count) : "–",
    reference: job ? `frame ${job.reference + 1}` : "–",
    visible: trails ? String(visible) : "–",
    hidden: trails ? String(hidden) : "–",
    confidence: visible ? `${Math.round(100 * confidence)} %` : "–",
  };
  for (const cell of byId("track-values").querySelectorAll("[data-track]")) {
    cell.textContent = words[cell.dataset.track];
  }
}

export function setUpTracks() {
  store.on(["marks"], refreshTrails);
  store.on(["trails", "pair", "job", "tab"], showCounts);
}
