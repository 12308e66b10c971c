// The model's tokenizer, byte-level BPE as tokenizer.json describes it, and its chat template.
"use strict";

// White space as Unicode has it (JavaScript's \s has U+FEFF and lacks U+0085).
const SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
// GPT-2's pieces: endings, words, numbers, signs, blanks but for the last before a word.
const PIECES = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|[${SPACE}]+(?![^${SPACE}])|[${SPACE}]+`,
  "gu",
);
const DIGITS = /\p{N}|\P{N}+/gu; // every digit stands alone

// The letter that stands for each byte: printable ones for themselves, the others from U+0100 on.
function byteLetters() {
  const letters = [];
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const plain = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    letters.push(String.fromCharCode(plain ? byte : next++));
  }
  return letters;
}

class Tokenizer {
  constructor(file) {
    const { model, added_tokens: added, pre_tokenizer: pre, normalizer } = file;
    const kinds = (pre?.pretokenizers ?? []).map(({ type }) => type).join();
    if (model.type !== "BPE" || normalizer || kinds !== "Digits,ByteLevel") {
      throw new Error("this page reads a byte-level BPE with single digits and no normalizer; the tokenizer is another");
    }
    this.ids = new Map(Object.entries(model.vocab));
    this.tokens = [];
    for (const [token, id] of this.ids) this.tokens[id] = token;
    this.ranks = new Map(model.merges.map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]));
    this.special = new Map(added.map(({ content, id }) => [content, id]));
    this.specialIds = new Set(this.special.values());
    const escaped = [...this.special.keys()].map((one) => one.replace(/[|\\{}()[\]^$+*?.]/g, "\\$&"));
    this.marks = new RegExp(`(${escaped.sort((a, b) => b.length - a.length).join("|")})`, "u");
    this.letters = byteLetters();
    this.bytes = new Map(this.letters.map((letter, byte) => [letter, byte]));
    this.known = new Map(); // piece -> ids
  }

  // Text -> token ids. Marks such as <|end|> are tokens of their own wherever they stand.
  encode(text) {
    const ids = [];
    for (const part of text.split(this.marks)) {
      if (this.special.has(part)) ids.push(this.special.get(part));
      else
        for (const run of part.match(DIGITS) ?? [])
          for (const piece of run.match(PIECES) ?? []) ids.push(...this.piece(piece));
    }
    return ids;
  }

  piece(text) {
    if (!this.known.has(text)) {
      const letters = Array.from(new TextEncoder().encode(text), (byte) => this.letters[byte]);
      this.known.set(text, this.merged(letters).map((token) => this.ids.get(token)));
    }
    return this.known.get(text);
  }

  // Joins the neighbours that were joined first in training, the leftmost of equals, until none is left.
  merged(parts) {
    for (;;) {
      let best = Infinity;
      let place = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, place] = [rank, i];
      }
      if (place < 0) return parts;
      parts.splice(place, 2, parts[place] + parts[place + 1]);
    }
  }

  // Token ids -> text, without marks. Bytes that are no UTF-8 (yet) become U+FFFD.
  decode(ids) {
    const bytes = [];
    for (const id of ids) {
      if (this.specialIds.has(id)) continue;
      for (const letter of this.tokens[id]) bytes.push(this.bytes.get(letter));
    }
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
  }

  // A prompt up to where the reply begins: the model's chat template for one turn of the user.
  chat(prompt) {
    return this.encode(`<|bos|><|user|>${prompt}<|end|><|assistant|>`);
  }
}
