// Playback: the timeline of a clip, and the slider through the refinements.

import { loadPair, loadStep } from "./assets.js";
import { byId, showPlaying } from "./dom.js";
import { goToPair, isReady, trackFromHere } from "./jobs.js";
import { store } from "./store.js";
import { loadFrame } from "./tracks.js";

// Timeline: play a clip, go to a pair or a frame, see which of them are ready.

const PAIR_PACE = 160; // shortest time per pair in milliseconds
const AHEAD = 3; // frames that are loaded in advance

const tracks = (job) => (job?.reference ?? null) !== null;
const stepsOf = (job) => (tracks(job) ? job.frames : job?.kind === "clip" ? job.pairs : 0);

let turn = 0; // number of the current playback; older ones stop

export function togglePlay() {
  const { job, pair, playing } = store.state;
  const steps = stepsOf(job);
  if (!steps) return;
  turn++;
  store.set({ playing: !playing });
  if (playing) return;
  if (tracks(job)) playFrames(turn);
  else play(pair + 1 < steps ? pair + 1 : 0, turn);
}

// Play the frames that are tracked, at the speed of the clip, again and again.
async function playFrames(thisTurn) {
  while (store.state.playing && thisTurn === turn) {
    const { job, pair } = store.state;
    const [low, high] = job.tracked_frames.length > 1
      ? [job.tracked_frames[0], job.tracked_frames.at(-1)]
      : [0, job.frames - 1];
    const pause = new Promise((resume) => setTimeout(resume, 1000 / job.fps));
    const next = pair >= high || pair < low ? low : pair + 1;
    for (let ahead = 1; ahead <= AHEAD && next + ahead <= high; ahead++) {
      loadFrame(job, next + ahead).catch(() => {});
    }
    await goToPair(next);
    await pause;
  }
}

async function play(first, thisTurn) {
  for (let pair = first; store.state.playing && thisTurn === turn; ) {
    const { job, shown } = store.state;
    if (pair >= job.pairs || (job.state !== "running" && !isReady(job, pair))) break;
    const pause = new Promise((resume) => setTimeout(resume, PAIR_PACE));
    if (isReady(job, pair)) {
      await goToPair(pair++);
      if (isReady(job, pair)) loadPair(job, pair, shown).catch(() => {});
    }
    await pause;
  }
  if (thisTurn === turn) store.set({ playing: false });
}

export const stepPair = (by) => {
  const { job, pair } = store.state;
  const steps = stepsOf(job);
  if (steps) goToPair(Math.min(Math.max(pair + by, 0), steps - 1));
};

function showTimeline({ job, pair, playing, sending }) {
  const steps = stepsOf(job);
  byId("timeline").hidden = !steps;
  byId("from-here").disabled = !tracks(job) || pair === job.reference || Boolean(sending);
  if (!steps) return;
  const slider = byId("pair");
  slider.max = steps - 1;
  slider.value = pair;
  slider.ariaLabel = tracks(job) ? "Frame" : "Pair of frames";
  const state = tracks(job) || isReady(job, pair) ? `of ${steps}` : "(computing)";
  byId("pair-text").textContent = `${tracks(job) ? "frame" : "pair"} ${pair + 1} ${state}`;
  showPlaying(byId("play"), playing, "the clip");
  drawReady(byId("ready"), job);
}

// The steps that are ready, and the reference of tracks.
function drawReady(canvas, job) {
  canvas.width = stepsOf(job);
  canvas.height = 1;
  const context = canvas.getContext("2d");
  const { color, outlineColor } = getComputedStyle(canvas);
  context.fillStyle = color;
  (tracks(job) ? job.tracked_frames : job.done_pairs ?? []).forEach((step) => context.fillRect(step, 0, 1, 1));
  context.fillStyle = outlineColor;
  if (tracks(job)) context.fillRect(job.reference, 0, 1, 1);
}

export function setUpTimeline() {
  byId("play").addEventListener("click", togglePlay);
  byId("pair").addEventListener("input", (event) => {
    store.set({ playing: false });
    goToPair(event.target.valueAsNumber);
  });
  byId("from-here").addEventListener("click", trackFromHere);
  store.on(["job", "pair", "playing", "sending", "tab"], showTimeline);
}

// Refinements: the flow after each of them.

const STEP_PACE = 250; // milliseconds per refinement

let timer = null;

// The server keeps the refinements of two images, but not of a clip, nor if memory is short.
const hasSteps = (assets) => Boolean(assets && !assets.partial && assets.job.every_iteration);

// Show the flow after some refinements; the last is the final flow.
export async function goToStep(target) {
  const { assets } = store.state;
  if (!hasSteps(assets)) return;
  const { iterations } = assets.job;
  const iteration = Math.min(Math.max(target, 1), iterations);
  if (iteration === iterations) {
    store.set({ iteration: null, stepFlow: null });
    return;
  }
  store.set({ iteration });
  try {
    const stepFlow = await loadStep(assets, iteration);
    if (store.state.iteration === iteration && store.state.assets === assets) store.set({ stepFlow });
  } catch (error) {
    stop();
    store.set({ notice: error.message });
  }
}

export const currentStep = ({ iteration, assets }) => iteration ?? assets?.job.iterations ?? 1;

function stop() {
  clearTimeout(timer);
  timer = null;
  showPlaying(byId("form"), false, "the refinements");
}

export function playSteps() {
  if (timer !== null) return stop();
  if (!hasSteps(store.state.assets)) return;
  showPlaying(byId("form"), true, "the refinements");
  const next = async (step) => {
    await goToStep(step);
    if (timer === null) return;
    if (step >= store.state.assets.job.iterations) stop();
    else timer = setTimeout(next, STEP_PACE, step + 1);
  };
  timer = setTimeout(next, 0, 1);
}

let forming = false;

// While a pair is computed, show its flow after the latest refinement.
async function form({ job, assets }) {
  if (forming || !assets?.partial || assets.job.id !== job?.id || !job.every_iteration) return;
  const step = Math.round(job.progress * job.models.length * job.iterations);
  if (step < 1 || step >= job.iterations) return;
  forming = true;
  const stepFlow = await loadStep(assets, step).catch(() => null); // the job may be deleted by now
  forming = false;
  if (stepFlow && store.state.assets === assets) store.set({ stepFlow, iteration: step });
}

function showRefinement(state) {
  const last = state.assets?.job.iterations ?? state.iters;
  const step = state.assets ? currentStep(state) : last;
  const slider = byId("iteration");
  slider.max = last;
  slider.value = step;
  slider.disabled = byId("form").disabled = !hasSteps(state.assets);
  byId("iteration-text").textContent = `${step} of ${last}`;
}

export function setUpRefinement() {
  byId("iteration").addEventListener("input", (event) => {
    stop();
    goToStep(event.target.valueAsNumber);
  });
  byId("form").addEventListener("click", playSteps);
  store.on(["iteration", "assets", "iters"], showRefinement);
  showRefinement(store.state);
  store.on(["job", "assets"], form);
}
