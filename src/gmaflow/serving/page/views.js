// The views: what each is called, how it is drawn, what explains it.

import { make } from "./dom.js";
import { glowOf } from "./glow.js";
import { drawArrows, drawGlow, drawPicture, drawPoints, drawTargets } from "./layers.js";
import { hasAttention } from "./points.js";

const key = (...children) => make("span", { className: "key" }, ...children);
const swatch = (name, text) => key(make("i", { className: `swatch ${name}` }), text);
// Left out where a view is small.
const extra = (element) => Object.assign(element, { className: `${element.className} extra` });
const ramp = (name, low, high) => key(low, make("i", { className: `ramp ${name}` }), high);

// draw(brush, state): brush = { context, place, unit, main } of placeImage and CSS pixels.
export const VIEWS = [
  {
    id: "attention",
    title: "Frame 1 and attention",
    legend: [ramp("glow", "borrows little", "much"), extra(swatch("outlined", "covered"))],
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
    legend: ["arrows in proportion"],
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
    describe: () => "How far the flows of the two models are apart, dark for none to light for most",
    draw({ context, place, unit }, { assets, points }) {
      drawPicture(context, assets.difference, place, assets);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "warped",
    title: "Frame 1 | warped",
    tools: "swipe",
    describe: () => "Frame 1 beside frame 2 warped to it by the flow; a good flow makes them look alike",
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
    legend: [swatch("in-frame", "covered"), swatch("out-of-frame", "outside")],
    describe: () => "Frame 1 with a tint on what frame 2 does not show: covered, or out of the frame",
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
    describe: () => "Confidence in the flow of each pixel, dark for none to light for full",
    draw({ context, place, unit }, { assets, points }) {
      if (!assets.confidence) return;
      drawPicture(context, assets.confidence, place, assets);
      drawPoints(context, points, place, unit);
    },
  },
  {
    id: "frame2",
    title: "Frame 2",
    legend: ["ring: where a point went"],
    describe: () => "Frame 2, with a ring where each point went",
    draw({ context, place, unit }, { assets, points }) {
      drawPicture(context, assets.frame2, place, assets);
      drawTargets(context, points, place, unit, assets.values);
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
