// Dark or light: what the system prefers, until the reader chooses otherwise.

import { byId } from "./dom.js";

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
