// A text whose words can be selected, and are lit by their weight. One tab stop, arrow keys inside.

/**
 * Write words ([{word, before}], see `withSpaces` in insight.js) into a container; with `sentence` ({weight, share}) one begins a sentence with a bar. `onSelect(index | null)` as the pointer or the focus enters and leaves one.
 * Returns {update, light, element}: `light(shares, here)` colours each word by its share (null: none) and marks one.
 */
export function words(container, { words: given = [], label = "", onSelect = () => {} }) {
  const list = document.createElement("p");
  list.className = "words";
  list.dir = "auto";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-orientation", "horizontal");
  container.replaceChildren(list);
  let options = [];
  let kept = null;

  const update = (changes) => {
    if (changes.label !== undefined) list.setAttribute("aria-label", changes.label);
    if (!changes.words) return;
    options = changes.words.map(({ word }, index) => option(word, index));
    list.replaceChildren(...inSentences(changes.words, options));
    kept = null;
  };
  const light = (shares, here = null) => {
    options.forEach((element, index) => {
      element.style.setProperty("--share", (shares?.[index] ?? 0).toFixed(3));
      element.classList.toggle("here", index === here);
    });
  };
  const focus = (index) => {
    const next = options[Math.min(options.length - 1, Math.max(0, index))];
    options.forEach((element) => (element.tabIndex = element === next ? 0 : -1));
    next.focus();
  };

  list.addEventListener("pointerover", (event) => onSelect(indexOf(event.target) ?? kept));
  list.addEventListener("pointerleave", () => onSelect(kept));
  list.addEventListener("focusin", (event) => onSelect(indexOf(event.target)));
  list.addEventListener("focusout", () => onSelect(kept));
  list.addEventListener("click", (event) => {
    const index = indexOf(event.target);
    kept = index === kept ? null : index;
    options.forEach((element, at) => element.setAttribute("aria-selected", String(at === kept)));
    onSelect(kept ?? index);
  });
  list.addEventListener("keydown", (event) => {
    const isBackwards = getComputedStyle(list).direction === "rtl";
    const at = indexOf(event.target) ?? 0;
    const move = { ArrowLeft: isBackwards ? 1 : -1, ArrowRight: isBackwards ? -1 : 1 }[event.key];
    if (move) focus(at + move);
    else if (event.key === "Home") focus(0);
    else if (event.key === "End") focus(options.length - 1);
    else if (event.key === "Enter" || event.key === " ") event.target.click();
    else if (event.key === "Escape") onSelect((kept = null));
    else return;
    event.preventDefault();
  });
  update({ words: given, label });
  return { update, light, element: list };
}

/** Return the words with what stands before them; where sentences have weights, in a box for each. */
function inSentences(given, options) {
  const found = [];
  let into = found;
  given.forEach(({ before, sentence }, index) => {
    if (sentence) found.push((into = sentenceOf(sentence)));
    into === found ? found.push(before, options[index]) : into.append(sentence ? "" : before, options[index]);
  });
  return found;
}

function sentenceOf({ weight, share }) {
  const element = document.createElement("span");
  element.className = "weighed";
  element.style.setProperty("--bar", share.toFixed(3));
  element.dataset.weight = `${(100 * weight).toFixed(1)} %`;
  return element;
}

function option(word, index) {
  const element = document.createElement("span");
  element.className = /^<\/?s>$/.test(word) ? "word special" : "word";
  element.dataset.index = index;
  element.setAttribute("role", "option");
  element.setAttribute("aria-selected", "false");
  element.tabIndex = index ? -1 : 0;
  element.textContent = word;
  return element;
}

function indexOf(target) {
  const found = target.closest("[data-index]");
  return found && Number(found.dataset.index);
}
