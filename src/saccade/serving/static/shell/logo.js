// The logo, an eye: it looks at the word that the model reads, else at the pointer, and blinks when an answer comes.

import { prefersReducedMotion } from "../parts/dom.js";

const REACH = { x: 11, y: 5 };

export function logo(element) {
  const ball = element.querySelector(".ball");
  const lids = element.querySelector(".blink");
  let isFollowing = false;

  const turn = ({ x, y }) => {
    const box = element.getBoundingClientRect();
    const [across, down] = [x - box.left - box.width / 2, y - box.top - box.height / 2];
    const far = Math.hypot(across, down) || 1;
    const near = Math.min(1, far / 240);
    ball.style.transform = `translate(${((REACH.x * across * near) / far).toFixed(1)}px, ${((REACH.y * down * near) / far).toFixed(1)}px)`;
  };
  addEventListener("pointermove", (event) => !isFollowing && turn({ x: event.clientX, y: event.clientY }), { passive: true });
  return {
    /** Look at a place; null: at the pointer again. */
    follow: (place) => {
      isFollowing = place !== null;
      if (place) turn(place);
    },
    blink: () => {
      if (!prefersReducedMotion()) lids.animate([{ transform: "scaleY(1)" }, { transform: "scaleY(0.08)" }, { transform: "scaleY(1)" }], { duration: 180 });
    },
  };
}
