// The state of the page in one place. Parts read `store.state`, change it with `store.set`, and are
// told of changes by `store.on`.

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
  models: [], // what the server offers
  model: null, // asked for
  compare: "", // the second model asked for, or ""
  iters: 12,
  source: null, // { fields, label }: what to send again when a setting changes
  asking: null, // a sentence that asks for something
  sending: null, // the name of what is on its way to the server
  job: null, // the server's account of the job
  notice: null, // a sentence of the server or ours that something went wrong
  shown: null, // the model whose results are shown
  pair: 0,
  assets: null, // everything of the shown pair
  iteration: null, // the refinement shown; null is the last
  stepFlow: null, // its picture
  points: [],
  adding: false,
  solo: null, // the point whose attention alone is shown, by choice
  peek: null, // the same, while the cursor is over it in the list
  hover: null, // { x, y }: the pixel under the cursor, in all views
  main: "attention",
  arrows: true,
  veil: true, // hidden pixels tinted over the attention view
  swipe: 0.5,
  blink: false,
  blinkPhase: false,
  playing: false,
});
