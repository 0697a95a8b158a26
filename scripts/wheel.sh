#!/usr/bin/env bash
# wheel.sh FOLDER: shows that pip builds a wheel in the build folder, installs it in a new environment without NumPy, and
# that a program far from the tree trains with it. ./test wheel calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

build=$1 folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=$(sed -n 's/^Python3_EXECUTABLE:[A-Z]*=//p' "$build/CMakeCache.txt")
[ -x "$python" ] || python=/usr/bin/python3
quietly "$python" -m pip --disable-pip-version-check wheel . --no-build-isolation --no-deps --wheel-dir "$folder" \
  --config-settings build-dir="$build"
wheel=$(ls "$folder"/*.whl)
say "${wheel##*/}: $(stat -c %s "$wheel") bytes"
quietly "$python" -m venv "$folder/environment"
quietly "$folder/environment/bin/pip" --disable-pip-version-check install --no-index "$wheel"
cd /
"$folder/environment/bin/python" - <<'PYTHON'
import sys
import lockstep as torch
from lockstep import nn

torch.set_devices(2)
torch.manual_seed(1)
x = torch.rand(512, 2)
labels = ((x - 0.5).square().sum(1) < 0.1).long()
net = nn.DataParallel(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
first = last = None
for _ in range(300):
    loss = nn.functional.cross_entropy(net(x), labels)
    loss.backward()
    optimizer.step()
    last = loss.item()
    first = last if first is None else first
assert last < 0.8 * first, (first, last)
assert "numpy" not in sys.modules
print(f"lockstep: wheel: Python {sys.version.split()[0]}, {torch.__file__}: the loss went from {first:.3f} to {last:.3f}")
PYTHON
