// One camera for all views: the part of the image that they show, and the gestures that move it.
// Positions are fractions of the image, because views differ in size.

const CLOSEST = 32;

export const camera = { zoom: 1, x: 0.5, y: 0.5 };

const listeners = [];
export const onCamera = (listener) => listeners.push(listener);
const changed = () => listeners.forEach((listener) => listener(camera));

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function moveTo(x, y) {
  const margin = 0.5 / camera.zoom;
  camera.x = clamp(x, margin, 1 - margin);
  camera.y = clamp(y, margin, 1 - margin);
  changed();
}

// Zoom by a factor; the point of the image at (x, y), in fractions, stays where it is on screen.
export function zoomAt(factor, x = camera.x, y = camera.y) {
  const zoom = clamp(camera.zoom * factor, 1, CLOSEST);
  const ratio = camera.zoom / zoom;
  camera.zoom = zoom;
  moveTo(x + (camera.x - x) * ratio, y + (camera.y - y) * ratio);
}

export const pan = (dx, dy) => moveTo(camera.x + dx, camera.y + dy);

export function resetCamera() {
  camera.zoom = 1;
  moveTo(0.5, 0.5);
}

// The place of an image on a canvas: `scale` canvas pixels per image pixel, corner at (left, top).
// In image coordinates the first pixel spans 0 to 1; its centre is at 0.5.
export function placeImage(canvas, image) {
  const scale = Math.min(canvas.width / image.width, canvas.height / image.height) * camera.zoom;
  return {
    scale,
    left: canvas.width / 2 - camera.x * image.width * scale,
    top: canvas.height / 2 - camera.y * image.height * scale,
  };
}

// Gestures: wheel, drag and pinch move the camera; a click without a drag is a tap.

const SLOP = 5; // a smaller movement, in CSS pixels, still counts as a click

// Listen on a canvas. `locate(event)` gives the place in fractions of the image and the size of the
// image on screen; `grab(place)` may take over the drag and return a function to call on each move.
export function attachGestures(canvas, { locate, onHover, onTap, grab }) {
  const pointers = new Map();
  let moved = 0;
  let carry = null;

  canvas.addEventListener("wheel", (event) => {
    const factor = Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002));
    if (factor < 1 && camera.zoom === 1) return; // cannot zoom out further: let the page scroll
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
    const wasDown = pointers.delete(event.pointerId);
    if (wasDown && !pointers.size && moved <= SLOP && !carry && event.type === "pointerup") {
      onTap(locate(event), event.shiftKey);
    }
    if (!pointers.size) carry = null;
  }
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => onHover(null));
}
