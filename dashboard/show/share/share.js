// Draws the card on a canvas and saves it. Texts are drawn as they are: nothing of them is markup.

const told = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("card");
const pen = canvas.getContext("2d");
const FACE = "system-ui, sans-serif";
const WIDTH = 1200;
const HEIGHT = 630;
const EDGE = 36;

// The lines of a text that fit: words, and letters where a word is wider; the last ends in … where more would come.
function lines(text, width, most) {
  const found = [""];
  for (const piece of text.match(/\n|[^\s]+\s*|[^\S\n]+/gu) ?? []) {
    if (piece === "\n") found.push("");
    for (const part of pen.measureText(piece).width > width ? piece : piece === "\n" ? [] : [piece]) {
      if (found.at(-1) && pen.measureText((found.at(-1) + part).trimEnd()).width > width) found.push("");
      found[found.length - 1] += part;
    }
    if (piece.endsWith("\n") && piece !== "\n") found.push("");
  }
  return found.length > most ? [...found.slice(0, most - 1), `${found[most - 1].slice(0, -1)}…`] : found;
}

function write(text, x, y, width, size, most, style = "", colour = "#111") {
  pen.font = `${style} ${size}px ${FACE}`;
  pen.fillStyle = colour;
  const written = lines(text, width, most);
  written.forEach((line, place) => pen.fillText(line, x, y + (place + 0.8) * 1.3 * size));
  return y + written.length * 1.3 * size;
}

pen.scale(canvas.width / WIDTH, canvas.height / HEIGHT);
pen.fillStyle = "#fff";
pen.fillRect(0, 0, WIDTH, HEIGHT);
const head = write(told.prompt, EDGE, EDGE - 8, WIDTH - 2 * EDGE, 32, 2, "700") + 16;
const gap = 20;
const wide = (WIDTH - 2 * EDGE - gap * (told.columns.length - 1)) / told.columns.length;
const high = HEIGHT - head - 84;
told.columns.forEach((one, place) => {
  const x = EDGE + place * (wide + gap);
  pen.fillStyle = "#f4f5f8";
  pen.beginPath();
  pen.roundRect(x, head, wide, high, 12);
  pen.fill();
  let y = write(one.title, x + 16, head + 10, wide - 32, 22, 2, "600") + 6;
  pen.font = `700 22px ${FACE}`;
  pen.fillStyle = one.colour;
  pen.beginPath();
  pen.roundRect(x + 16, y, pen.measureText(one.stamp).width + 24, 36, 8);
  pen.fill();
  write(one.stamp, x + 28, y + 3, wide - 32, 22, 1, "700", "#fff");
  y += 46;
  write(one.text, x + 16, y, wide - 32, 22, Math.floor((head + high - y - 8) / 28.6));
});
const foot = write(told.edit, EDGE, HEIGHT - 74, WIDTH - 2 * EDGE, 20, 1, "600");
write(told.link, EDGE, foot + 2, WIDTH - 2 * EDGE, 15, 1, "", "#555");
canvas.setAttribute("aria-label", told.columns.map((one) => `${one.title}, ${one.stamp}: ${one.text}`).join("; "));
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = canvas.toDataURL("image/png");
  link.download = "replies.png";
  link.click();
});
