// Copy as a link, save as PNG, SVG or JSON. Nothing is sent anywhere.

import { $, make } from "./dom.js";

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
      await navigator.clipboard.writeText(location.href).catch(() => null);
      on.notice(link.length > 8000 ? "Copied; it is long, and some programs cut such links." : "The link is copied. What you typed is in it, and nowhere else.");
    },
    svg: () => save("svg", new Blob([text(on.figure())], { type: "image/svg+xml" })),
    png: async () => save("png", await rasterised(on.figure())),
    json: () => save("json", new Blob([JSON.stringify(on.json(), null, 1)], { type: "application/json" })),
  };
  const save = (ending, blob) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: `${on.name()}.${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    on.notice(`Saved ${link.download}.`);
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

const text = (svg) => new XMLSerializer().serializeToString(svg);

/** Twice as fine as it is shown. */
async function rasterised(svg) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text(svg)], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
