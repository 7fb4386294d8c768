// Attention as light: each point's map in its colour, laid over the frame.

// Attention is spread over thousands of cells. What glows is what gets more than an even share, from
// 0 for that to 1 for the most; the power lets faint light be seen.
export function withStrength(map) {
  const even = map.data.reduce((sum, weight) => sum + weight, 0) / map.data.length;
  const share = (weight) => Math.max(weight - even, 0) / Math.max(255 - even, 1);
  return { ...map, strength: Float32Array.from(map.data, (weight) => share(weight) ** 0.55) };
}

const WHITE = 0.65; // from this strength on, light turns white
let made = { points: null, solo: null, glow: null };

// One picture of all maps, or of the point `solo` alone, and where it lies over the image.
export function glowOf(points, solo) {
  if (made.points !== points || made.solo !== solo) {
    const chosen = points.filter(({ id }) => id === solo);
    const wanted = chosen.length ? chosen : points;
    made = { points, solo, glow: makeGlow(wanted.filter(({ map }) => map)) };
  }
  return made.glow;
}

function makeGlow(lit) {
  if (!lit.length) return null;
  const { width, height, left, top } = lit[0].map;
  // One cell more on all sides, like its neighbour: enlarging would fade towards an edge.
  const [columns, rows] = [width + 2, height + 2];
  const inside = (value, size) => Math.min(Math.max(value - 1, 0), size - 1);
  const canvas = new OffscreenCanvas(columns, rows);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const cell = inside(row, height) * width + inside(column, width);
      picture.data.set(mix(lit, cell), 4 * (row * columns + column));
    }
  }
  context.putImageData(picture, 0, 0);
  return { canvas, x: -8 - left, y: -8 - top, width: 8 * columns, height: 8 * rows };
}

// The colour of a cell: nearly that of the point with the strongest claim to it. Adding the colours
// up instead would turn everything white.
function mix(lit, cell) {
  let [red, green, blue, total, most] = [0, 0, 0, 1e-9, 0];
  for (const { color, map } of lit) {
    const strength = map.strength[cell];
    const share = strength ** 4;
    red += share * color[0];
    green += share * color[1];
    blue += share * color[2];
    total += share;
    most = Math.max(most, strength);
  }
  const white = (0.75 * Math.max(0, most - WHITE)) / (1 - WHITE);
  const lighten = (sum) => sum / total + (255 - sum / total) * white;
  return [lighten(red), lighten(green), lighten(blue), 250 * most];
}
