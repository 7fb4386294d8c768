// Model, a second model beside it, number of refinements. A change computes the input again.

import { byId, make } from "./dom.js";
import { runAgain, showPair } from "./jobs.js";
import { store } from "./store.js";

const STEPS = [4, 8, 12, 16, 24, 32];

function option(value, text, selected) {
  return make("option", { value, selected }, text);
}

function showModels({ models, model, compare }) {
  byId("model").replaceChildren(...models.map(({ name, title }) => Object.assign(option(name, name, name === model), { title: title ?? name })));
  byId("compare-field").hidden = models.length < 2;
  const others = models.filter(({ name }) => name !== model);
  byId("compare").replaceChildren(option("", "none", !compare), ...others.map(({ name }) => option(name, name, name === compare)));
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
  byId("iters").replaceChildren(...STEPS.map((step) => option(step, step, step === store.state.iters)));
  byId("model").addEventListener("change", (event) => choose(event.target.value));
  byId("compare").addEventListener("change", (event) => {
    store.set({ compare: event.target.value });
    runAgain();
  });
  byId("iters").addEventListener("change", (event) => {
    store.set({ iters: Number(event.target.value) });
    runAgain();
  });
  store.on(["models", "model", "compare"], showModels);
}
