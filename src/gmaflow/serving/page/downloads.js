// The menu of everything that can be saved.

import { pairUrl, zipUrl } from "./api.js";
import { byId, make } from "./dom.js";
import { store } from "./store.js";

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

function show({ assets, job }) {
  const ready = Boolean(assets && !assets.partial);
  byId("save").disabled = !ready;
  if (!ready) return;
  const url = (view) => pairUrl(assets.job, assets.pair, assets.model, view);
  const files = FILES.map(([view, name, text]) => link(url(view), name, text));
  const picture = make("button", { type: "button", className: "menu-item" }, "The large view, as it is");
  picture.addEventListener("click", savePicture);
  const zip = link(zipUrl(assets.job), "gmaflow.zip", "Everything, .zip");
  byId("save-menu").replaceChildren(...files, picture, ...(job?.state === "done" ? [zip] : []));
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
    menu.style.right = `${Math.max(document.documentElement.clientWidth - box.right, 8)}px`;
  });
  menu.addEventListener("click", () => menu.hidePopover());
  store.on(["job", "assets"], show);
}
