"""The schemas are schemas, and what we write fits them; they are in the wheel."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest

from tests.test_upgrade_cli import REAL, ROOT, run

SCHEMAS = sorted((ROOT / "schemas").glob("*.json"))


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_schema_is_a_schema(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


def test_inspect_fits_the_report_schema() -> None:
    schema = json.loads((ROOT / "schemas" / "report.schema.json").read_text())
    report = json.loads(run("inspect", str(REAL), "--format", "json").stdout)
    jsonschema.validate(report, schema)
    del report["summary"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)


def test_the_manifest_fits_its_schema(tmp_path: Path) -> None:
    assert run("upgrade", str(REAL), "-o", str(tmp_path / "out")).returncode == 0
    schema = json.loads((ROOT / "schemas" / "eagleconv.schema.json").read_text())
    jsonschema.validate(json.loads((tmp_path / "out" / "eagleconv.json").read_text()), schema)


def test_schemas_are_in_the_wheel(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    for path in SCHEMAS:
        assert f"eagleconv/schemas/{path.name}" in names
