// The value under the cursor, in numbers and as a dot on the colour wheel.

import { valueAt } from "./assets.js";
import { byId } from "./dom.js";
import { store } from "./store.js";
import { drawWheel } from "./wheel.js";

const SIZE = 160; // of the wheel's drawing, in pixels
const SEEN = ["visible", "covered", "outside"];

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);

// Words for what is known of a pixel. Angles turn from right over up.
export function inWords({ u, v, length, occluded, confidence }) {
  const angle = (Math.atan2(-v, u) * 180) / Math.PI;
  return {
    motion: `${signed(u)}, ${signed(v)}`,
    length: `${length.toFixed(1)} px`,
    angle: length < 0.05 ? "–" : `${Math.round((angle + 360) % 360)}°`,
    seen: SEEN[occluded],
    confidence: `${Math.round(100 * confidence)} %`,
  };
}

function show({ assets, hover, points }) {
  const at = hover ?? points.at(-1);
  const value = at && assets ? valueAt(assets.values, at.x, at.y) : null;
  const words = value ? { ...inWords(value), pixel: `${at.x}, ${at.y}` } : {};
  const other = value && valueAt(assets.otherValues, at.x, at.y);
  if (other) words.difference = `${Math.hypot(value.u - other.u, value.v - other.v).toFixed(1)} px`;
  for (const cell of byId("values").querySelectorAll("[data-value]")) {
    cell.textContent = words[cell.dataset.value] ?? "–";
  }
  byId("difference-row").hidden = !assets?.otherValues;
  byId("wheel-text").textContent = assets?.rim ? `rim: ${assets.rim.toPrecision(3)} px` : "rim: –";
  drawDot(value, assets?.rim);
}

// Tell a screen reader what is at a pixel.
export function speak({ x, y }) {
  const value = valueAt(store.state.assets?.values, x, y);
  const words = value && inWords(value);
  const known = words ? `: ${words.motion}, ${words.length}, ${words.seen}` : "";
  byId("spoken").textContent = `Pixel ${x}, ${y}${known}`;
}

let disc = null;

function drawDot(value, rim) {
  const canvas = byId("wheel");
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, SIZE, SIZE);
  context.drawImage(disc, 0, 0);
  if (!value || !rim) return;
  const scale = (SIZE / 2 - 8) / Math.max(rim, value.length);
  context.beginPath();
  context.arc(SIZE / 2 + value.u * scale, SIZE / 2 + value.v * scale, 6, 0, 2 * Math.PI);
  context.fillStyle = "#10131a";
  context.fill();
  context.lineWidth = 2.5;
  context.strokeStyle = "white";
  context.stroke();
}

export function setUpInspector() {
  disc = new OffscreenCanvas(SIZE, SIZE);
  drawWheel(disc);
  const canvas = byId("wheel");
  canvas.width = canvas.height = SIZE;
  drawDot(null, null);
  store.on(["hover", "assets", "points"], show);
}
