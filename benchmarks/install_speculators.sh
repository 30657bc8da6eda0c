#!/usr/bin/env bash
# Create .venv-speculators: the peer that benchmarks/peers.py runs beside eagleconv.
#
# Needs only python3 (3.11 or newer) with venv and pip. Running it again is free until this
# script changes; then the environment is built anew. About 2 minutes and 1.5 GB.
set -euo pipefail

SPECULATORS=speculators==0.9.0
TORCH=torch==2.13.0
quiet=-qq  # errors only

cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=.venv-speculators
stamp=$venv/install.sha256
python=$venv/bin/python
wanted=$(sha256sum benchmarks/install_speculators.sh | cut -d' ' -f1)

if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && [ -x "$python" ]; then
    echo "$venv is up to date"
    exit 0
fi

rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
echo '*' >"$venv/.gitignore"
wheels=$venv/wheels
mkdir "$wheels"

"$python" -m pip install $quiet "$TORCH" packaging
"$python" -m pip download $quiet --no-deps --dest "$wheels" "$SPECULATORS"

# The wheel asks for torchvision and torchaudio, which `speculators convert` never touches and
# which do not import beside a CPU torch; everything else it asks for is taken as it stands.
"$python" - "$wheels" >"$wheels/requirements.txt" <<'PYTHON'
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

SKIPPED = {"torch", "torchvision", "torchaudio"}

(wheel,) = Path(sys.argv[1]).glob("speculators-*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(archive.read(name).decode())
for line in metadata.get_all("Requires-Dist", []):
    requirement = Requirement(line)
    marker = requirement.marker
    if requirement.name in SKIPPED or (marker and not marker.evaluate({"extra": ""})):
        continue
    requirement.marker = None
    print(requirement)
PYTHON

"$python" -m pip install $quiet "$TORCH" -r "$wheels/requirements.txt"
"$python" -m pip install $quiet --no-deps "$wheels"/speculators-*.whl
rm -rf "$wheels"

"$python" -c 'import importlib.metadata as m, torch; print("speculators", m.version("speculators"), "torch", torch.__version__)'
echo "$wanted" >"$stamp"
