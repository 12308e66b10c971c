// Files that come as scripts, so that a page that was opened from a disk can read them: base64, asked for when needed.
"use strict";

const SelectorAudit = { files: {}, data: {} }; // files: name -> base64; data: name -> value; filled by data/NAME.js

const waiting = {};

// Runs data/NAME.js once; a promise of it.
function needed(name) {
  waiting[name] ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onload = () => done();
    script.onerror = () => {
      delete waiting[name];
      failed(new Error(`data/${name}.js cannot be read; build the site again, or copy all of its folder`));
    };
    document.head.append(script);
  });
  return waiting[name];
}

// A value that a script gives.
async function value(name) {
  await needed(name);
  return SelectorAudit.data[name];
}

// Tensors of a safetensors file by name: {dtype, shape, bytes}. The format: length of the header (8 bytes), header, data.
async function tensors(name) {
  await needed(name);
  const letters = atob(SelectorAudit.files[name]);
  delete SelectorAudit.files[name];
  delete waiting[name];
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const start = 8 + new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
  const found = {};
  for (const [tensor, about] of Object.entries(header)) {
    if (tensor === "__metadata__") continue;
    const [from, to] = about.data_offsets;
    found[tensor] = { dtype: about.dtype, shape: about.shape, bytes: bytes.slice(start + from, start + to) };
  }
  return found;
}

// The numbers of a tensor as float32: of bfloat16 the upper halves of the same numbers.
function floats({ dtype, bytes }) {
  if (dtype === "F32") return new Float32Array(bytes.buffer);
  if (dtype !== "BF16") throw new Error(`a tensor is ${dtype}; this page reads F32 and BF16`);
  const halves = new Uint16Array(bytes.buffer);
  return new Float32Array(Uint32Array.from(halves, (half) => half << 16).buffer);
}
