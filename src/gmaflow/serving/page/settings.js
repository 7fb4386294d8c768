// Model, a second model beside it, number of refinements. A change computes the input again.

import { byId, make } from "./dom.js";
import { runAgain, showPair } from "./jobs.js";
import { store } from "./store.js";

const STEPS = [4, 8, 12, 16, 24, 32];

// What the page begins with: /?model=NAME&compare=NAME&iters=8&example=0 in the address, or the usual.
export function readAddress(models) {
  const asked = new URLSearchParams(location.search);
  const named = (key) => models.find(({ name }) => name === asked.get(key))?.name;
  const usual = models.find((model) => model.default) ?? models[0];
  const model = named("model") ?? usual?.name ?? null;
  const compare = named("compare") ?? "";
  const iters = Number(asked.get("iters"));
  return {
    settings: {
      model,
      compare: compare === model ? "" : compare,
      iters: Number.isInteger(iters) && iters > 0 ? iters : store.state.iters,
    },
    example: asked.get("example") !== "0",
  };
}

function showSteps({ iters }) {
  const steps = [...new Set([...STEPS, iters])].sort((a, b) => a - b);
  const choice = (step) => make("option", { value: step, selected: step === iters }, step);
  byId("iters").replaceChildren(...steps.map(choice));
}

function showModels({ models, model, compare }) {
  const choices = (list, chosen) =>
    list.map(({ name, title }) => make("option", { value: name, title, selected: name === chosen }, name));
  byId("model").replaceChildren(...choices(models, model));
  byId("compare-field").hidden = models.length < 2;
  const others = models.filter(({ name }) => name !== model);
  byId("compare").replaceChildren(make("option", { value: "" }, "none"), ...choices(others, compare));
}

// Choose a model. One that the job has computed already is shown at once.
function choose(model) {
  const { job, compare } = store.state;
  if (job?.models?.includes(model)) {
    const other = compare === model ? store.state.model : compare;
    store.set({ model, shown: model, compare: other });
    return showPair();
  }
  store.set({ model, shown: model, compare: compare === model ? "" : compare });
  return runAgain();
}

export function setUpSettings() {
  showSteps(store.state);
  byId("model").addEventListener("change", (event) => choose(event.target.value));
  byId("compare").addEventListener("change", (event) => {
    store.set({ compare: event.target.value });
    runAgain();
  });
  byId("iters").addEventListener("change", (event) => {
    store.set({ iters: Number(event.target.value) });
    runAgain();
  });
  store.on(["iters"], showSteps);
  store.on(["models", "model", "compare"], showModels);
}
