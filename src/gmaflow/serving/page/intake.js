// Input: images or a clip, picked, dropped or pasted.

import { byId } from "./dom.js";
import { run } from "./jobs.js";
import { store } from "./store.js";

let waiting = null; // a first image without a second
let ready = Promise.resolve(); // settles when the settings are known: a job is sent with them
let hasInput = false; // whether the user has chosen an input

// Browsers do not know the types of all images. A GIF is a clip.
const isImage = ({ name, type }) =>
  type !== "image/gif" && (type.startsWith("image/") || /\.(pgm|ppm|pnm|tiff?|exr)$/i.test(name));

// Start a job from files. The server checks their content.
function accept(files) {
  // File names give the order of frames; the order of a selection does not.
  files.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  if (files.length > 2 && files.every(isImage)) {
    waiting = null;
    run({ fields: { frames: files }, label: `${files[0].name} – ${files.at(-1).name}` });
  } else if (files.length > 2) {
    store.set({ notice: `Got ${files.length} files; open two or more images, or one video.` });
  } else if (files.length === 2) {
    startPair(...files);
  } else if (!isImage(files[0])) {
    waiting = null;
    run({ fields: { clip: files[0] }, label: files[0].name });
  } else if (waiting) {
    startPair(waiting, files[0]);
  } else {
    [waiting] = files;
    const asking = `${waiting.name} is frame 1. Now open frame 2.`;
    store.set({ notice: null, asking });
  }
}

function startPair(image1, image2) {
  waiting = null;
  run({ fields: { image1, image2 }, label: `${image1.name}, ${image2.name}` });
}

const whenReady = (act) => {
  hasInput = true;
  ready.catch(() => {}).then(act);
};

function startExample() {
  if (store.state.tab !== "flow") return; // it has only two frames
  waiting = null;
  run({ fields: { example: "1" }, label: "Built-in example" });
}

export const runExample = () => whenReady(startExample);

// Show the example, unless the user was faster.
export const beginWithExample = () => hasInput || startExample();

export const pickFiles = () => byId("files").click();

function take(files) {
  const all = [...files]; // the picker empties its own list
  if (all.length) whenReady(() => accept(all));
}

export function setUpIntake(settings) {
  ready = settings;
  const picker = byId("files");
  byId("open").addEventListener("click", pickFiles);
  byId("example").addEventListener("click", runExample);
  picker.addEventListener("change", () => {
    take(picker.files);
    picker.value = ""; // so that the same file can be picked again
  });
  document.addEventListener("paste", (event) => take(event.clipboardData.files));
  setUpDrop(byId("drop"));
}

function setUpDrop(curtain) {
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragenter", (event) => {
    if (carriesFiles(event)) curtain.hidden = false;
  });
  document.addEventListener("dragover", (event) => {
    if (carriesFiles(event)) event.preventDefault();
  });
  // relatedTarget is null only when the pointer leaves the window.
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) curtain.hidden = true;
  });
  document.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    curtain.hidden = true;
    take(event.dataTransfer.files);
  });
}
