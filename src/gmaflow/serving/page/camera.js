// One camera for all views: which part of the image they show. It knows fractions of the image
// rather than pixels, so that views of different sizes stay together.

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

// Where an image lies on a canvas: `scale` canvas pixels for each of its own, its corner at
// (left, top). In image coordinates the first pixel spans 0 to 1, so its centre is at 0.5.
export function placeImage(canvas, image) {
  const scale = Math.min(canvas.width / image.width, canvas.height / image.height) * camera.zoom;
  return {
    scale,
    left: canvas.width / 2 - camera.x * image.width * scale,
    top: canvas.height / 2 - camera.y * image.height * scale,
  };
}
