// Which words of a changed line are marked.

import assert from "node:assert/strict";
import test from "node:test";

import { changedWords } from "../../src/retinue/host/page/changed_words.mjs";

// The two lines as text, with what is marked in square brackets.
const marked = (before, after) => changedWords(before, after).map((parts) => parts.map(({ text, isChanged }) => (isChanged ? `[${text}]` : text)).join(""));

test("only the words that differ are marked", () => {
  assert.deepEqual(marked("return wait(5, retry)", "return wait(30, retry)"), ["return wait([5], retry)", "return wait([30], retry)"]);
  assert.deepEqual(marked("a = first(x) + b", "a = second(x) + c"), ["a = [first](x) + [b]", "a = [second](x) + [c]"]);
  assert.deepEqual(marked("one two", "one and two"), ["one two", "one [and ]two"]);
  assert.deepEqual(marked("größer als 3", "größte als 3"), ["[größer] als 3", "[größte] als 3"]);
});

test("nothing is marked in lines that are equal, or have little in common", () => {
  assert.deepEqual(marked("same", "same"), ["same", "same"]);
  assert.deepEqual(marked("", "new"), ["", "new"]);
  assert.deepEqual(marked("x = read(path)", "for name in names:"), ["x = read(path)", "for name in names:"]);
});

test("a very long line is not compared", () => {
  const [before, after] = ["a ".repeat(400_000) + "x", "b ".repeat(400_000) + "x"];
  assert.deepEqual(changedWords(before, after), [[{ text: before, isChanged: false }], [{ text: after, isChanged: false }]]);
});
