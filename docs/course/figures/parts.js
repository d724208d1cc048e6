// What the figures are made of: elements, sliders, and tables of weights with bars.
const SVG = "http://www.w3.org/2000/svg";

export function make(name, attributes, parent, text) {
  const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
}

export function slider(parent, label, [least, most, step, value]) {
  return make("input", { type: "range", min: least, max: most, step, value }, make("label", { class: "slider" }, parent, `${label} `));
}

export function softmax(scores) {
  const largest = Math.max(...scores), raised = scores.map((score) => Math.exp(score - largest));
  const sum = raised.reduce((a, b) => a + b);
  return raised.map((one) => one / sum);
}

export function weightTable(parent, caption, names, heads = []) {
  // A row for each name and a column of bars for each head; the function that comes back shows weights[head][row].
  const table = make("table", { class: "weights" }, parent);
  make("caption", {}, table, caption);
  if (heads.length) {
    const top = make("tr", {}, table);
    make("td", {}, top);
    for (const head of heads) make("th", { scope: "col", colspan: 2 }, top, head);
  }
  const count = heads.length || 1, style = `inline-size: ${100 / count}%`;
  const rows = names.map((name) => {
    const row = make("tr", {}, table);
    make("th", { scope: "row" }, row, name);
    return Array.from({ length: count }, () => {
      const bar = make("span", { class: "bar" }, make("td", { class: "bars", style, "aria-hidden": "true" }, row));
      return { bar, cell: make("td", { class: "number" }, row) };
    });
  });
  return (weights) => {
    rows.forEach((row, place) =>
      row.forEach(({ bar, cell }, head) => {
        bar.style.inlineSize = `${100 * weights[head][place]}%`;
        cell.textContent = weights[head][place].toFixed(2);
      }),
    );
  };
}
