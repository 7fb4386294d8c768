// The colours of motion: the Middlebury wheel, as the server draws it.

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

// The colour of a motion whose full length is 1, as three numbers from 0 to 255.
export function motionColor(u, v) {
  const length = Math.hypot(u, v);
  // Adding 0 turns -0 into 0: the two lie on either side of the seam of the wheel.
  const place = ((Math.atan2(-(v + 0), -u) / Math.PI + 1) * (HUES.length - 1)) / 2;
  const index = Math.floor(place);
  const [low, high] = [HUES[index], HUES[(index + 1) % HUES.length]];
  return low.map((from, c) => {
    const hue = from + (place - index) * (high[c] - from);
    return Math.round(length > 1.00001 ? 0.75 * hue : 255 - length * (255 - hue));
  });
}

// Draw the disc over the whole of a square canvas.
export function drawWheel(canvas) {
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
