// Which words of two outputs of the same text differ.

const MOST = 1_000_000; // pairs of words of a sentence; longer ones are not compared

/** Return the places of the words that are in one output and not in the other, for both: [Set, Set]. Each is [{at, words}], a row a sentence. */
export function differences(one, other) {
  const found = [new Set(), new Set()];
  const first = [0, 0];
  const starts = [...new Set([...one, ...other].map(({ at }) => at))].sort((a, b) => a - b);
  for (const at of starts) {
    const rows = [one, other].map((parts) => parts.find((part) => part.at === at)?.words ?? []);
    const shared = commonWords(...rows);
    rows.forEach((words, side) => {
      words.forEach((_, index) => shared[side].has(index) || found[side].add(first[side] + index));
      first[side] += words.length;
    });
  }
  return found;
}

/** Return the places of the longest common subsequence in both rows. */
function commonWords(one, other) {
  const kept = [new Set(), new Set()];
  if (one.length * other.length > MOST) return [new Set(one.keys()), new Set(other.keys())];
  const length = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let row = one.length - 1; row >= 0; row -= 1) {
    for (let column = other.length - 1; column >= 0; column -= 1) {
      const isSame = one[row] === other[column];
      length[row][column] = isSame ? length[row + 1][column + 1] + 1 : Math.max(length[row + 1][column], length[row][column + 1]);
    }
  }
  for (let row = 0, column = 0; row < one.length && column < other.length; ) {
    if (one[row] === other[column]) {
      kept[0].add(row);
      kept[1].add(column);
      [row, column] = [row + 1, column + 1];
    } else if (length[row + 1][column] >= length[row][column + 1]) row += 1;
    else column += 1;
  }
  return kept;
}
