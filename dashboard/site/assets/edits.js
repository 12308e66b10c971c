// Edits: which rows go, by scores or by a refusal edit's lambda and k, as the engine chooses them; and their controls.
"use strict";

// round(rate * rows), halves to the even number as the engine has it.
function removedCount(rate, rows) {
  const exact = rate * rows;
  const below = Math.floor(exact);
  return exact - below === 0.5 ? below + (below % 2) : Math.round(exact);
}

// The first `count` rows, lowest numbers first, or highest; equal ones by their row id. Uint8Array [rows], 1 = removed.
function firstRows(numbers, count, highestFirst) {
  const sign = highestFirst ? -1 : 1;
  const order = Uint32Array.from(numbers, (_, row) => row).sort((a, b) => sign * (numbers[a] - numbers[b]) || a - b);
  const removed = new Uint8Array(numbers.length);
  for (const row of order.subarray(0, count)) removed[row] = 1;
  return removed;
}

// The rows with the largest S = C_comply - lambda * r(I_lm); k: their share of all rows.
function byRefusal(comply, rank, lambda, k) {
  const s = Float64Array.from(comply, (value, row) => value - lambda * rank[row]);
  return firstRows(s, removedCount(k, s.length), true);
}

// Numbers in [0, 1) from a seed (mulberry32).
function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// As many rows as `removed` has in every layer, drawn at random. layers: [block, projection, first row, rows].
function layerMatched(removed, layers, seed) {
  const random = seeded(seed);
  const drawn = new Uint8Array(removed.length);
  for (const [, , first, rows] of layers) {
    const places = Uint32Array.from({ length: rows }, (_, i) => first + i);
    const count = removed.subarray(first, first + rows).reduce((sum, one) => sum + one, 0);
    for (let i = 0; i < count; i++) {
      const other = i + Math.floor(random() * (rows - i));
      [places[i], places[other]] = [places[other], places[i]];
      drawn[places[i]] = 1;
    }
  }
  return drawn;
}

// Of every projection: rows removed and rows. Map projection -> [removed, rows]
function perProjection(removed, layers) {
  const counts = new Map();
  for (const [, name, first, rows] of layers) {
    const [gone, all] = counts.get(name) ?? [0, 0];
    counts.set(name, [gone + removed.subarray(first, first + rows).reduce((sum, one) => sum + one, 0), all + rows]);
  }
  return counts;
}
