"""What pip installs: the sdist, the wheel made from it, and an editable install, each used from
another directory, in an environment that sees nothing of this one but its dependencies."""

import ast
import os
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from eagleconv import __version__
from tests.test_upgrade_cli import REAL, ROOT


def call(*command: object, cwd: Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    result = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode != 0) is fails, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    (found,) = out.glob("*.whl")
    assert len(list(out.glob("*.tar.gz"))) == 1
    return found


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install into a new environment; return the directory of its programs.

    Dependencies come from this environment through a .pth file, which is searched last and does
    not follow this environment's own .pth files: eagleconv itself is not seen through it.
    """
    root = tmp_path_factory.mktemp(request.param)
    call(sys.executable, "-m", "venv", "--without-pip", root / "venv", cwd=root)
    bin_ = root / "venv" / "bin"
    what = [request.getfixturevalue("wheel")] if request.param == "wheel" else ["-e", ROOT]
    pip = (sys.executable, "-m", "pip", "--python", bin_ / "python")
    call(*pip, "install", "-q", "--no-deps", *what, cwd=root)
    (site,) = (root / "venv" / "lib").glob("python*/site-packages")
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "zz_dependencies.pth").write_text("\n".join(ours) + "\n")
    code = "import eagleconv, jsonschema; print(eagleconv.__file__)"
    found = Path(call(bin_ / "python", "-c", code, cwd=root).stdout.strip())
    assert found.is_relative_to(site if request.param == "wheel" else ROOT / "eagleconv")
    return bin_


def test_the_console_script_and_the_module_say_the_version(installed: Path, tmp_path: Path) -> None:
    for command in ([installed / "eagleconv"], [installed / "python", "-m", "eagleconv"]):
        said = call(*command, "--version", cwd=tmp_path).stdout
        assert said == f"eagleconv, version {__version__}\n"


def test_it_upgrades_and_verifies_from_another_directory(installed: Path, tmp_path: Path) -> None:
    command = installed / "eagleconv"
    call(command, "upgrade", REAL, "-o", "out", cwd=tmp_path)
    said = call(command, "verify", "out", cwd=tmp_path).stdout
    assert said == "out: 2 files and 15 tensors are as eagleconv.json says\n"
    manifest = tmp_path / "out" / "eagleconv.json"
    manifest.write_text(manifest.read_text().replace('"mode": "layout"', '"mode": "magic"'))
    refused = call(command, "verify", "out", cwd=tmp_path, fails=True)
    assert refused.returncode == 4
    assert 'eagleconv.json: mode is "magic", expected "layout"' in refused.stderr


def test_it_finds_every_schema(installed: Path, tmp_path: Path) -> None:
    names = [p.name.removesuffix(".schema.json") for p in (ROOT / "schemas").glob("*.json")]
    code = f"from eagleconv.checkpoint.schema import load; [load(n) for n in {names}]"
    call(installed / "python", "-c", code, cwd=tmp_path)


def test_the_wheel_holds_the_package_its_prompts_and_the_schemas_only(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        str(p.relative_to(ROOT))
        for p in (ROOT / "eagleconv").rglob("*")
        if p.suffix == ".py" or p.name == "py.typed"
    }
    expected.add("eagleconv/runtime/prompts.jsonl")
    expected |= {f"eagleconv/schemas/{p.name}" for p in (ROOT / "schemas").glob("*.json")}
    assert "eagleconv/py.typed" in expected
    assert {n for n in names if ".dist-info/" not in n} == expected
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)


def test_every_import_is_declared(wheel: Path) -> None:
    """The package imports nothing but the standard library and what its metadata names."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    core = {module(r) for r in needed if r.marker is None}
    extras = {module(r) for r in needed if r.marker is not None and "dev" not in str(r.marker)}
    assert {"click", "jsonschema", "torch"} <= core | extras
    for path in (ROOT / "eagleconv").rglob("*.py"):
        tree = ast.parse(path.read_text())
        allowed = {*sys.stdlib_module_names, "eagleconv", *core}
        if path.parent.name == "runtime":
            allowed |= {"torch"}  # asked for by the package before any of its modules is read
        assert modules(tree.body) <= allowed, path
        assert modules(list(ast.walk(tree))) <= allowed | extras, path


def module(requirement: Requirement) -> str:
    """Return the module a requirement brings; all are called like their distribution."""
    return requirement.name.lower().replace("-", "_")


def modules(nodes: list[ast.AST] | list[ast.stmt]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found
