// The state of the page. Read it from `store.state`, change it with `store.set`, and listen to changes
// with `store.on`.

export function createStore(initial) {
  const listeners = [];
  const state = { ...initial };
  return {
    state,
    set(patch) {
      const changed = Object.keys(patch).filter((key) => !Object.is(state[key], patch[key]));
      if (!changed.length) return;
      Object.assign(state, patch);
      for (const { keys, listener } of listeners) {
        if (!keys || keys.some((key) => changed.includes(key))) listener(state);
      }
    },
    // Call the listener when one of the keys changes (any, if keys is null).
    on(keys, listener) {
      listeners.push({ keys, listener });
    },
  };
}

export const store = createStore({
  models: [], // models of the server
  model: null, // the selected model
  compare: "", // the second model, or ""
  iters: 12,
  source: null, // { fields, label } of the input, sent again when a setting changes
  asking: null, // a sentence that asks the user for something
  sending: null, // the name of the upload under way
  job: null, // status of the job, from the server
  notice: null, // an error message
  shown: null, // the model whose results are shown
  pair: 0,
  assets: null, // results of the shown pair
  iteration: null, // the shown refinement; null for the final flow
  stepFlow: null, // its picture
  points: [],
  adding: false,
  solo: null, // the point whose attention is shown alone
  peek: null, // the same, while the pointer is on it in the list
  hover: null, // { x, y }: the pixel under the cursor, in all views
  main: "attention",
  arrows: true,
  veil: true, // outline occluded pixels in the attention view
  swipe: 0.5,
  blink: false,
  blinkPhase: false,
  playing: false,
});
