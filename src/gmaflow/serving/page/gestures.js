// Wheel, drag and pinch move the camera; a click without a drag is a tap; the rest is hovering.

import { camera, pan, zoomAt } from "./camera.js";

const SLOP = 5; // a hand is not still: moving this little, in CSS pixels, is a click

// Listen on a canvas. `locate(event)` gives the place in fractions of the image and the size of the
// image on screen; `grab(place)` may take the drag and return a function that is told of each move.
export function attachGestures(canvas, { locate, onHover, onTap, grab }) {
  const pointers = new Map();
  let moved = 0;
  let carry = null;

  canvas.addEventListener("wheel", (event) => {
    const factor = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002));
    if (factor < 1 && camera.zoom === 1) return; // nothing left to zoom out: let the page scroll
    event.preventDefault();
    const place = locate(event);
    zoomAt(factor, place.x, place.y);
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    if (pointers.size > 1) {
      carry = null;
      return;
    }
    moved = 0;
    carry = grab(locate(event));
  });

  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    const place = locate(event);
    onHover(place);
    if (!before) return;
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    moved += Math.hypot(dx, dy);
    if (pointers.size === 2) pinch(event, place);
    else if (carry) carry(place);
    else if (moved > SLOP) pan(-dx / place.width, -dy / place.height);
    pointers.set(event.pointerId, event);
  });

  function pinch(event, place) {
    const other = [...pointers.values()].find((one) => one.pointerId !== event.pointerId);
    const before = pointers.get(event.pointerId);
    const gap = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    const middle = locate({
      clientX: (event.clientX + other.clientX) / 2,
      clientY: (event.clientY + other.clientY) / 2,
    });
    zoomAt(gap(event) / Math.max(gap(before), 1), middle.x, middle.y);
    pan(
      -(event.clientX - before.clientX) / 2 / place.width,
      -(event.clientY - before.clientY) / 2 / place.height,
    );
  }

  function release(event) {
    const known = pointers.delete(event.pointerId);
    if (known && !pointers.size && moved <= SLOP && !carry && event.type === "pointerup") {
      onTap(locate(event), event.shiftKey);
    }
    if (!pointers.size) carry = null;
  }
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => onHover(null));
}
