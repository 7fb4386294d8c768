// Dark or light: what the system prefers, until the reader chooses otherwise.

import { byId } from "./dom.js";

const KEY = "gmaflow-theme";
const root = document.documentElement;

export function toggleTheme() {
  const dark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem(KEY, root.dataset.theme);
}

export function setUpTheme() {
  const chosen = localStorage.getItem(KEY);
  if (chosen) root.dataset.theme = chosen;
  byId("theme").addEventListener("click", toggleTheme);
}
