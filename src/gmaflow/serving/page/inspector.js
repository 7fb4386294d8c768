// The inspector: values under the cursor, as numbers and as a dot on the colour wheel.

import { valueAt } from "./assets.js";
import { byId } from "./dom.js";
import { store } from "./store.js";

const SIZE = 160; // of the wheel, in pixels
const VISIBILITY = ["visible", "occluded", "out of frame"];

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(1);

// The values of a pixel as text. Angles are counterclockwise from the right.
export function inWords({ u, v, length, occluded, confidence }) {
  const angle = (Math.atan2(-v, u) * 180) / Math.PI;
  return {
    motion: `${signed(u)}, ${signed(v)}`,
    length: `${length.toFixed(1)} px`,
    angle: length < 0.05 ? "–" : `${Math.round(angle + 360) % 360}°`,
    seen: VISIBILITY[occluded],
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

// Announce the values of a pixel to screen readers.
export function announce({ x, y }) {
  const value = valueAt(store.state.assets?.values, x, y);
  const words = value && inWords(value);
  const description = words ? `: ${words.motion}, ${words.length}, ${words.seen}` : "";
  byId("spoken").textContent = `Pixel ${x}, ${y}${description}`;
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

// The Middlebury colour wheel, the same as on the server.

const ARCS = [
  [15, [255, 0, 0], [255, 255, 0]],
  [6, [255, 255, 0], [0, 255, 0]],
  [4, [0, 255, 0], [0, 255, 255]],
  [11, [0, 255, 255], [0, 0, 255]],
  [13, [0, 0, 255], [255, 0, 255]],
  [6, [255, 0, 255], [255, 0, 0]],
];
const HUES = ARCS.flatMap(([count, start, end]) =>
  Array.from({ length: count }, (_, step) =>
    start.map((from, c) => from + Math.sign(end[c] - from) * Math.floor((255 * step) / count)),
  ),
);

// The colour of a motion, where length 1 has full colour, as three numbers from 0 to 255.
export function motionColor(u, v) {
  const length = Math.hypot(u, v);
  // Adding 0 turns -0 into 0; they are on different sides of the seam of the wheel.
  const place = ((Math.atan2(-(v + 0), -u) / Math.PI + 1) * (HUES.length - 1)) / 2;
  const index = Math.floor(place);
  const [low, high] = [HUES[index], HUES[(index + 1) % HUES.length]];
  return low.map((from, c) => {
    const hue = from + (place - index) * (high[c] - from);
    return Math.round(length > 1.00001 ? 0.75 * hue : 255 - length * (255 - hue));
  });
}

// Draw the wheel on a square canvas.
function drawWheel(canvas) {
  const size = canvas.width;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(size, size);
  const radius = size / 2;
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      const [x, y] = [column - (size - 1) / 2, row - (size - 1) / 2];
      const length = Math.hypot(x, y);
      const stretch = 1 / Math.max(length, radius);
      const edge = Math.min(Math.max(radius - length + 0.5, 0), 1);
      const color = motionColor(x * stretch, y * stretch);
      picture.data.set([...color, 255 * edge], 4 * (row * size + column));
    }
  }
  context.putImageData(picture, 0, 0);
}
