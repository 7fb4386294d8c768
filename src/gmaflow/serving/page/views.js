// The views: title, legend, description and drawing of each.

import { fetchOrigin } from "./api.js";
import { byId, make } from "./dom.js";
import { drawArrows, drawGlow, drawPicture, drawPoints, drawTargets } from "./layers.js";
import { dragMark, putMark } from "./marks.js";
import { glowOf, hasAttention } from "./points.js";
import { store } from "./store.js";
import { countSeen } from "./tracks.js";
import { drawBoxes, drawDimmed, drawNote, drawTrails } from "./trails.js";

const key = (...children) => make("span", { className: "key" }, ...children);
const swatch = (name, text) => key(make("i", { className: `swatch ${name}` }), text);
// Hidden in small views.
const extra = (element) => Object.assign(element, { className: `${element.className} extra` });
const ramp = (name, low, high) => key(low, make("i", { className: `ramp ${name}` }), high);

// Marks are points of the reference frame. A click on another frame looks up which of them is there.
const onReference = ({ assets }) => assets.number === assets.job.reference;
async function tapTrails(pixel) {
  const { assets: { job, number }, tool } = store.state;
  if (onReference(store.state)) return putMark(pixel);
  if (tool === "box") return store.set({ asking: `Draw boxes on frame ${job.reference + 1}, or track from here.` });
  try {
    putMark(await fetchOrigin(job, number, pixel));
  } catch (error) {
    store.set({ asking: error.message });
  }
}
const unknown = ({ tracked }) => (tracked ? "Unknown here: beyond a cut, or too little is visible" : "Not tracked yet");

// draw(brush, state): brush = { context, place, unit, main } of placeImage and CSS pixels.
export const VIEWS = [
  {
    id: "attention",
    title: "Frame 1 and attention",
    legend: [ramp("glow", "low attention", "high"), extra(swatch("outlined", "occluded"))],
    describe: ({ points: { length } }) =>
      length ? `Frame 1, with the attention of ${length} point${length > 1 ? "s" : ""} as a glow` : "Frame 1",
    draw({ context, place, unit }, state) {
      const { assets, points } = state;
      const glow = hasAttention(state) ? glowOf(points, state.peek ?? state.solo) : null;
      drawPicture(context, glow ? assets.dusk : assets.frame1, place, assets);
      drawGlow(context, glow, place);
      if (state.veil && assets.outline) drawPicture(context, assets.outline, place, assets);
      drawPoints(context, points, place, unit, assets.values);
    },
  },
  {
    id: "flow",
    title: "Flow",
    legend: ["arrows: relative length"],
    describe: ({ assets }) =>
      `Flow as colours and arrows${assets.rim ? `; the longest motion is ${assets.rim.toFixed(1)} pixels` : ""}`,
    draw({ context, place, unit, main }, { assets, points, arrows, stepFlow }) {
      const picture = stepFlow ?? assets.flow;
      if (!picture) return;
      drawPicture(context, picture, place, assets);
      if (arrows && !stepFlow) drawArrows(context, assets.values, place, unit, main ? 34 : 24);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "other",
    title: "Flow, other model",
    legend: ["on the same scale"],
    compared: true,
    describe: ({ assets }) => `Flow of ${assets?.other} as colours and arrows, on the same scale`,
    draw({ context, place, unit, main }, { assets, points, arrows }) {
      drawPicture(context, assets.otherFlow, place, assets);
      if (arrows) drawArrows(context, assets.otherValues, place, unit, main ? 34 : 24);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "difference",
    title: "Difference",
    compared: true,
    legend: [ramp("ember", "none", "most")],
    describe: () => "Distance between the flows of the two models, from dark (none) to light (largest)",
    draw({ context, place, unit }, { assets, points }) {
      drawPicture(context, assets.difference, place, assets);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "warped",
    title: "Frame 1 | warped",
    tools: "swipe",
    describe: () => "Frame 1 next to frame 2 warped back by the flow; with a correct flow they look alike",
    draw({ context, place, unit }, { assets, points, swipe, blink, blinkPhase }) {
      const warped = (!blink || blinkPhase) && assets.warped;
      drawPicture(context, warped || assets.frame1, place, assets);
      if (!blink && warped) drawLeftPart(context, assets, place, unit, swipe);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "hidden",
    title: "Hidden pixels",
    legend: [swatch("in-frame", "occluded"), swatch("out-of-frame", "outside")],
    describe: () => "Frame 1 with a tint on pixels that are not visible in frame 2: occluded, or out of the frame",
    draw({ context, place, unit }, { assets, points }) {
      if (!assets.occlusion) return;
      drawPicture(context, assets.frame1, place, assets);
      drawPicture(context, assets.occlusion, place, assets);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "confidence",
    title: "Confidence",
    legend: [ramp("reef", "none", "full")],
    describe: () => "Confidence of the flow at each pixel, from dark (none) to light (full)",
    draw({ context, place, unit }, { assets, points }) {
      if (!assets.confidence) return;
      drawPicture(context, assets.confidence, place, assets);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "frame2",
    title: "Frame 2",
    legend: ["ring: target of a point"],
    describe: () => "Frame 2, with a ring at the target of each point",
    draw({ context, place, unit }, { assets, points }) {
      drawPicture(context, assets.frame2, place, assets);
      drawTargets(context, points, place, unit, assets.values);
    },
  },
  {
    id: "trails",
    tab: "tracks",
    title: "Trails",
    legend: [
      key(make("i", { className: "stroke" }), "visible"),
      key(make("i", { className: "stroke dotted" }), "hidden"),
      key(make("i", { className: "hollow" }), "hidden now"),
    ],
    tap: tapTrails,
    drag: (pixel, near) => (onReference(store.state) ? dragMark(pixel, near) : null),
    describe({ assets, trails }) {
      const { visible, hidden } = countSeen(trails, assets.number);
      return `Frame ${assets.number + 1} with the trails of its points: ${visible} visible, ${hidden} hidden`;
    },
    draw({ context, place, unit }, { assets, marks, trails }) {
      drawPicture(context, assets.frame, place, assets);
      drawDimmed(context, place, assets);
      drawTrails(context, trails, assets.number, { place, unit, size: assets });
      if (onReference({ assets })) drawBoxes(context, marks, place, unit);
    },
  },
  {
    id: "still",
    tab: "tracks",
    title: "Camera held still",
    legend: ["seen from the reference frame"],
    tap: putMark,
    drag: dragMark,
    describe: ({ assets: { number, still } }) =>
      `Frame ${number + 1} as if the camera had not moved since the reference frame${still ? "" : ": unknown"}`,
    draw({ context, place, unit }, { assets, marks, trails }) {
      drawPicture(context, assets.still ?? assets.frame, place, assets);
      drawDimmed(context, place, assets, assets.still ? 0.25 : 0.75);
      if (!assets.still) return drawNote(context, unknown(assets), unit);
      drawTrails(context, trails, assets.number, { place, unit, size: assets, still: true });
      drawBoxes(context, marks, place, unit);
    },
  },
  {
    id: "moving",
    tab: "tracks",
    title: "Moved by itself",
    legend: ["in colour: moves by itself"],
    tap: putMark,
    drag: dragMark,
    describe: ({ assets: { number, moving } }) =>
      `The reference frame; what has moved by itself until frame ${number + 1} is in colour${moving ? "" : ": unknown"}`,
    draw({ context, place, unit }, { assets, marks }) {
      drawPicture(context, assets.moving ?? assets.frame, place, assets);
      if (!assets.moving || !assets.still) {
        drawDimmed(context, place, assets, 0.75);
        return drawNote(context, unknown(assets), unit);
      }
      drawBoxes(context, marks, place, unit);
    },
  },
];

function drawLeftPart(context, assets, place, unit, swipe) {
  const { width, height } = context.canvas;
  const edge = swipe * width;
  context.save();
  context.beginPath();
  context.rect(0, 0, edge, height);
  context.clip();
  drawPicture(context, assets.frame1, place, assets);
  context.restore();
  context.fillStyle = "rgb(12 14 20 / 0.6)";
  context.fillRect(edge - 1.5 * unit, 0, 3 * unit, height);
  context.fillStyle = "white";
  context.fillRect(edge - 0.5 * unit, 0, unit, height);
}

// Swipe: the slider and the blinking of the warped view.

const PERIOD = 450; // milliseconds per picture while blinking

let blinkTimer = null;

export function toggleBlink() {
  const blink = !store.state.blink;
  clearInterval(blinkTimer);
  if (blink) blinkTimer = setInterval(() => store.set({ blinkPhase: !store.state.blinkPhase }), PERIOD);
  store.set({ blink, blinkPhase: false });
}

export function setUpSwipe(view) {
  const slider = make("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0.5, id: "swipe" });
  slider.ariaLabel = "Edge between frame 1 and frame 2 warped";
  slider.addEventListener("input", () => store.set({ swipe: slider.valueAsNumber }));
  const blink = make("button", { type: "button", className: "button small", id: "blink" }, "Blink");
  blink.title = "Blink between the two (B)";
  blink.addEventListener("click", toggleBlink);
  view.tools.append(slider, blink);
  store.on(["swipe", "blink"], (state) => {
    slider.value = state.swipe;
    slider.disabled = state.blink;
    byId("blink").ariaPressed = String(state.blink);
  });
}
