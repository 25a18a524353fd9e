// Which words of a line were changed: the old line and the new one in parts, each with whether the
// other line lacks it.

const MOST_CHARS = 1_000;
const LEAST_SHARED = 1 / 3;
const wordsOf = (line) => line.match(/[\p{L}\p{M}\p{N}_]+|\s+|./gu) ?? [];

// Very long lines are not compared, and in lines with little in common nothing is marked.
export function changedWords(before, after) {
  const whole = [before, after].map((text) => [{ text, isChanged: false }]);
  if (before.length + after.length > MOST_CHARS) return whole;
  const [gone, come] = [wordsOf(before), wordsOf(after)];
  const kept = common(gone, come);
  const nShared = kept.reduce((sum, [i]) => sum + gone[i].length, 0);
  if (nShared < LEAST_SHARED * Math.max(before.length, after.length)) return whole;
  return [gone, come].map((words, side) => joined(words, new Set(kept.map((pair) => pair[side]))));
}

// The longest common subsequence, as pairs of places.
function common(a, b) {
  const rows = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) rows[i][j] = a[i] === b[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
  }
  const pairs = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (rows[i + 1][j] >= rows[i][j + 1]) i++;
    else j++;
  }
  return pairs;
}

function joined(words, kept) {
  const out = [];
  for (const [n, text] of words.entries()) {
    const isChanged = !kept.has(n);
    if (out.at(-1)?.isChanged === isChanged) out.at(-1).text += text;
    else out.push({ text, isChanged });
  }
  return out;
}
