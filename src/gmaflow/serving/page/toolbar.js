// The bar at the top: settings, downloads, theme; and the status line below it.

import { pairUrl, tracksUrl, zipUrl } from "./api.js";
import { byId, make } from "./dom.js";
import { cancel, run, runAgain, showJob, showPair } from "./jobs.js";
import { chosenPoints } from "./marks.js";
import { store, switchTab } from "./store.js";

// Tabs: flow between two frames, or tracks through a clip.

export const TABS = ["flow", "tracks"];

// A tab without an input takes the clip of the other, unless one is being sent.
export function openTab(tab) {
  if (tab === store.state.tab) return;
  const { source } = store.state;
  switchTab(tab);
  if (store.state.source) showJob();
  else if (!store.state.sending && (source?.fields.clip || source?.fields.frames)) run(source);
  else showStatus();
}

function showTab({ tab }) {
  root.dataset.tab = tab;
  for (const name of TABS) {
    const button = byId(`tab-${name}`);
    button.ariaSelected = String(name === tab);
    button.tabIndex = name === tab ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${tab}`);
  byId("invite").textContent = tab === "flow" ? "Drop two images or a video here" : "Drop a video or its frames here";
}

export function setUpTabs() {
  for (const name of TABS) {
    const button = byId(`tab-${name}`);
    const other = TABS.find((one) => one !== name);
    button.addEventListener("click", () => openTab(name));
    button.addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.preventDefault();
      openTab(other);
      byId(`tab-${other}`).focus();
    });
  }
  store.on(["tab"], showTab);
  showTab(store.state);
}

// Settings: model, second model, number of refinements. A change computes the input again.

const STEPS = [4, 8, 12, 16, 24, 32];

// Initial settings come from the URL (/?tab=tracks&model=NAME&compare=NAME&iters=8&example=0), otherwise from the defaults.
const params = new URLSearchParams(location.search);

export const readAddress = () => ({
  tab: TABS.includes(params.get("tab")) ? params.get("tab") : "flow",
  example: params.get("example") !== "0",
});

export function readSettings(models) {
  const named = (key) => models.find(({ name }) => name === params.get(key))?.name;
  const defaultModel = models.find((model) => model.default) ?? models[0];
  const model = named("model") ?? defaultModel?.name ?? null;
  const compare = named("compare") ?? "";
  const iters = Number(params.get("iters"));
  return {
    model,
    compare: compare === model ? "" : compare,
    iters: Number.isInteger(iters) && iters > 0 ? iters : store.state.iters,
  };
}

function showSteps({ iters }) {
  const steps = [...new Set([...STEPS, iters])].sort((a, b) => a - b);
  const choice = (step) => make("option", { value: step, selected: step === iters }, step);
  byId("iters").replaceChildren(...steps.map(choice));
}

function showModels({ models, model, compare, tab }) {
  const choices = (list, chosen) =>
    list.map(({ name, title }) => make("option", { value: name, title, selected: name === chosen }, name));
  byId("model").replaceChildren(...choices(models, model));
  byId("compare-field").hidden = models.length < 2 || tab === "tracks";
  const others = models.filter(({ name }) => name !== model);
  byId("compare").replaceChildren(make("option", { value: "" }, "none"), ...choices(others, compare));
}

// Choose a model. Results that the job already has are shown at once.
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
  store.on(["models", "model", "compare", "tab"], showModels);
}

// Downloads: the menu of all files.

const FILES = [
  ["flow.flo", "flow.flo", "Flow, .flo"],
  ["flow.npz", "flow.npz", "Flow and hidden pixels, .npz"],
  ["flow.png16", "flow.kitti.png", "Flow, KITTI .png"],
  ["flow", "flow-picture.png", "Flow as a picture"],
  ["panel", "panel.png", "All views as one figure"],
];

function link(href, name, text) {
  return make("a", { href, download: name, className: "menu-item" }, text);
}

const TRACK_FILES = [
  ["tracks.npz", "Tracks, .npz"],
  ["tracks.csv", "Tracks, .csv"],
  ["trails.mp4", "Video with trails, .mp4"],
];

function showDownloads({ tab, assets, job, marks }) {
  const over = ["done", "cancelled", "failed"].includes(job?.state) && job.tracked_frames.length > 1;
  const ready = Boolean(assets && (tab === "tracks" ? over : !assets.partial));
  byId("save").disabled = !ready;
  if (!ready) return;
  if (tab === "tracks") {
    const points = chosenPoints(marks);
    const files = TRACK_FILES.map(([name, text]) => link(tracksUrl(job, points, name), name, text));
    byId("save-menu").replaceChildren(...files, pictureItem());
    return;
  }
  const url = (view) => pairUrl(assets.job, assets.pair, assets.model, view);
  const files = FILES.map(([view, name, text]) => link(url(view), name, text));
  const zip = link(zipUrl(assets.job), "gmaflow.zip", "Everything, .zip");
  byId("save-menu").replaceChildren(...files, pictureItem(), ...(job?.state === "done" ? [zip] : []));
}

function pictureItem() {
  const picture = make("button", { type: "button", className: "menu-item" }, "Large view as shown");
  picture.addEventListener("click", savePicture);
  return picture;
}

// Save the canvas of the large view, with its glow and arrows.
function savePicture() {
  document.querySelector("#main-view canvas").toBlob((blob) => {
    const href = URL.createObjectURL(blob);
    link(href, `${store.state.main}.png`, "").click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
  });
}

export function setUpDownloads() {
  const [button, menu] = [byId("save"), byId("save-menu")];
  menu.addEventListener("toggle", (event) => {
    if (event.newState !== "open") return;
    const box = button.getBoundingClientRect();
    menu.style.top = `${box.bottom + 6}px`;
    // Below the button, but never beyond either edge of a narrow window.
    const width = document.documentElement.clientWidth;
    const most = width - menu.offsetWidth - 8;
    menu.style.right = `${Math.max(Math.min(width - box.right, most), 8)}px`;
  });
  menu.addEventListener("click", () => menu.hidePopover());
  store.on(["job", "assets", "marks", "tab"], showDownloads);
}

// Theme: dark or light as the system prefers, until the user chooses.

const KEY = "gmaflow-theme";
const root = document.documentElement;

export function toggleTheme() {
  const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const now = root.dataset.theme ?? preferred;
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, root.dataset.theme);
}

export function setUpTheme() {
  const chosen = localStorage.getItem(KEY);
  if (chosen) root.dataset.theme = chosen;
  byId("theme").addEventListener("click", toggleTheme);
}

// Status line: what is being computed, what failed, or what is shown.

const ASKING = {
  flow: "Drop, paste or open two images or a video.",
  tracks: "Drop, paste or open a video or its frames, to track points through it.",
};

function sentence({ notice, asking, sending, job, source, tab }) {
  if (notice) return notice;
  if (asking) return asking;
  if (sending) return `Sending ${sending}`;
  if (!job) return ASKING[tab];
  if (job.state === "queued" && job.position > 0 && !job.progress) return `Waiting: number ${job.position} in the queue`;
  if (["queued", "running"].includes(job.state)) return capitalized(job.step);
  return summary(job, source);
}

const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function summary(job, source) {
  const parts = [
    source?.label,
    job.models?.join(" and "),
    `${job.width} x ${job.height}`,
    counted(job.iterations, "refinement"),
    job.reference !== null
      ? `${counted(job.tracked_frames.length, "frame")} tracked from frame ${job.reference + 1}`
      : job.pairs > 1 && `${job.pairs} pairs`,
    job.state === "cancelled" ? "cancelled" : `${job.seconds.toFixed(1)} s`,
    ...job.notes,
  ];
  return parts.filter(Boolean).join(" · ");
}

function showStatusLine(state) {
  const { notice, asking, sending, job } = state;
  const busy = Boolean(sending || ["queued", "running"].includes(job?.state));
  const status = byId("status");
  status.dataset.state = notice ? "error" : asking ? "asking" : busy ? "busy" : "idle";
  const text = byId("status-text");
  text.setAttribute("role", notice ? "alert" : "status");
  text.textContent = text.title = sentence(state); // the title shows text that is cut off
  byId("invite").hidden = busy || Boolean(state.assets);
  byId("cancel").hidden = !busy;
  const meter = byId("meter");
  const percent = Math.round(100 * (sending ? 0 : job?.progress ?? 0));
  meter.ariaValueNow = String(percent);
  meter.ariaHidden = String(!busy);
  meter.querySelector("i").style.inlineSize = `${busy ? percent : 0}%`;
}

export const showStatus = () => showStatusLine(store.state);

export function setUpStatus() {
  byId("cancel").addEventListener("click", cancel);
  store.on(["notice", "asking", "sending", "job", "source", "assets", "tab"], showStatusLine);
}
