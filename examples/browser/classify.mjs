// Runs model.onnx, which takes bytes [batch, 28, 28, 1] and gives probabilities [batch, 10], on the test pictures.
// index.html?count=1000 takes the first thousand of them.
import * as ort from "./ort/ort.wasm.bundle.min.mjs";

const names = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"];
const batchSize = 100, shown = 40, size = 28 * 28;
const state = document.getElementById("state");

// The bytes of a file of Fashion-MNIST behind its header.
async function unpacked(file, header) {
  const response = await fetch(file);
  if (!response.ok) throw new Error(`${file}: ${response.status} ${response.statusText}`);
  const stream = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer()).subarray(header);
}

function show(pixels, label, guess, probability) {
  const figure = document.createElement("figure"), canvas = document.createElement("canvas");
  canvas.width = canvas.height = 28;
  const context = canvas.getContext("2d"), image = context.createImageData(28, 28);
  pixels.forEach((value, i) => image.data.set([value, value, value, 255], 4 * i));
  context.putImageData(image, 0, 0);
  const caption = document.createElement("figcaption");
  const right = guess === label;
  caption.textContent = `${names[guess]}, ${(100 * probability).toFixed(0)} %` + (right ? "" : ` (it is a ${names[label]})`);
  caption.className = right ? "right" : "wrong";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", names[label]);
  figure.append(canvas, caption);
  document.getElementById("pictures").append(figure);
}

async function main() {
  ort.env.wasm.numThreads = 1;  // more need a server that isolates the page
  const [session, pixels, labels] = await Promise.all([
    ort.InferenceSession.create("model.onnx", {executionProviders: ["wasm"]}),
    unpacked("t10k-images-idx3-ubyte.gz", 16),
    unpacked("t10k-labels-idx1-ubyte.gz", 8),
  ]);
  const count = Math.min(Number(new URLSearchParams(location.search).get("count") ?? labels.length), labels.length);
  let right = 0;
  const begin = performance.now();
  for (let first = 0; first < count; first += batchSize) {
    const n = Math.min(batchSize, count - first);
    const part = pixels.slice(first * size, (first + n) * size);
    const output = await session.run({pixels: new ort.Tensor("uint8", part, [n, 28, 28, 1])});
    for (let i = 0; i < n; ++i) {
      const probabilities = output.probabilities.data.subarray(names.length * i, names.length * (i + 1));
      const guess = probabilities.indexOf(Math.max(...probabilities)), label = labels[first + i];
      right += guess === label ? 1 : 0;
      if (first + i < shown) show(part.subarray(i * size, (i + 1) * size), label, guess, probabilities[guess]);
    }
    state.textContent = `${first + n} of ${count} pictures…`;
  }
  const seconds = (performance.now() - begin) / 1000;
  state.textContent = `${right} of ${count} pictures are right, in ${seconds.toFixed(1)} seconds.`;
}

main().catch((error) => { state.textContent = `Error: ${error.message}`; });
