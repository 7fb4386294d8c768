// Set up the page.

import { listModels, readVersion } from "./api.js";
import { onCamera, resetCamera } from "./camera.js";
import { byId } from "./dom.js";
import { setUpInspector } from "./inspector.js";
import { beginWithExample, setUpIntake } from "./intake.js";
import { setUpKeyboard } from "./keyboard.js";
import { setUpMarks } from "./marks.js";
import { setUpRefinement, setUpTimeline } from "./playback.js";
import { setUpPointList } from "./points.js";
import { store } from "./store.js";
import {
  openTab,
  readAddress,
  readSettings,
  setUpDownloads,
  setUpSettings,
  setUpStatus,
  setUpTabs,
  setUpTheme,
  showStatus,
} from "./toolbar.js";
import { setUpTracks } from "./tracks.js";
import { redraw, View } from "./view.js";
import { setUpSwipe, VIEWS } from "./views.js";

// State that the views depend on.
const DRAWN = [
  "assets", "points", "solo", "peek", "hover", "arrows", "veil", "swipe", "blink", "blinkPhase", "stepFlow",
  "marks", "trails",
];

const views = VIEWS.map((definition) => new View(definition));

// Views of the other tab, and those of a second model while there is none, are hidden.
const isHidden = ({ tab = "flow", compared }, state) =>
  tab !== state.tab || Boolean(compared && !state.assets?.other);

// The main view is large, the others are in the rail.
function arrange(state) {
  const { main } = state;
  const focused = document.activeElement;
  for (const { definition, element } of views) {
    element.hidden = isHidden(definition, state);
    const home = definition.id === main ? byId("main-view") : byId("rail");
    home.append(element);
  }
  byId("rail").append(byId("inspector"), byId("track-card"));
  focused.focus({ preventScroll: true }); // moving an element removes the focus
  redraw();
}

function showFlowTitle({ assets, iteration }) {
  const model = assets?.other ? `, ${assets.model}` : "";
  const { title } = views.find(({ definition }) => definition.id === "flow");
  title.textContent = `Flow${model}${iteration ? ` after ${iteration}` : ""}`;
}

function showAssets(state) {
  const { assets } = state;
  if (!assets) return;
  const root = document.documentElement;
  const aspect = assets.width / assets.height;
  root.style.setProperty("--aspect", String(aspect));
  root.dataset.shape = aspect > 2 ? "wide" : "usual";
  for (const { definition, element, title } of views) {
    element.hidden = isHidden(definition, state);
    if (definition.id === "other" && assets.other) title.textContent = `Flow, ${assets.other}`;
  }
  const gone = views.some(({ definition, element }) => element.hidden && definition.id === store.state.main);
  if (gone && state.tab === "flow") store.set({ main: "attention" });
}

// The settings of the address, for the models of the server.
async function chooseSettings() {
  const models = await listModels();
  store.set({ models, ...readSettings(models) });
}

async function start() {
  setUpTheme();
  setUpTabs();
  setUpStatus();
  setUpSettings();
  const { tab, example } = readAddress();
  const ready = chooseSettings();
  setUpIntake(ready);
  setUpInspector();
  setUpPointList();
  setUpMarks();
  setUpTracks();
  setUpRefinement();
  setUpTimeline();
  setUpDownloads();
  setUpKeyboard();
  setUpSwipe(views.find(({ definition }) => definition.tools === "swipe"));
  store.on(["main", "tab"], arrange);
  store.on(["assets"], showAssets);
  store.on(["assets", "iteration"], showFlowTitle);
  store.on(DRAWN, redraw);
  byId("fit").addEventListener("click", resetCamera);
  onCamera(({ zoom }) => (byId("zoom-text").textContent = `${Math.round(100 * zoom)} %`));
  arrange(store.state);

  if (tab !== store.state.tab) openTab(tab);
  else if (!example) showStatus();

  try {
    await ready;
    if (example) beginWithExample();
    const version = await readVersion();
    byId("version").textContent = ` · gmaflow ${version.gmaflow}, torch ${version.torch}`;
  } catch (error) {
    store.set({ notice: error.message });
  }
}

start();
