// What must not be found on a page: an object of functions, put into parentheses and called by the tests.
{
  /** Controls and regions without a name. */
  nameless: () => {
    const named = (one) => {
      const ids = (one.getAttribute("aria-labelledby") ?? "").split(" ");
      const labels = [...(one.labels ?? [])].map((label) => label.textContent).join("");
      const text = one.matches("select, input, textarea, section") ? "" : one.textContent;
      return `${one.ariaLabel ?? ""}${ids.map((id) => document.getElementById(id)?.textContent ?? "").join("")}${labels}${text}`.trim();
    };
    const kinds = "button, select, input, textarea, a, section, [tabindex], [role=listbox], [role=grid], [role=img], [role=group]";
    const all = [...document.querySelectorAll(kinds)].filter((one) => one.checkVisibility() && !one.closest("[aria-hidden=true]"));
    return all.filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 120));
  },

  /** Ids that stand twice. */
  doubled: () => [...document.querySelectorAll("[id]")].map((one) => one.id).filter((id, at, all) => all.indexOf(id) !== at),

  /** Landmarks that share a name: a screen reader's list of them would say it twice. */
  alike: () => {
    const names = [...document.querySelectorAll("section, form, nav")].filter((one) => one.checkVisibility()).map((one) => one.ariaLabel).filter(Boolean);
    return names.filter((name, at) => names.indexOf(name) !== at);
  },

  /** Underlines of sure words that can't be seen: less than 3 to 1 (WCAG 2.2, 1.4.11). */
  thin: () => {
    const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const light = (colour) => {
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [red, green, blue] = [...pen.getImageData(0, 0, 1, 1).data].map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    };
    const behind = light(getComputedStyle(document.querySelector(".answer")).backgroundColor);
    return [...document.querySelectorAll(".output .word")].flatMap((word) => {
      const line = light(getComputedStyle(word).textDecorationColor);
      const contrast = Math.max(line, behind) / Math.min(line, behind);
      return contrast < 3 ? [`${word.textContent}: ${contrast.toFixed(2)}`] : [];
    });
  },

  /** What stands out on the right. */
  wide: () =>
    [...document.querySelectorAll("body *")]
      .filter((one) => one.checkVisibility() && !one.closest(".table, .unseen, .skip"))
      .filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
      .map((one) => one.outerHTML.slice(0, 100)),

  /** How many pixels the text area and its mirror differ in height: they break lines at the same places. */
  apart: () => {
    const [area, mirror] = [document.querySelector("#text"), document.querySelector("#mirror")];
    area.style.height = "0";
    mirror.style.alignSelf = "start";
    const difference = area.scrollHeight - mirror.scrollHeight;
    area.style.height = mirror.style.alignSelf = "";
    return Math.abs(difference) > 2 ? [`${difference}`] : [];
  },

  /** Lights that don't lie on the letters of their words. */
  astray: () => {
    const letters = document.querySelector("#mirror").firstChild;
    const highlights = [...document.querySelectorAll(".highlight:not(.end)")];
    return [...letters.data.matchAll(/\S+/g)].flatMap(({ 0: word, index }, number) => {
      const range = document.createRange();
      range.setStart(letters, index);
      range.setEnd(letters, index + word.length);
      const [wanted, found] = [range, highlights[number]].map((one) => one.getBoundingClientRect());
      return Math.hypot(wanted.left - found.left, wanted.top - found.top, wanted.width - found.width) < 1 ? [] : [word];
    });
  },

  /** Light every word by this much, and write into the highlights in the ink of the text that lies over them. */
  lit: (share) => {
    for (const one of document.querySelectorAll(".output .word, .highlight")) one.style.setProperty("--share", share);
    for (const one of document.querySelectorAll(".highlight")) Object.assign(one, { textContent: "word" }).style.color = getComputedStyle(document.querySelector("#text")).color;
  },

  /** Texts that stand out too little from what lies behind them (WCAG 2.2, 1.4.3). */
  faint: () => {
    const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }); // reads every notation of a colour
    const rgba = (colour) => {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
      return [red, green, blue, alpha / 255];
    };
    const over = (top, under) => [0, 1, 2].map((band) => top[band] * top[3] + under[band] * (1 - top[3]));
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const light = ([red, green, blue]) => 0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
    const ground = (one) => {
      const layers = [];
      for (let up = one; up && layers.at(-1)?.[3] !== 1; up = up.parentElement) layers.push(rgba(getComputedStyle(up).backgroundColor));
      return layers.reduceRight((under, top) => over(top, under), [255, 255, 255]);
    };
    const isLeft = (one) => one.matches(".unseen, :disabled, option, .heatmap td, .path *, #mirror, .highlight.end");
    const ratio = (one, style) => {
      const isDrawn = one instanceof SVGElement;
      const behind = ground(isDrawn ? one.closest("svg").parentElement : one);
      const [a, b] = [over(rgba(isDrawn ? style.fill : style.color), behind), behind].map(light).sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    };
    const found = [];
    for (const one of document.querySelectorAll("body *")) {
      const text = [...one.childNodes].filter(({ nodeType }) => nodeType === Node.TEXT_NODE).map(({ data }) => data.trim()).join("");
      if (!text || isLeft(one) || !one.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
      const style = getComputedStyle(one);
      const size = parseFloat(style.fontSize);
      const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
      const contrast = ratio(one, style);
      if (contrast < (isLarge ? 3 : 4.5)) found.push(`${text.slice(0, 30)}: ${contrast.toFixed(2)} ${one.className.baseVal ?? one.className}`);
    }
    return found;
  },
}
