"""The pre-commit hook, installed from this repository into a scratch one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.test_upgrade_cli import ROOT

FAILING, PASSING = ("fixtures/invalid/both-norms", "fixtures/valid/specforge")


def call(*command: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    # A hook that runs these tests has its own repository in its environment.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | more
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def git(repository: Path, *args: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = call("git", *identity, *args, cwd=repository)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository with two drafters that uses the hook as it is committed here."""
    if not (ROOT / ".git").exists():
        pytest.skip("pre-commit installs a hook from a repository, and this is none")
    root = tmp_path_factory.mktemp("repository")
    for source, name in ((FAILING, "failing"), (PASSING, "passing")):
        shutil.copytree(ROOT / source, root / "drafters" / name)
    (root / "other.json").write_text("{}\n")
    hook = {"id": "eagleconv-validate", "verbose": True}
    used = {"repo": str(ROOT), "rev": git(ROOT, "rev-parse", "HEAD"), "hooks": [hook]}
    (root / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [used]}))
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "drafters")
    return root


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return where pre-commit keeps the environment, which is made once."""
    return str(tmp_path_factory.mktemp("pre-commit"))


def hook(repository: Path, home: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pre_commit", "run", "--color=never", *args)
    return call(*command, cwd=repository, PRE_COMMIT_HOME=home)


def test_a_checkpoint_that_fails_stops_the_commit(repository: Path, home: str) -> None:
    done = hook(repository, home, "--all-files")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "exit code: 1" in done.stdout
    # Each checkpoint once, however many of its files are named.
    assert done.stdout.count("\ndrafters/failing\n") == 1
    assert done.stdout.count("\ndrafters/passing\n") == 1
    assert "error    ECC002 both-input-norms" in done.stdout
    assert "other.json" not in done.stdout


def test_a_change_of_one_file_checks_its_checkpoint_only(repository: Path, home: str) -> None:
    done = hook(repository, home, "--files", "drafters/passing/config.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "drafters/passing" in done.stdout
    assert "failing" not in done.stdout
    none = hook(repository, home, "--files", "other.json")
    assert none.returncode == 0
    assert "no files to check" in none.stdout


def test_the_hook_is_a_command_of_ours() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "eagleconv validate"
    manifest = str(ROOT / ".pre-commit-hooks.yaml")
    done = call(sys.executable, "-m", "pre_commit", "validate-manifest", manifest, cwd=ROOT)
    assert done.returncode == 0, done.stdout
