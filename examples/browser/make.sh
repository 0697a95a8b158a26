#!/usr/bin/env bash
# make.sh RUN FOLDER: makes the page in FOLDER, with the model of a run on Fashion-MNIST.
#
# LOCKSTEP: the tool [lockstep]. FASHION_MNIST: the folder of the data set [where Debian's package has it].
# ONNXRUNTIME_WEB: the folder of the npm package [installed by npm beside the page].
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: make.sh RUN FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
run=$1 folder=$2
mkdir -p "$folder/ort"
"${LOCKSTEP:-lockstep}" export --run "$run" --pixels "$folder/model.onnx"
package=${ONNXRUNTIME_WEB:-}
if [ -z "$package" ]; then
  npm install --prefix "$folder" --ignore-scripts --no-save onnxruntime-web
  package=$folder/node_modules/onnxruntime-web
fi
cp "$package/dist/ort.wasm.bundle.min.mjs" "$package/dist/ort-wasm-simd-threaded.wasm" "$folder/ort"
cp "$here/index.html" "$here/classify.mjs" "$folder"
cp "${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}"/t10k-{images-idx3,labels-idx1}-ubyte.gz "$folder"
echo "python3 -m http.server --directory $folder    # then open http://localhost:8000"
