// Marks: the points and boxes of the reference frame whose tracks are shown. Without marks, a grid is.

import { byId, icon, make } from "./dom.js";
import { css } from "./points.js";
import { store } from "./store.js";

const MAX_POINTS = 2000; // of one request to the server
const ACROSS = 8; // points along the shorter side of a box

let serial = 0;
let corner = null; // the mark whose second corner comes next: a box drawn with two clicks

export const isBox = (mark) => mark.width !== undefined;

// The points of each mark: its own, or a grid in its box. Boxes share what one request may have.
function pointsOfEach(marks) {
  const boxes = marks.filter(isBox).length;
  const most = Math.max(1, Math.floor((MAX_POINTS - (marks.length - boxes)) / boxes));
  return marks.map((mark) => (isBox(mark) ? gridIn(mark, most) : [[mark.x, mark.y]]));
}

function gridIn(mark, most) {
  const { width, height } = mark;
  const least = Math.max(Math.sqrt((width * height) / most), width / most, height / most);
  const step = Math.max(Math.ceil(least), Math.floor(Math.min(width, height) / ACROSS));
  const along = (start, size) => {
    const count = Math.max(1, Math.floor(size / step));
    const first = start + Math.floor((size - 1 - (count - 1) * step) / 2);
    return Array.from({ length: count }, (_, i) => first + i * step);
  };
  const columns = along(mark.x, mark.width);
  return along(mark.y, mark.height).flatMap((y) => columns.map((x) => [x, y]));
}

// The colour of a point by its place, the same as in videos of trails: the hue runs from left to right,
// lighter towards the top.
export function colorOf({ x, y }, { width, height }) {
  const across = Math.min(Math.max(x / Math.max(1, width - 1), 0), 1);
  const down = Math.min(Math.max(y / Math.max(1, height - 1), 0), 1);
  return [0, 1, 2].map((channel) => {
    const wave = 0.5 + 0.75 * Math.cos(2 * Math.PI * (0.83 * across - channel / 3));
    const hue = Math.min(Math.max(wave, 0), 1);
    return Math.round(255 * (hue + (1 - hue) * 0.45 * (1 - down)) * (1 - 0.25 * down));
  });
}

// All points to show, or null for the server's grid.
export function chosenPoints(marks) {
  return marks.length ? pointsOfEach(marks).flat().slice(0, MAX_POINTS) : null;
}

const boxOf = (a, b) => ({
  x: Math.min(a.x, b.x), y: Math.min(a.y, b.y),
  width: Math.abs(a.x - b.x) + 1, height: Math.abs(a.y - b.y) + 1,
});

const replaceMark = (id, mark) =>
  store.set({ marks: store.state.marks.map((one) => (one.id === id ? { ...mark, id } : one)) });

function addMark(mark) {
  const added = { ...mark, id: ++serial };
  store.set({ marks: [...store.state.marks, added], asking: null });
  return added.id;
}

// A click or Enter: a point, or a corner of a box. Every point is kept.
export function putMark(pixel) {
  if (store.state.tool !== "box") return void addMark(pixel);
  if (corner && store.state.marks.some(({ id }) => id === corner.id)) {
    replaceMark(corner.id, boxOf(corner.start, pixel));
    corner = null;
  } else {
    corner = { id: addMark(boxOf(pixel, pixel)), start: pixel };
    byId("spoken").textContent = "First corner of a box; choose the opposite one.";
  }
}

// A drag: draw a box, or move a point that is near. Returns what to call on each move, or null.
export function dragMark(pixel, near) {
  const point = store.state.marks.find((mark) => !isBox(mark) && near(mark));
  if (point) return (now) => replaceMark(point.id, now);
  if (store.state.tool !== "box" || !pixel) return null;
  let id = null;
  return (now) => {
    corner = null;
    if (id === null) id = addMark(boxOf(pixel, now));
    else replaceMark(id, boxOf(pixel, now));
  };
}

export const clearMarks = () => store.set({ marks: [] });
export const chooseTool = (tool) => store.set({ tool });

// Move marks to where their points are in another frame, which becomes the reference. They stay if the
// trails are those of other marks.
export function moveMarks(marks, trails, frame, size) {
  const counts = pointsOfEach(marks).map(({ length }) => length);
  if (trails.count !== counts.reduce((sum, count) => sum + count, 0)) return marks;
  let first = 0;
  return marks.map((mark, index) => {
    const count = counts[index];
    const moves = [];
    for (let k = first; k < first + count; k++) {
      const [from, to] = [trails.at(trails.reference, k), trails.at(frame, k)];
      if (Number.isFinite(to.x)) moves.push([to.x - from.x, to.y - from.y]);
    }
    first += count;
    const mean = (axis) => moves.reduce((sum, move) => sum + move[axis], 0) / Math.max(moves.length, 1);
    const clip = (value, room) => Math.min(Math.max(Math.round(value), 0), room);
    const { width = 1, height = 1 } = mark;
    const x = clip(mark.x + mean(0), size.width - width);
    return { ...mark, x, y: clip(mark.y + mean(1), size.height - height) };
  });
}

function item(mark, job) {
  const name = isBox(mark)
    ? `Box of ${mark.width} x ${mark.height} at ${mark.x}, ${mark.y}`
    : `Point ${mark.x}, ${mark.y}`;
  const text = isBox(mark) ? `${mark.width} x ${mark.height}` : `${mark.x}, ${mark.y}`;
  const sign = make("i", { className: isBox(mark) ? "swatch outlined" : "dot" });
  if (!isBox(mark) && job) sign.style.background = css(colorOf(mark, job));
  const remove = make("button", { type: "button", className: "button square plain" }, icon("close"));
  remove.ariaLabel = `Remove: ${name}`;
  remove.addEventListener("click", () =>
    store.set({ marks: store.state.marks.filter(({ id }) => id !== mark.id) }));
  const label = make("span", { className: "choose" }, sign, make("span", { className: "where" }, text));
  return make("li", { className: "point", title: name }, label, remove);
}

function showMarks({ marks, tool, job, tab }) {
  const list = byId("marks");
  const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.replaceChildren(...marks.map((mark) => item(mark, job)));
  list.querySelectorAll("button")[focused]?.focus(); // the focused button was replaced
  const hint = byId("mark-hint");
  hint.hidden = tab !== "tracks" || marks.length > 0;
  const where = job?.reference === undefined || job.reference === null ? "" : ` on frame ${job.reference + 1}`;
  hint.textContent = `Click points, or draw a box${where}. Until then a grid is shown.`;
  for (const name of ["point", "box"]) byId(`tool-${name}`).ariaPressed = String(tool === name);
  byId("clear").disabled = !marks.length;
}

export function setUpMarks() {
  for (const name of ["point", "box"]) byId(`tool-${name}`).addEventListener("click", () => chooseTool(name));
  byId("clear").addEventListener("click", clearMarks);
  store.on(["marks", "tool", "job", "tab"], showMarks);
  showMarks(store.state);
}
