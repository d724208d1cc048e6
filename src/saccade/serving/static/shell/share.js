// Copy a link, save as PNG, SVG or JSON. Nothing is sent anywhere.

import { download } from "../../shared/save.js";
import { $, copy, make } from "../parts/dom.js";

const LONG_LINK = 8000; // characters

/** `on.link()`, `on.figure()` (an SVG element), `on.json()` (anything), `on.name()`, `on.notice(line)`; each null without an answer. */
export function share(on) {
  const [button, menu] = [$("share-button"), $("share-menu")];
  const open = (isOpen) => {
    menu.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) menu.querySelector("button").focus();
  };
  const ways = {
    link: async () => {
      const link = on.link();
      history.replaceState(null, "", link);
      await copy(location.href);
      on.notice(link.length > LONG_LINK ? "Copied. It is long, and some programs cut such links." : "The link is copied. What you typed is in it, and nowhere else.");
    },
    svg: () => save("svg", text(on.figure()), "image/svg+xml"),
    png: async () => save("png", await rasterise(on.figure()), "image/png"),
    json: () => save("json", JSON.stringify(on.json(), null, 1), "application/json"),
  };
  const save = (ending, content, type) => {
    const name = `${on.name()}.${ending}`;
    download(name, content, type);
    on.notice(`Saved ${name}.`);
  };
  button.addEventListener("click", () => open(menu.hidden));
  menu.addEventListener("click", (event) => {
    const way = event.target.dataset.share;
    if (!way) return;
    open(false);
    button.focus();
    if (!on.json()) return on.notice("There is nothing to share yet. Type something first.");
    ways[way]();
  });
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.children];
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      items.at((items.indexOf(document.activeElement) + move) % items.length).focus();
      event.preventDefault();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || menu.hidden) return;
    open(false);
    button.focus();
  });
  document.addEventListener("pointerdown", (event) => menu.hidden || event.target.closest(".menu") || open(false));
}

/** Return the text of an SVG file, without the characters that XML forbids. */
const text = (svg) => new XMLSerializer().serializeToString(svg).replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "");

/** Draw it at twice the size. */
async function rasterise(svg) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text(svg)], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
