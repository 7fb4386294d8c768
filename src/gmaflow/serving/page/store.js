// The state of the page. Read it from `store.state`, change it with `store.set`, and listen to changes
// with `store.on`.

function createStore(initial) {
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

// State of each tab: its input, its job, and the results on screen.
const TAB_DEFAULTS = {
  source: null, // { fields, label } of the input, sent again when a setting changes
  asking: null, // a sentence that asks the user for something
  sending: null, // the name of the upload under way
  job: null, // status of the job, from the server
  notice: null, // an error message
  shown: null, // the model whose results are shown
  pair: 0, // the shown pair of a clip; of tracks, the shown frame
  assets: null, // results of the shown pair or frame
  iteration: null, // the shown refinement; null for the final flow
  stepFlow: null, // its picture
  points: [],
  playing: false,
};
const MAIN = { flow: "attention", tracks: "trails" }; // the view that is large at first

const tabStates = Object.fromEntries(Object.entries(MAIN).map(([tab, main]) => [tab, { ...TAB_DEFAULTS, main }]));

export const store = createStore({
  ...tabStates.flow,
  tab: "flow",
  models: [], // models of the server
  model: null, // the selected model
  compare: "", // the second model, or ""
  iters: 12,
  adding: false,
  solo: null, // the point whose attention is shown alone
  peek: null, // the same, while the pointer is on it in the list
  hover: null, // { x, y }: the pixel under the cursor, in all views
  arrows: true,
  veil: true, // outline occluded pixels in the attention view
  swipe: 0.5,
  blink: false,
  blinkPhase: false,
  marks: [], // points and boxes whose tracks are shown
  tool: "point", // what a click in the tracks makes: a point, or the corner of a box
  trails: null, // the tracks of the marks
});

// The state of a tab, and a change of it, whether the tab is shown or not.
export const stateOf = (tab) => (tab === store.state.tab ? store.state : tabStates[tab]);
export const setIn = (tab, patch) =>
  tab === store.state.tab ? store.set(patch) : void Object.assign(tabStates[tab], patch);

export function switchTab(tab) {
  const { state } = store;
  if (tab === state.tab) return;
  for (const key of Object.keys(tabStates[state.tab])) tabStates[state.tab][key] = state[key];
  store.set({ hover: null, ...tabStates[tab], playing: false, tab });
}
