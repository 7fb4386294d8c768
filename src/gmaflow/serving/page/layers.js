// Drawing on a view: picture, glow, arrows, points. `place` is the place of the image on its canvas
// (see placeImage); `unit` is one CSS pixel.

import { valueAt } from "./assets.js";
import { css } from "./points.js";

const INK = "rgb(12 14 20 / 0.85)";

export function drawPicture(context, picture, place, size) {
  // When zoomed in, show pixels as squares.
  context.imageSmoothingEnabled = place.scale < 4;
  context.imageSmoothingQuality = "high";
  const { left, top, scale } = place;
  context.drawImage(picture, left, top, size.width * scale, size.height * scale);
}

export function drawGlow(context, glow, place) {
  if (!glow) return;
  context.save();
  context.globalCompositeOperation = "screen"; // add light, do not cover the frame
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(
    glow.canvas,
    place.left + glow.x * place.scale,
    place.top + glow.y * place.scale,
    glow.width * place.scale,
    glow.height * place.scale,
  );
  context.restore();
}

const onScreen = (place, x, y) => [
  place.left + (x + 0.5) * place.scale,
  place.top + (y + 0.5) * place.scale,
];

// A ring at each point; with `values`, also an arrow to its target.
export function drawPoints(context, points, place, unit, values = null) {
  for (const { x, y, color } of points) {
    const start = onScreen(place, x, y);
    const value = valueAt(values, x, y);
    if (value) {
      const end = onScreen(place, x + value.u, y + value.v);
      strokeTwice(context, css(color), 2.2 * unit, () => traceArrow(context, start, end, 9 * unit));
    }
    ring(context, start, css(color), unit);
  }
}

// A ring at the target of each point in frame 2, dashed if the target is not visible.
export function drawTargets(context, points, place, unit, values) {
  context.save();
  for (const { x, y, color } of points) {
    const value = valueAt(values, x, y);
    if (!value) continue;
    context.setLineDash(value.occluded ? [3 * unit, 2.5 * unit] : []);
    ring(context, onScreen(place, x + value.u, y + value.v), css(color), unit);
  }
  context.restore();
}

export function drawCross(context, { x, y }, place, unit) {
  const [column, row] = onScreen(place, x, y);
  const [near, far] = [3 * unit, 9 * unit];
  strokeTwice(context, "white", 1.2 * unit, () => {
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      context.moveTo(column + dx * near, row + dy * near);
      context.lineTo(column + dx * far, row + dy * far);
    }
  });
}

// Arrows on a grid, scaled so that most fill the space to the next one.
export function drawArrows(context, values, place, unit, spacing) {
  if (!values) return;
  const step = (spacing * unit) / place.scale;
  const { canvas } = context;
  const from = (offset) => Math.max(0, Math.floor(-offset / place.scale / step)) * step + step / 2;
  const found = [];
  for (let y = from(place.top); place.top + y * place.scale < canvas.height; y += step) {
    for (let x = from(place.left); place.left + x * place.scale < canvas.width; x += step) {
      const value = valueAt(values, Math.floor(x), Math.floor(y));
      if (value) found.push({ ...value, x, y });
    }
  }
  const lengths = found.map((one) => one.length).sort((a, b) => a - b);
  const typical = lengths[Math.floor(0.9 * (lengths.length - 1))] || 1;
  const reach = (0.9 * spacing * unit) / typical;
  context.save();
  context.beginPath();
  context.rect(place.left, place.top, values.width * place.scale, values.height * place.scale);
  context.clip();
  strokeTwice(context, INK, 1.2 * unit, () => {
    for (const { x, y, u, v, length } of found) {
      const grow = Math.min(reach, (1.25 * spacing * unit) / Math.max(length, 1e-6));
      const start = [place.left + x * place.scale, place.top + y * place.scale];
      const end = [start[0] + u * grow, start[1] + v * grow];
      traceArrow(context, start, end, Math.min(4.5 * unit, 0.5 * length * grow));
    }
  }, "rgb(255 255 255 / 0.55)");
  context.restore();
}

function ring(context, [x, y], color, unit) {
  strokeTwice(context, color, 2.2 * unit, () => {
    context.moveTo(x + 5 * unit, y);
    context.arc(x, y, 5 * unit, 0, 2 * Math.PI);
  });
}

function traceArrow(context, start, end, head) {
  const angle = Math.atan2(end[1] - start[1], end[0] - start[0]);
  context.moveTo(...start);
  context.lineTo(...end);
  for (const side of [-1, 1]) {
    context.moveTo(...end);
    const back = angle + 0.5 * side;
    context.lineTo(end[0] - head * Math.cos(back), end[1] - head * Math.sin(back));
  }
}

// A dark line below a light one, or the other way round, is visible on any background.
function strokeTwice(context, color, width, trace, below = INK) {
  context.lineCap = context.lineJoin = "round";
  context.beginPath();
  trace();
  context.strokeStyle = below;
  context.lineWidth = 2 * width;
  context.stroke();
  context.strokeStyle = color;
  context.lineWidth = width;
  context.stroke();
}
