// The Llama of the shipped model: forward pass with a cache of keys and values, in float32 with sums in float64.
"use strict";

// y[i] = W[i,:] . x for every row that is not removed; 0 for one that is. removed: per row of the model, from `first` on.
function product(weight, x, y, removed, first) {
  const width = x.length;
  for (let row = 0, at = 0; row < y.length; row++, at += width) {
    if (removed !== null && removed[first + row]) {
      y[row] = 0;
      continue;
    }
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    for (let i = 0; i < width; i += 4) {
      a += weight[at + i] * x[i];
      b += weight[at + i + 1] * x[i + 1];
      c += weight[at + i + 2] * x[i + 2];
      d += weight[at + i + 3] * x[i + 3];
    }
    y[row] = a + b + (c + d);
  }
}

// RMSNorm: x / sqrt(mean of squares + epsilon) * weight
function normed(x, weight, epsilon, y) {
  let sum = 0;
  for (const value of x) sum += value * value;
  const scale = Math.fround(1 / Math.sqrt(sum / x.length + epsilon));
  for (let i = 0; i < x.length; i++) y[i] = weight[i] * Math.fround(x[i] * scale);
}

class Model {
  // files: tensors of model.safetensors; config: of config.json; layers: [block, projection, first row, rows] of every Linear.
  constructor(files, config, layers) {
    const weight = (name) => floats(files[name]);
    Object.assign(this, {
      heads: config.num_attention_heads, groups: config.num_key_value_heads, wide: config.head_dim,
      hidden: config.hidden_size, epsilon: config.rms_norm_eps, context: config.max_position_embeddings,
    });
    if (config.model_type !== "llama" || !config.tie_word_embeddings || config.attention_bias || config.mlp_bias || config.hidden_size % 4) {
      throw new Error("this page runs a Llama with tied embeddings and no biases; the model is another");
    }
    this.embeddings = weight("model.embed_tokens.weight");
    this.last = weight("model.norm.weight");
    this.blocks = Array.from({ length: config.num_hidden_layers }, (_, number) => {
      const block = {
        before: weight(`model.layers.${number}.input_layernorm.weight`),
        after: weight(`model.layers.${number}.post_attention_layernorm.weight`),
      };
      for (const [of, name, first, rows] of layers) {
        if (of !== number) continue;
        const part = /^[qkvo]_/.test(name) ? "self_attn" : "mlp";
        block[name] = { weight: weight(`model.layers.${number}.${part}.${name}.weight`), first, output: new Float32Array(rows) };
      }
      return block;
    });
    const { hidden, wide } = this;
    this.x = new Float32Array(hidden);
    this.y = new Float32Array(hidden);
    this.mixed = new Float32Array(this.heads * wide);
    this.inner = new Float32Array(config.intermediate_size);
    this.logits = new Float32Array(config.vocab_size);
    const theta = config.rope_parameters?.rope_theta ?? config.rope_theta;
    this.speeds = Array.from({ length: wide / 2 }, (_, i) => Math.fround(1 / Math.fround(theta ** ((2 * i) / wide))));
  }

  // An empty cache for as many tokens.
  cache(length) {
    const size = length * this.groups * this.wide;
    return { length: 0, blocks: this.blocks.map(() => ({ keys: new Float32Array(size), values: new Float32Array(size) })) };
  }

  // One token more. removed: Uint8Array [rows], 1 where a row is zeroed, or null. Returns the logits where they are `wanted`.
  step(token, cache, removed, wanted) {
    const { x, y, hidden, epsilon } = this;
    x.set(this.embeddings.subarray(token * hidden, (token + 1) * hidden));
    this.blocks.forEach((block, number) => {
      normed(x, block.before, epsilon, y);
      const [k, v] = [this.run(block.k_proj, y, removed), this.run(block.v_proj, y, removed)];
      this.keep(k, v, cache.blocks[number], cache.length);
      if (!wanted && number === this.blocks.length - 1) return; // nothing else of this token is read
      this.attend(this.run(block.q_proj, y, removed), cache.blocks[number], cache.length);
      this.add(this.run(block.o_proj, this.mixed, removed));
      normed(x, block.after, epsilon, y);
      const gate = this.run(block.gate_proj, y, removed);
      const up = this.run(block.up_proj, y, removed);
      for (let i = 0; i < gate.length; i++) this.inner[i] = Math.fround(gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
      this.add(this.run(block.down_proj, this.inner, removed));
    });
    cache.length++;
    if (!wanted) return null;
    normed(x, this.last, epsilon, y);
    product(this.embeddings, y, this.logits, null, 0);
    return this.logits;
  }

  run({ weight, first, output }, input, removed) {
    product(weight, input, output, removed, first);
    return output;
  }

  add(values) {
    for (let i = 0; i < values.length; i++) this.x[i] += values[i];
  }

  keep(k, v, { keys, values }, place) {
    this.turn(k, place);
    keys.set(k, place * k.length);
    values.set(v, place * v.length);
  }

  // Causal attention of one token over the cache, several heads to a group of keys and values.
  attend(q, { keys, values }, place) {
    const { wide, heads, groups, mixed } = this;
    const row = groups * wide;
    this.turn(q, place);
    const weights = new Float64Array(place + 1);
    for (let head = 0; head < heads; head++) {
      const group = Math.floor((head * groups) / heads) * wide;
      let highest = -Infinity;
      for (let t = 0; t <= place; t++) {
        let sum = 0;
        for (let i = 0; i < wide; i++) sum += q[head * wide + i] * keys[t * row + group + i];
        weights[t] = sum / Math.sqrt(wide);
        if (weights[t] > highest) highest = weights[t];
      }
      let total = 0;
      for (let t = 0; t <= place; t++) total += weights[t] = Math.exp(weights[t] - highest);
      for (let i = 0; i < wide; i++) {
        let sum = 0;
        for (let t = 0; t <= place; t++) sum += weights[t] * values[t * row + group + i];
        mixed[head * wide + i] = sum / total;
      }
    }
  }

  // Rotary positions, in place: pairs are halves of a head apart.
  turn(vector, place) {
    const half = this.wide / 2;
    for (let i = 0; i < half; i++) {
      const angle = Math.fround(place * this.speeds[i]);
      const cos = Math.fround(Math.cos(angle));
      const sin = Math.fround(Math.sin(angle));
      for (let at = i; at < vector.length; at += this.wide) {
        const [a, b] = [vector[at], vector[at + half]];
        vector[at] = a * cos - b * sin;
        vector[at + half] = b * cos + a * sin;
      }
    }
  }
}

function highest(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

// A greedy reply, a token at each call of next(): {token, logits, first}; logits are overwritten by any other pass. It ends with
// an end token, which is not given, or after `most` tokens; the return value says whether it ended by itself.
function* reply(model, prompt, removed, most, ends) {
  const cache = model.cache(prompt.length + most);
  let logits = null;
  prompt.forEach((token, i) => (logits = model.step(token, cache, removed, i === prompt.length - 1)));
  for (let count = 0; count < most; count++) {
    if (count > 0) logits = model.step(cache.token, cache, removed, true);
    cache.token = highest(logits);
    if (ends.includes(cache.token)) return { logits, finished: true, first: count === 0 };
    yield { token: cache.token, logits, first: count === 0 };
  }
  return { logits, finished: false, first: false };
}

// m = mean of the logits with which refusals begin - mean of those with which answers begin
function margin(logits, { refusal, compliance }) {
  const mean = (ids) => ids.reduce((sum, id) => sum + logits[id], 0) / ids.length;
  return mean(refusal) - mean(compliance);
}
