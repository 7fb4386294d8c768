// Small helpers for the document.

export const byId = (id) => document.getElementById(id);

// Make an element: properties by name, then children (nodes or text).
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

// Update a play/pause button.
export function showPlaying(button, playing, what) {
  button.querySelector("use").setAttribute("href", playing ? "#icon-pause" : "#icon-play");
  button.ariaLabel = `${playing ? "Pause" : "Play"} ${what}`;
}
