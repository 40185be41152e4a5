// diff compares two texts by lines: [kind, line] with kind " ", "-" or "+". Texts that are too long to compare
// are shown one after the other.
const most = 2000;

export function diff(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  if (a.length > most || b.length > most) return [...a.map(l => ["-", l]), ...b.map(l => ["+", l])];
  const common = lengths(a, b);
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push([" ", a[i++]]);
      j++;
    } else if (j >= b.length || i < a.length && common[i + 1][j] >= common[i][j + 1]) {
      out.push(["-", a[i++]]);
    } else {
      out.push(["+", b[j++]]);
    }
  }
  return out;
}

// lengths of the longest common runs of lines, from each pair of places to the ends.
function lengths(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  return table;
}
