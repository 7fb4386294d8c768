// The slider through the refinements: how the flow forms.

import { loadStep } from "./assets.js";
import { byId, showPlaying } from "./dom.js";
import { store } from "./store.js";

const PACE = 250; // milliseconds for each refinement when played

let timer = null;

// The server keeps the refinements of two images, not those of a clip or where memory is short.
const hasSteps = (assets) => Boolean(assets && !assets.partial && assets.job.every_iteration);

// Show the flow after so many refinements; the last is the result itself.
export async function goToStep(wanted) {
  const { assets } = store.state;
  if (!hasSteps(assets)) return;
  const { iterations } = assets.job;
  const iteration = Math.min(Math.max(wanted, 1), iterations);
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
    else timer = setTimeout(next, PACE, step + 1);
  };
  timer = setTimeout(next, 0, 1);
}

let forming = false;

// While a pair is computed, show its flow as it forms.
async function form({ job, assets }) {
  if (forming || !assets?.partial || assets.job.id !== job?.id || !job.every_iteration) return;
  const step = Math.round(job.progress * job.models.length * job.iterations);
  if (step < 1 || step >= job.iterations) return;
  forming = true;
  const stepFlow = await loadStep(assets, step).catch(() => null); // it may be gone: a new job
  forming = false;
  if (stepFlow && store.state.assets === assets) store.set({ stepFlow, iteration: step });
}

function show(state) {
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
  store.on(["iteration", "assets", "iters"], show);
  show(store.state);
  store.on(["job", "assets"], form);
}
