// All requests to the server.

// Other sites cannot send this header, so the server knows that the request is from its own page.
const OURS = { "X-Gmaflow": "1" };
const ENDED = ["done", "failed", "cancelled"];

class ServerError extends Error {}

async function request(url, options = {}) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (cause) {
    throw new ServerError("The server does not respond. Is gmaflow serve still running?", { cause });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ServerError(body.error ?? `The server answered ${response.status} to ${url}.`);
}

const getJson = async (url) => (await request(url)).json();

export const listModels = () => getJson("/api/models");
export const readVersion = () => getJson("/version");

// Start a job; `fields` holds image1 and image2, or clip, or frames, or example, and the settings.
export async function startJob(fields) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) [value].flat().forEach((one) => body.append(name, one));
  return (await request("/api/jobs", { method: "POST", headers: OURS, body })).json();
}

export const forgetJob = (id) => request(`/api/jobs/${id}`, { method: "DELETE", headers: OURS });

export const seekPair = (id, pair) =>
  request(`/api/jobs/${id}/seek`, {
    method: "POST",
    headers: { ...OURS, "Content-Type": "application/json" },
    body: JSON.stringify({ pair }),
  });

// Call `onChange` whenever a job changes, until it is over. Returns a function that stops this.
export function watchJob(id, onChange, onError) {
  const events = new EventSource(`/api/jobs/${id}/events`);
  let watching = true;
  const notify = (job) => {
    if (ENDED.includes(job.state)) events.close();
    if (watching) onChange(job);
  };
  events.onmessage = (event) => notify(JSON.parse(event.data));
  // EventSource gives no reason for an error, so request the status instead.
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) return;
    getJson(`/api/jobs/${id}`).then(notify, (error) => {
      events.close();
      if (watching) onError(error);
    });
  };
  return () => {
    watching = false;
    events.close();
  };
}

export const pairUrl = (job, pair, model, view) =>
  `/api/jobs/${job.id}/pairs/${pair}/${encodeURIComponent(model)}/${view}`;

export const frameUrl = (job, number, view) => `/api/jobs/${job.id}/frames/${number}/${view}`;

// An address of tracks; without points, those of a grid.
export function tracksUrl(job, points, file) {
  const query = points ? `?points=${points.map((point) => point.join(",")).join(";")}` : "";
  return `/api/jobs/${job.id}/tracks/${file}${query}`;
}

export const zipUrl = (job) => `/api/jobs/${job.id}/all.zip`;

export async function fetchImage(url) {
  const blob = await (await request(url)).blob();
  // No colour management: the colours encode measurements.
  return createImageBitmap(blob, { colorSpaceConversion: "none" });
}

// Four numbers per pixel: u, v, occlusion (0 visible, 1 occluded, 2 out of frame) and confidence.
export async function fetchValues(url) {
  const response = await request(url);
  const size = readSize(response);
  return { ...size, data: new Float32Array(await response.arrayBuffer()) };
}

// The attention of a pixel: a weight for each cell of 8 x 8 pixels; 255 is the largest. The grid begins
// `left` and `top` pixels before the frame.
export async function fetchAttention(url, point) {
  const query = new URLSearchParams({ x: point.x, y: point.y });
  const response = await request(`${url}?${query}`);
  const size = readSize(response);
  const place = { left: readNumber(response, "X-Left"), top: readNumber(response, "X-Top") };
  const largest = readNumber(response, "X-Max");
  return { ...size, ...place, largest, data: new Uint8Array(await response.arrayBuffer()) };
}

// Six numbers for each frame and point: x, y, visible, confidence, and x, y with the camera held still.
export async function fetchTracks(job, points) {
  const response = await request(tracksUrl(job, points, "values"));
  const [frames, count] = [readNumber(response, "X-Frames"), readNumber(response, "X-Points")];
  return { frames, count, data: new Float32Array(await response.arrayBuffer()) };
}

// The pixel of the reference frame that is at a place of another frame.
export const fetchOrigin = (job, number, { x, y }) => getJson(`${frameUrl(job, number, "origin")}?x=${x}&y=${y}`);

const readNumber = (response, header) => Number(response.headers.get(header));

const readSize = (response) => ({
  width: readNumber(response, "X-Width"),
  height: readNumber(response, "X-Height"),
});
