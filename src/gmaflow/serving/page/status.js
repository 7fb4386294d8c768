// One line below the bar: what is going on, what went wrong, or what is shown.

import { cancel } from "./jobs.js";
import { byId } from "./dom.js";
import { store } from "./store.js";

const ASKING = "Drop, paste or open two images or a video.";

function sentence({ notice, asking, sending, job, source }) {
  if (notice) return notice;
  if (asking) return asking;
  if (sending) return `Sending ${sending}`;
  if (!job) return ASKING;
  if (job.state === "queued" && job.position > 0) return `Waiting: ${job.position} before this one`;
  if (["queued", "running"].includes(job.state)) return capitalized(job.step);
  return summary(job, source);
}

const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function summary(job, source) {
  const parts = [
    source?.label,
    job.models?.join(" and "),
    `${job.width} x ${job.height}`,
    `${job.iterations} refinements`,
    job.pairs > 1 && `${job.pairs} pairs`,
    job.state === "cancelled" ? "cancelled" : `${job.seconds.toFixed(1)} s`,
    ...job.notes,
  ];
  return parts.filter(Boolean).join(" · ");
}

function show(state) {
  const { notice, asking, sending, job } = state;
  const busy = Boolean(sending || ["queued", "running"].includes(job?.state));
  const status = byId("status");
  status.dataset.state = notice ? "error" : asking ? "asking" : busy ? "busy" : "idle";
  const text = byId("status-text");
  text.setAttribute("role", notice ? "alert" : "status");
  text.textContent = text.title = sentence(state); // the title tells what is cut off
  byId("invite").hidden = busy || Boolean(state.assets);
  byId("cancel").hidden = !busy;
  const meter = byId("meter");
  const percent = Math.round(100 * (sending ? 0 : job?.progress ?? 0));
  meter.ariaValueNow = String(percent);
  meter.ariaHidden = String(!busy);
  meter.querySelector("i").style.inlineSize = `${busy ? percent : 0}%`;
}

export const showStatus = () => show(store.state);

export function setUpStatus() {
  byId("cancel").addEventListener("click", cancel);
  store.on(["notice", "asking", "sending", "job", "source", "assets"], show);
}
