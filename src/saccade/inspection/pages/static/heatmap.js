// A heat map as a table: one tab stop, arrow keys inside; screen readers name each weight by its two headers.

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/**
 * Draw weights [T][S] into a container. `most` is the weight that gets the full colour; `label` names the table.
 * `onSelect({query, key})` is called as the pointer or the focus enters a cell or a name (on a name, one of the two is null),
 * and with null as it leaves. A click keeps the selection until the next click or Escape.
 * Returns {update, select, element}: `update` takes any of the same fields again; `select({query, key} | null)` lights
 * without calling `onSelect`.
 */
export function heatmap(container, options) {
  const table = document.createElement("table");
  table.className = "heatmap";
  table.setAttribute("role", "grid");
  container.replaceChildren(table);
  const now = { queries: [], keys: [], weights: [], most: 1, label: "", onSelect: () => {} };
  let cells = [];
  let kept = null;
  let focused = { query: 0, key: 0 };

  const select = (selection) => light(table, cells, selection ?? {});
  const show = (selection) => {
    select(selection);
    now.onSelect(selection);
  };
  const update = (changes) => {
    const isNamed = changes.queries || changes.keys;
    Object.assign(now, changes);
    table.setAttribute("aria-label", now.label);
    if (isNamed) {
      cells = build(table, now);
      table.style.setProperty("--keys", Math.max(1, now.keys.length));
      kept = null;
      focused = { query: 0, key: 0 };
    }
    paint(cells, now);
  };
  const focus = (query, key) => {
    const { queries, keys } = now;
    if (query < 0 || key < 0 || query >= queries.length || key >= keys.length) return;
    cells[focused.query][focused.key].tabIndex = -1;
    focused = { query, key };
    cells[query][key].tabIndex = 0;
    cells[query][key].focus();
  };

  table.addEventListener("pointerover", (event) => show(placeOf(event.target) ?? kept));
  table.addEventListener("pointerleave", () => show(kept));
  table.addEventListener("focusin", (event) => show(placeOf(event.target)));
  table.addEventListener("focusout", () => show(kept));
  table.addEventListener("click", (event) => {
    const place = placeOf(event.target);
    kept = place && isSame(place, kept) ? null : place;
    if (place && place.query !== null && place.key !== null) focus(place.query, place.key);
    show(kept ?? place);
  });
  table.addEventListener("keydown", (event) => {
    const { query, key } = focused;
    if (event.key === "Escape") show((kept = null));
    else if (event.key === "Home") focus(query, 0);
    else if (event.key === "End") focus(query, now.keys.length - 1);
    else if (MOVES[event.key]) focus(query + MOVES[event.key][0], key + MOVES[event.key][1]);
    else return;
    event.preventDefault();
  });
  update({ queries: [], keys: [], ...options });
  return { update, select, element: table };
}

function build(table, { queries, keys }) {
  const corner = document.createElement("td");
  const head = document.createElement("tr");
  head.append(corner, ...keys.map((name, key) => header(name, { key }, "col")));
  const rows = queries.map((name, query) => {
    const row = document.createElement("tr");
    row.append(header(name, { query }, "row"), ...keys.map((_, key) => cell(query, key)));
    return row;
  });
  const [above, below] = ["thead", "tbody"].map((part) => document.createElement(part));
  above.append(head);
  below.append(...rows);
  table.replaceChildren(above, below);
  return rows.map((row) => [...row.cells].slice(1));
}

function header(name, place, scope) {
  const element = document.createElement("th");
  const text = document.createElement("span");
  element.scope = scope;
  text.dir = "auto";
  text.textContent = name;
  text.classList.toggle("special", /^<\/?s>$/.test(name));
  Object.assign(element.dataset, place);
  element.append(text);
  return element;
}

function cell(query, key) {
  const element = document.createElement("td");
  element.setAttribute("role", "gridcell");
  Object.assign(element.dataset, { query, key });
  element.tabIndex = query || key ? -1 : 0;
  return element;
}

function paint(cells, { weights, most }) {
  cells.forEach((row, query) => {
    row.forEach((element, key) => {
      const weight = weights[query]?.[key] ?? 0;
      const share = Math.min(1, Math.max(0, weight / most)) || 0;
      element.style.setProperty("--share", share.toFixed(3));
      element.classList.toggle("strong", share > 0.58);
      element.textContent = Math.round(100 * weight);
    });
  });
}

function light(table, cells, { query = null, key = null }) {
  const has = (value, wanted) => wanted !== null && Number(value) === wanted;
  for (const element of table.querySelectorAll("th")) {
    const { query: row, key: column } = element.dataset;
    element.classList.toggle("here", row === undefined ? has(column, key) : has(row, query));
  }
  cells.forEach((row, at) => {
    row.forEach((element, column) => {
      element.classList.toggle("lit", query === null ? column === key : at === query);
      element.classList.toggle("here", at === query && column === key);
    });
  });
}

function placeOf(target) {
  const found = target.closest("[data-query], [data-key]");
  if (!found) return null;
  const number = (text) => (text === undefined ? null : Number(text));
  return { query: number(found.dataset.query), key: number(found.dataset.key) };
}

function isSame(one, other) {
  return other !== null && one.query === other.query && one.key === other.key;
}
