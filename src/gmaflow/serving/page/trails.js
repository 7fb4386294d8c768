// Drawing trails over a frame: where points came from. Stretches on which a point is hidden are dotted, and
// a point that is hidden now is a ring.

import { isBox } from "./marks.js";
import { css } from "./points.js";

const LENGTH = 12; // frames that a trail goes back
const LONGEST_GUESS = 16; // where a hidden point jumps by more than this part of the shorter side: nothing
const INK = "rgb(12 14 20 / 0.65)";

// `still`: draw where points are with the camera held still.
export function drawTrails(context, trails, frame, { place, unit, size, still = false }) {
  if (!trails) return;
  const spot = (number, point) => {
    const found = trails.at(number, point);
    const [x, y] = still ? [found.stillX, found.stillY] : [found.x, found.y];
    return { x: place.left + (x + 0.5) * place.scale, y: place.top + (y + 0.5) * place.scale, seen: found.visible };
  };
  // Thinner where there are many trails or little room.
  const room = Math.min(Math.max(context.canvas.width / unit / 720, 0.6), 1);
  const thick = unit * room * (trails.count > 100 ? 1.5 : 2.2);
  const longest = (place.scale * Math.min(size.width, size.height)) / LONGEST_GUESS;
  context.save();
  context.beginPath();
  context.rect(place.left, place.top, size.width * place.scale, size.height * place.scale);
  context.clip();
  context.lineCap = "round";
  const first = Math.max(0, frame - LENGTH);
  for (let point = 0; point < trails.count; point++) {
    const color = trails.colors[point];
    let from = spot(first, point);
    for (let number = first + 1; number <= frame; number++) {
      const to = spot(number, point);
      const share = (number - first) / Math.max(1, frame - first);
      const width = thick * (0.35 + 0.65 * share);
      const visible = from.seen && to.seen;
      if (visible || Math.hypot(to.x - from.x, to.y - from.y) < longest) {
        context.setLineDash(visible ? [] : [0, 2.6 * width]);
        context.strokeStyle = css(color, 0.15 + 0.85 * share);
        context.lineWidth = width;
        context.beginPath();
        context.moveTo(from.x, from.y);
        context.lineTo(to.x, to.y);
        context.stroke(); // nothing where a position is NaN
      }
      from = to;
    }
  }
  context.setLineDash([]);
  for (let point = 0; point < trails.count; point++) drawHead(context, spot(frame, point), trails.colors[point], thick);
  context.restore();
}

function drawHead(context, { x, y, seen }, color, thick) {
  if (!Number.isFinite(x)) return;
  context.beginPath();
  context.arc(x, y, 1.7 * thick, 0, 2 * Math.PI);
  if (seen) {
    context.lineWidth = thick;
    context.strokeStyle = INK;
    context.stroke();
    context.fillStyle = css(color);
    context.fill();
  } else {
    context.lineWidth = 0.6 * thick;
    context.strokeStyle = css(color, 0.75);
    context.stroke();
  }
}

// The boxes that were drawn, on the reference frame.
export function drawBoxes(context, marks, place, unit) {
  for (const { x, y, width, height } of marks.filter(isBox)) {
    const box = [place.left + x * place.scale, place.top + y * place.scale, width * place.scale, height * place.scale];
    for (const [color, line] of [[INK, 3], ["white", 1.2]]) {
      context.strokeStyle = color;
      context.lineWidth = line * unit;
      context.strokeRect(...box);
    }
  }
}

// A darker picture, on which trails stand out.
export function drawDimmed(context, place, size, strength = 0.25) {
  context.fillStyle = `rgb(0 0 0 / ${strength})`;
  context.fillRect(place.left, place.top, size.width * place.scale, size.height * place.scale);
}

// A sentence in the middle of a picture.
export function drawNote(context, text, unit) {
  const { width, height } = context.canvas;
  context.font = `${13 * unit}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = "white";
  context.fillText(text, width / 2, height / 2, 0.9 * width);
}
