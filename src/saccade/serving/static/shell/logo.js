// The eye in the corner: it looks where the model looks, follows the pointer otherwise, and blinks when an answer comes.

import { isStill } from "../parts/dom.js";

const REACH = { x: 11, y: 5 };

export function eye(element) {
  const ball = element.querySelector(".ball");
  const lids = element.querySelector(".blink");
  let isLed = false;

  const turn = ({ x, y }) => {
    const box = element.getBoundingClientRect();
    const [across, down] = [x - box.left - box.width / 2, y - box.top - box.height / 2];
    const far = Math.hypot(across, down) || 1;
    const near = Math.min(1, far / 240);
    ball.style.transform = `translate(${((REACH.x * across * near) / far).toFixed(1)}px, ${((REACH.y * down * near) / far).toFixed(1)}px)`;
  };
  addEventListener("pointermove", (event) => !isLed && turn({ x: event.clientX, y: event.clientY }), { passive: true });
  return {
    /** Led by the model's gaze, or by nothing. */
    follow: (place) => {
      isLed = place !== null;
      if (place) turn(place);
    },
    blink: () => {
      if (!isStill()) lids.animate([{ transform: "scaleY(1)" }, { transform: "scaleY(0.08)" }, { transform: "scaleY(1)" }], { duration: 180 });
    },
  };
}
