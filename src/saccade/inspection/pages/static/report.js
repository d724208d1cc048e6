// Curves: the values at the pointer (or, with focus, at the arrow keys) are shown below.
const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });

for (const chart of document.querySelectorAll(".chart")) {
  const lines = JSON.parse(chart.dataset.lines);
  const readout = chart.parentElement.querySelector(".readout");
  const summary = readout.textContent;
  const steps = [...new Set(lines.flatMap((line) => line.points.map((point) => point[2])))].sort((a, b) => a - b);
  const places = new Map(lines.flatMap((line) => line.points.map((point) => [point[2], point[0]])));
  const cursor = document.createElementNS(chart.namespaceURI, "path");
  cursor.setAttribute("class", "cursor");
  let at = steps.length - 1;

  const read = (index) => {
    at = Math.min(steps.length - 1, Math.max(0, index));
    cursor.setAttribute("d", `M${places.get(steps[at])},14 V216`);
    chart.append(cursor);
    // a line with few points shows its last one up to here
    const last = lines.map((line) => [line.name, line.points.findLast((point) => point[2] <= steps[at])]);
    const values = last.filter(([, point]) => point).map(([name, point]) => `${name} ${number.format(point[3])}`);
    readout.textContent = `${chart.dataset.x} ${number.format(steps[at])}: ${values.join(", ")}`;
  };
  const reset = () => {
    cursor.remove();
    readout.textContent = summary;
  };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const distances = steps.map((step) => Math.abs(places.get(step) - x));
    read(distances.indexOf(Math.min(...distances)));
  });
  chart.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) {
      event.preventDefault();
      read(at + move);
    }
  });
  chart.addEventListener("pointerleave", reset);
  chart.addEventListener("blur", reset);
}

// Alignments: the piece under the pointer lights up the pieces that it is aligned with on the other side.
for (const sample of document.querySelectorAll("article")) {
  const rows = [...sample.querySelectorAll(".heat tbody tr")];
  const weights = rows.map((row) => [...row.querySelectorAll("td")].map((cell) => +cell.style.getPropertyValue("--w")));
  let at = -1;

  const paint = (side, index, weightOf) => {
    for (const piece of sample.querySelectorAll(`[data-${side}]`)) {
      const here = +piece.dataset[side];
      piece.classList.toggle("here", here === index);
      piece.style.setProperty("--lit", weightOf ? Math.sqrt(weightOf(here) ?? 0) : 0);
    }
  };
  const light = (row, column) => {
    paint("column", column, row === undefined ? null : (other) => weights[row]?.[other]);
    paint("row", row, row !== undefined || column === undefined ? null : (other) => weights[other]?.[column]);
    rows.forEach((line, index) => line.classList.toggle("lit", index === row));
  };
  sample.addEventListener("pointerover", (event) => {
    const piece = event.target.closest("[data-row], [data-column]");
    const line = event.target.closest(".heat tbody tr")?.firstElementChild;
    const found = (piece ?? line)?.dataset ?? {};
    light(found.row && +found.row, found.column && +found.column);
  });
  sample.addEventListener("pointerleave", () => light());
  sample.querySelector(".heat")?.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (move) {
      event.preventDefault();
      at = (at + move + rows.length) % rows.length;
      light(at);
    }
  });
  sample.addEventListener("focusout", () => light());
}
