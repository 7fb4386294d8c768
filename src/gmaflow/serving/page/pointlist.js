// The points as a list below the large view, with what is known of each.

import { valueAt } from "./assets.js";
import { byId, icon, make } from "./dom.js";
import { inWords } from "./inspector.js";
import { css, hasAttention, removePoint } from "./points.js";
import { store } from "./store.js";

function item(point, { assets, solo }) {
  const value = valueAt(assets?.values, point.x, point.y);
  const words = value && inWords(value);
  const dot = make("i", { className: "dot" });
  dot.style.background = css(point.color);
  const choose = make(
    "button", { type: "button", className: "choose" },
    dot, make("span", { className: "where" }, `${point.x}, ${point.y}`),
    make("span", { className: "soft" }, words ? `${words.length}, ${words.angle}` : ""),
    value?.occluded ? make("span", { className: "tag" }, words.seen) : "",
  );
  choose.ariaPressed = String(solo === point.id);
  choose.addEventListener("click", () => store.set({ solo: solo === point.id ? null : point.id }));
  const remove = make("button", { type: "button", className: "button square plain" }, icon("close"));
  remove.ariaLabel = `Remove the point at ${point.x}, ${point.y}`;
  remove.addEventListener("click", () => removePoint(point.id));
  const element = make("li", { className: "point" }, choose, remove);
  if (point.map) {
    const percent = (100 * point.map.largest).toPrecision(2);
    element.title = `The 8 x 8 pixels it borrows most from give ${percent} %`;
  }
  element.addEventListener("pointerenter", () => store.set({ peek: point.id }));
  element.addEventListener("pointerleave", () => store.set({ peek: null }));
  return element;
}

function show(state) {
  const { points, assets } = state;
  const list = byId("points");
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.replaceChildren(...points.map((point) => item(point, state)));
  list.querySelectorAll("button")[focused]?.focus(); // it was replaced by one like it
  const hint = byId("hint");
  hint.hidden = points.length > 0;
  hint.textContent = hasAttention(state) || !assets
    ? "Click a pixel: the glow shows where it borrows its motion from."
    : `${state.shown} has no attention: a click shows the motion of a pixel.`;
  byId("add").ariaPressed = String(state.adding);
  byId("add").disabled = !points.length;
}

export function setUpPointList() {
  byId("add").addEventListener("click", () => store.set({ adding: !store.state.adding }));
  store.on(["points", "assets", "adding", "shown", "solo"], show);
  show(store.state);
}
