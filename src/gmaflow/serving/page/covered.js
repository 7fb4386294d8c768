// What frame 2 covers: its outline, and the pixel in the thick of it.

// The border of what is covered, in white, without crumbs and jags: it is there to guide the eye, and
// the view of hidden pixels shows each of them.
export function outlineOf(values) {
  const { width, height } = values;
  const smooth = blur(maskOf(values), width, height, 5);
  const covered = (i) => smooth[i] > 0.5;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let i = width; i < width * (height - 1); i++) {
    const inside = covered(i - 1) && covered(i + 1) && covered(i - width) && covered(i + width);
    if (covered(i) && !inside) picture.data.set([255, 255, 255, 130], 4 * i);
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

// The covered pixel with the most covered neighbours, or null if none is covered.
export function mostCovered(values) {
  const { width, height } = values;
  const mask = maskOf(values);
  const crowd = blur(mask, width, height, Math.max(4, Math.round(Math.min(width, height) / 24)));
  let best = -1;
  mask.forEach((covered, i) => {
    if (covered && (best < 0 || crowd[i] > crowd[best])) best = i;
  });
  return best < 0 ? null : { x: best % width, y: Math.floor(best / width) };
}

function maskOf({ width, height, data }) {
  return Float32Array.from({ length: width * height }, (_, i) => Number(data[4 * i + 2] === 1));
}

// The mean over a square of pixels up to `reach` away; outside the image nothing is covered.
function blur(mask, width, height, reach) {
  const rows = blurLines(mask, { count: width, step: 1, lines: height, skip: width, reach });
  return blurLines(rows, { count: height, step: width, lines: width, skip: 1, reach });
}

// The mean along lines: `count` values `step` apart, `lines` of them `skip` apart.
function blurLines(values, { count, step, lines, skip, reach }) {
  const result = new Float32Array(values.length);
  for (let line = 0; line < lines; line++) {
    let sum = 0;
    for (let i = -reach; i < count; i++) {
      if (i + reach < count) sum += values[line * skip + (i + reach) * step];
      if (i - reach > 0) sum -= values[line * skip + (i - reach - 1) * step];
      if (i >= 0) result[line * skip + i * step] = sum / (2 * reach + 1);
    }
  }
  return result;
}
