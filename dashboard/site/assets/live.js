// The model in this browser: loaded when it is wanted, its edits with what was measured of them, and replies side by side.
"use strict";

const PAUSE_AFTER_MS = 12; // of computing, so that the page stays awake
let session = null;
let stored = null;

// {model, tokenizer, data, onsets}; once.
function loaded() {
  session ??= load().catch((error) => {
    session = null;
    throw error;
  });
  return session;
}

async function load() {
  const [data, file, files] = await Promise.all([value("live"), value("tokenizer"), tensors("model.safetensors")]);
  const tokenizer = new Tokenizer(file);
  const first = (phrases) => new Set(phrases.map((phrase) => tokenizer.encode(phrase)[0]));
  const [refusal, compliance] = [first(data.phrases.refusal), first(data.phrases.compliance)];
  const onsets = {
    refusal: [...refusal].filter((id) => !compliance.has(id)),
    compliance: [...compliance].filter((id) => !refusal.has(id)),
  };
  return { data, tokenizer, onsets, model: new Model(files, data.config, data.layers) };
}

// The rows that an edit removes, Uint8Array [rows]. edit: {selector, order, rate} or {selector, domain, lambda, k}.
async function rowsOf(edit) {
  stored ??= Promise.all(["scores.safetensors", "contrast.safetensors"].map(tensors));
  const [scores, contrasts] = await stored;
  if (edit.domain) {
    const [comply, rank] = [`${edit.selector}/${edit.domain}/c_comply`, `${edit.selector}/lm_rank`];
    return byRefusal(numbers(contrasts, comply), numbers(contrasts, rank), edit.lambda, edit.k);
  }
  const all = numbers(scores, edit.selector);
  const [length] = scores[edit.selector].shape.slice(-1);
  const first = all.subarray(0, length); // of a seeded selector the first seed's
  return firstRows(first, removedCount(edit.rate, length), edit.order === "morf");
}

function numbers(files, name) {
  files[name].floats ??= floats(files[name]);
  return files[name].floats;
}

// [what becomes of it, the sentence that says what was measured]; an edit that was not measured is not answered.
function effectOf(data, edit) {
  const settings = edit.domain ? [edit.domain, edit.lambda, edit.k] : [edit.order, edit.rate];
  return data.effects[[edit.selector, ...settings].join(" ")] ?? ["lowered", "Not answered: what this edit does to refusal was not measured."];
}

const channel = new MessageChannel();
const resumed = [];
channel.port1.onmessage = () => resumed.shift()?.();

function pause() {
  return new Promise((done) => {
    resumed.push(done);
    channel.port2.postMessage(null);
  });
}

// Replies of all sides, a token each in turn. sides: name -> rows removed, or null. show(name, {text, margin, tokens, finished,
// ids}) at every token; finished: undefined while it is written. stopped(): true ends them. Returns tokens per second.
async function replies({ model, tokenizer, data, onsets }, prompt, sides, most, show, stopped = () => false) {
  const ids = tokenizer.chat(prompt);
  if (ids.length + most > model.context) {
    throw new Error(`a prompt of ${ids.length} tokens and ${most} new ones exceed the model's context of ${model.context}; shorten it`);
  }
  const writing = Object.entries(sides).map(([name, removed]) => ({
    name, ids: [], tokens: reply(model, ids, removed, most, data.ends),
  }));
  const began = performance.now();
  let resting = began;
  let count = 0;
  while (writing.length) {
    for (const side of [...writing]) {
      if (stopped()) return 0;
      const { value: step, done } = side.tokens.next();
      if (step.first) side.margin = margin(step.logits, onsets);
      if (done) writing.splice(writing.indexOf(side), 1);
      else side.ids.push(step.token);
      count++;
      const text = tokenizer.decode(side.ids);
      const shown = done ? text : text.replace(/\ufffd+$/, ""); // a letter may come in several tokens
      show(side.name, { text: shown, margin: side.margin, tokens: side.ids.length, ids: side.ids, finished: done ? step.finished : undefined });
      if (performance.now() - resting > PAUSE_AFTER_MS) {
        await pause();
        resting = performance.now();
      }
    }
  }
  return (1000 * count) / (performance.now() - began);
}
