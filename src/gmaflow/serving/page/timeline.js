// The timeline of a clip: play, go to a pair, see which are computed.

import { loadPair } from "./assets.js";
import { byId, showPlaying } from "./dom.js";
import { goToPair, isReady } from "./jobs.js";
import { store } from "./store.js";

const PACE = 160; // milliseconds for each pair at least; loading may take longer

let turn = 0; // which play this is: one that was stopped must not go on when the next begins

export function togglePlay() {
  const { job, pair, playing } = store.state;
  if (job?.kind !== "clip") return;
  turn++;
  store.set({ playing: !playing });
  if (!playing) play(pair + 1 < job.pairs ? pair + 1 : 0, turn);
}

async function play(first, own) {
  for (let pair = first; store.state.playing && own === turn; ) {
    const { job, shown } = store.state;
    if (pair >= job.pairs || (job.state !== "running" && !isReady(job, pair))) break;
    const pause = new Promise((resume) => setTimeout(resume, PACE));
    if (isReady(job, pair)) {
      await goToPair(pair++);
      if (isReady(job, pair)) loadPair(job, pair, shown).catch(() => {});
    }
    await pause;
  }
  if (own === turn) store.set({ playing: false });
}

export const stepPair = (by) => {
  const { job, pair } = store.state;
  if (job?.kind === "clip") goToPair(Math.min(Math.max(pair + by, 0), job.pairs - 1));
};

function show({ job, pair, playing }) {
  const clip = job?.kind === "clip" && job.pairs > 0;
  byId("timeline").hidden = !clip;
  if (!clip) return;
  const slider = byId("pair");
  slider.max = job.pairs - 1;
  slider.value = pair;
  const state = isReady(job, pair) ? `of ${job.pairs}` : "is coming";
  byId("pair-text").textContent = `pair ${pair + 1} ${state}`;
  showPlaying(byId("play"), playing, "the clip");
  drawReady(byId("ready"), job);
}

function drawReady(canvas, { pairs, done_pairs: done = [] }) {
  canvas.width = pairs;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  done.forEach((pair) => context.fillRect(pair, 0, 1, 1));
}

export function setUpTimeline() {
  byId("play").addEventListener("click", togglePlay);
  byId("pair").addEventListener("input", (event) => {
    store.set({ playing: false });
    goToPair(event.target.valueAsNumber);
  });
  store.on(["job", "pair", "playing"], show);
}
