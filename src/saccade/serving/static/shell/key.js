// The form for an API key.

import { key } from "../parts/api.js";
import { $ } from "../parts/dom.js";

/** `onKey()` when there is another key. Returns {open(isOpen)}. */
export function keyForm({ onKey }) {
  const [button, form, field] = [$("key-button"), $("key-form"), $("key")];
  const open = (isOpen) => {
    button.hidden = false;
    form.hidden = !isOpen;
    button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) field.focus();
  };
  button.addEventListener("click", () => open(form.hidden));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    key.set(field.value.trim());
    open(false);
    onKey();
  });
  return { open };
}
