// Keyboard shortcuts, and the help dialog made from the same table.

import { resetCamera, zoomAt } from "./camera.js";
import { byId, make } from "./dom.js";
import { pickFiles, runExample } from "./intake.js";
import { cancel, trackFromHere } from "./jobs.js";
import { chooseTool, clearMarks } from "./marks.js";
import { currentStep, goToStep, playSteps, stepPair, togglePlay } from "./playback.js";
import { clearPoints } from "./points.js";
import { store } from "./store.js";
import { openTab, TABS, toggleTheme } from "./toolbar.js";
import { toggleBlink, VIEWS } from "./views.js";

const DIGITS = VIEWS.filter(({ tab }) => !tab).map((_, i) => String(i + 1));
const other = () => TABS.find((tab) => tab !== store.state.tab);
const flip = (key) => () => store.set({ [key]: !store.state[key] });
const step = (by) => () => goToStep(currentStep(store.state) + by);

const KEYS = [
  { keys: ["o"], text: "Open two images or a video", act: pickFiles },
  { keys: ["e"], text: "Open the built-in example", act: runExample, tab: "flow" },
  { keys: ["w"], text: "Flow or tracks", act: () => openTab(other()) },
  { keys: DIGITS, shown: `1 – ${DIGITS.at(-1)}`, text: "Enlarge a view", act: enlarge },
  { keys: [","], text: "Previous refinement", act: step(-1), tab: "flow" },
  { keys: ["."], text: "Next refinement", act: step(1), tab: "flow" },
  { keys: ["f"], text: "Play the refinements", act: playSteps, tab: "flow" },
  { keys: ["b"], text: "Blink between frame 1 and frame 2 warped", act: toggleBlink, tab: "flow" },
  { keys: ["a"], text: "Show or hide arrows", act: flip("arrows"), tab: "flow" },
  { keys: ["h"], text: "Show or hide the outline of occluded pixels", act: flip("veil"), tab: "flow" },
  { keys: ["p"], text: "Tracks: a click makes a point", act: () => chooseTool("point"), tab: "tracks" },
  { keys: ["b"], text: "Tracks: draw a box", act: () => chooseTool("box"), tab: "tracks" },
  { keys: ["r"], text: "Tracks: track from the shown frame", act: trackFromHere, tab: "tracks" },
  { keys: ["+", "="], shown: "+", text: "Zoom in", act: () => zoomAt(1.5) },
  { keys: ["-"], text: "Zoom out", act: () => zoomAt(1 / 1.5) },
  { keys: ["0"], text: "Show the whole image", act: resetCamera },
  { keys: ["c"], text: "Remove all points", act: () => (store.state.tab === "flow" ? clearPoints() : clearMarks()) },
  { keys: [" "], shown: "Space", text: "Play a clip", act: togglePlay },
  { keys: ["["], text: "Previous pair or frame of a clip", act: () => stepPair(-1) },
  { keys: ["]"], text: "Next pair or frame of a clip", act: () => stepPair(1) },
  { keys: ["x"], text: "Cancel the computation", act: cancelIfBusy },
  { keys: ["t"], text: "Light or dark", act: toggleTheme },
  { keys: ["?"], text: "This help", act: showHelp },
];

// Actions of the pointer, and of keys while a view has the focus.
const ELSEWHERE = [
  ["Click", "Move the last point here"],
  ["Shift click", "Add a point"],
  ["Drag a point", "Move it"],
  ["A point's name", "Show only its attention, or all"],
  ["Wheel, pinch", "Zoom all views"],
  ["Drag", "Pan all views"],
  ["Arrow keys", "Move the cursor in a focused view (Shift: far, Alt: pan)"],
  ["Enter", "Put a point at the cursor (Shift: add)"],
];

function enlarge(key) {
  const { tab, assets } = store.state;
  const visibleViews = VIEWS.filter((view) => (view.tab ?? "flow") === tab && (!view.compared || assets?.other));
  const view = visibleViews[Number(key) - 1];
  if (view) store.set({ main: view.id });
}

function cancelIfBusy() {
  if (!byId("cancel").hidden) cancel();
}

function showHelp() {
  const dialog = byId("help-dialog");
  if (!dialog.open) dialog.showModal();
}

function helpRow([name, text]) {
  return make("div", {}, make("dt", {}, make("kbd", {}, name)), make("dd", {}, text));
}

// Keys that the focused element uses itself.
function isTaken(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open) return true;
  if (target.closest("select, input:not([type=range])")) return true;
  return key === " " && Boolean(target.closest("button, a"));
}

export function setUpKeyboard() {
  byId("help").addEventListener("click", showHelp);
  document.addEventListener("keydown", (event) => {
    if (isTaken(event)) return;
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const here = ({ tab = store.state.tab }) => tab === store.state.tab;
    const entry = KEYS.find((one) => here(one) && one.keys.includes(pressed));
    if (!entry) return;
    event.preventDefault();
    entry.act(pressed);
  });
  const ours = KEYS.map(({ keys, shown, text }) => [shown ?? keys[0].toUpperCase(), text]);
  byId("keys").append(...[...ELSEWHERE, ...ours].map(helpRow));
}
