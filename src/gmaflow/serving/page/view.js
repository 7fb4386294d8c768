// One view on the page: a figure with a canvas that follows the camera and the state.

import { attachGestures, camera, onCamera, pan, placeImage } from "./camera.js";
import { announce } from "./inspector.js";
import { drawCross } from "./layers.js";
import { movePoint, putPoint } from "./points.js";
import { store } from "./store.js";

const NEAR = 12; // CSS pixels: a drag that starts this close to a point or the swipe edge moves it
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const all = [];
let scheduled = false;

// Draw all views once before the next animation frame.
export function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    all.forEach((view) => view.draw());
  });
}
onCamera(redraw);

export class View {
  constructor(definition) {
    const template = document.getElementById("view-template");
    this.definition = definition;
    this.element = template.content.cloneNode(true).querySelector("figure");
    this.element.id = `view-${definition.id}`;
    this.canvas = this.element.querySelector("canvas");
    this.title = this.element.querySelector("h2");
    this.title.textContent = this.canvas.ariaLabel = definition.title;
    this.element.querySelector(".legend").append(...(definition.legend ?? []));
    this.tools = this.element.querySelector(".view-tools");
    this.enlarge = this.element.querySelector(".enlarge");
    this.enlarge.ariaLabel = this.enlarge.title = `Enlarge: ${definition.title}`;
    this.enlarge.addEventListener("click", () => {
      store.set({ main: definition.id });
      this.canvas.focus({ preventScroll: true });
      this.element.scrollIntoView({ block: "nearest" });
    });
    this.#listen();
    new ResizeObserver(() => this.#resize()).observe(this.canvas);
    all.push(this);
  }

  get isMain() {
    return store.state.main === this.definition.id;
  }

  draw() {
    const { assets, hover } = store.state;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!assets || !this.canvas.width || this.element.hidden) return;
    const place = placeImage(this.canvas, assets);
    this.definition.draw({ context, place, unit: this.unit, main: this.isMain }, store.state);
    if (hover) drawCross(context, hover, place, this.unit);
    this.canvas.ariaLabel = this.definition.describe(store.state);
    this.canvas.classList.toggle("zoomed", camera.zoom > 1);
  }

  get unit() {
    return this.canvas.width / Math.max(this.canvas.clientWidth, 1);
  }

  #resize() {
    const density = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * density);
    this.canvas.height = Math.round(this.canvas.clientHeight * density);
    this.draw(); // at once, because setting the size clears the canvas
  }

  #listen() {
    attachGestures(this.canvas, {
      locate: (event) => this.#locate(event),
      grab: (place) => this.#grab(place),
      onHover: (place) => store.set({ hover: place && pixelOf(place) }),
      onTap: (place, more) => {
        const pixel = pixelOf(place);
        if (pixel) this.#put(pixel, more);
      },
    });
    this.canvas.addEventListener("keydown", (event) => this.#onKey(event));
  }

  #put(pixel, more) {
    if (this.definition.tap) this.definition.tap(pixel);
    else putPoint(pixel, more || store.state.adding);
  }

  // The place of an event in fractions of the image, and the size of the image on screen.
  #locate(event) {
    const { assets } = store.state;
    const box = this.canvas.getBoundingClientRect();
    const size = assets ?? { width: 4, height: 3 };
    const { left, top, scale } = placeImage(this.canvas, size);
    const [width, height] = [(size.width * scale) / this.unit, (size.height * scale) / this.unit];
    const x = (event.clientX - box.left - left / this.unit) / width;
    const y = (event.clientY - box.top - top / this.unit) / height;
    return { x, y, width, height, across: (event.clientX - box.left) / box.width, box };
  }

  // A drag that starts on a point moves the point; on the swipe edge, the edge.
  #grab(place) {
    const { assets, points, swipe, blink } = store.state;
    if (!assets) return null;
    const swiping = this.definition.tools === "swipe" && !blink;
    if (swiping && Math.abs(place.across - swipe) * place.box.width < NEAR) {
      return ({ across }) => store.set({ swipe: Math.min(Math.max(across, 0), 1) });
    }
    const gap = ({ x, y }) => {
      const [across, down] = [(x + 0.5) / assets.width - place.x, (y + 0.5) / assets.height - place.y];
      return Math.hypot(across * place.width, down * place.height);
    };
    if (this.definition.drag) {
      const carry = this.definition.drag(pixelOf(place), (one) => gap(one) < NEAR);
      return carry && ((now) => carry(nearestPixel(now)));
    }
    const point = this.definition.id === "frame2" ? null : points.find((one) => gap(one) < NEAR);
    if (!point) return null;
    return (now) => {
      const pixel = pixelOf(now);
      if (pixel) movePoint(point.id, pixel);
    };
  }

  #onKey(event) {
    const { assets, hover } = store.state;
    const step = ARROWS[event.key];
    if (!assets || event.ctrlKey || event.metaKey) return;
    const at = hover ?? { x: assets.width >> 1, y: assets.height >> 1 };
    if (event.key === "Enter") {
      this.#put(at, event.shiftKey);
    } else if (step && event.altKey) {
      pan((0.1 * step[0]) / camera.zoom, (0.1 * step[1]) / camera.zoom);
    } else if (step) {
      const far = event.shiftKey ? 16 : 2;
      const clip = (value, size) => Math.min(Math.max(value, 0), size - 1);
      const x = clip(at.x + far * step[0], assets.width);
      const y = clip(at.y + far * step[1], assets.height);
      store.set({ hover: { x, y } });
      announce({ x, y });
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

// The pixel at a place, or the nearest one if it is outside the image.
function nearestPixel({ x, y }) {
  const inside = (value) => Math.min(Math.max(value, 0), 1 - 1e-6);
  return pixelOf({ x: inside(x), y: inside(y) });
}

// The pixel at a place, or null outside the image.
function pixelOf({ x, y }) {
  const { assets } = store.state;
  if (!assets || x < 0 || y < 0 || x >= 1 || y >= 1) return null;
  return { x: Math.floor(x * assets.width), y: Math.floor(y * assets.height) };
}
