// The slider and the blinking of the warped view.

import { byId, make } from "./dom.js";
import { store } from "./store.js";

const PERIOD = 450; // milliseconds that each picture is shown while blinking

let timer = null;

export function toggleBlink() {
  const blink = !store.state.blink;
  clearInterval(timer);
  if (blink) timer = setInterval(() => store.set({ blinkPhase: !store.state.blinkPhase }), PERIOD);
  store.set({ blink, blinkPhase: false });
}

export function setUpSwipe(view) {
  const slider = make("input", { type: "range", min: 0, max: 1, step: 0.01, value: 0.5, id: "swipe" });
  slider.ariaLabel = "Edge between frame 1 and frame 2 warped";
  slider.addEventListener("input", () => store.set({ swipe: slider.valueAsNumber }));
  const blink = make("button", { type: "button", className: "button small", id: "blink" }, "Blink");
  blink.title = "Blink between the two (B)";
  blink.addEventListener("click", toggleBlink);
  view.tools.append(slider, blink);
  store.on(["swipe", "blink"], (state) => {
    slider.value = state.swipe;
    slider.disabled = state.blink;
    byId("blink").ariaPressed = String(state.blink);
  });
}
