"""Checks what no lint checks: file sizes, the lib.rs rule, dependency arrows, leftovers."""

import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINES_MAX = 600
UNSAFE_LINES_MAX = 300
PURE = {"ring/wire", "pool/ledger", "client/session", "numa/plan"}
MAY_BE_UNSAFE = {"ring/uring", "pool/region", "pool/transfer", "numa"}
ARROWS = {
    "maru-wire": set(),
    "maru-uring": set(),
    "maru-region": set(),
    "maru-transfer": set(),
    "maru-plan": set(),
    "maru-ledger": {"maru-wire"},
    "maru-session": {"maru-wire"},
    "maru-numa": {"maru-plan"},
    "maru-client": {"maru-session", "maru-wire", "maru-uring", "maru-transfer"},
}
PURE_CRATES = {"rkyv", "zerocopy", "blake3", "thiserror"}
LEFTOVERS = re.compile(r"\b(?:FIXME|XXX|TODO|HACK)\b|todo!\(|unimplemented!\(|#\[ignore|should_panic")
LIB_LINE = re.compile(
    r"^\s*(//.*|#!?\[.*|(pub(\([a-z ]+\))? )?(mod|use|extern crate) .*|[A-Za-z0-9_:, ]+,?|\};?|\{|\)\]|)$"
)


def tracked(pattern: str) -> list[pathlib.Path]:
    """Lists the files that git tracks or would track."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", pattern],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def member_of(path: pathlib.Path) -> str:
    """Names the workspace member that a source file belongs to."""
    for parent in path.parents:
        if (parent / "Cargo.toml").is_file():
            return str(parent.relative_to(ROOT))
    return "."


def check_sources(errors: list[str]) -> None:
    for path in tracked("*.rs") + tracked("*.py"):
        name = path.relative_to(ROOT)
        text = path.read_text()
        lines = text.count("\n")
        is_test = "tests" in name.parts or path.name.endswith("tests.rs")
        if lines > LINES_MAX:
            errors.append(f"{name}: {lines} lines, at most {LINES_MAX}; split it by role")
        if path.suffix != ".rs":
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if LEFTOVERS.search(line):
                errors.append(f"{name}:{number}: leftover: {line.strip()}")
        member = member_of(path)
        if re.search(r"\bunsafe\s*(\{|fn|impl|extern)", text) and not is_test:
            if member not in MAY_BE_UNSAFE and "fuzz" not in name.parts:
                errors.append(f"{name}: unsafe code belongs in {sorted(MAY_BE_UNSAFE)}")
            if lines > UNSAFE_LINES_MAX:
                errors.append(f"{name}: {lines} lines with unsafe, at most {UNSAFE_LINES_MAX}")
        if path.name in ("lib.rs", "mod.rs") and "src" in name.parts and "fuzz" not in name.parts:
            for number, line in enumerate(text.split("\n"), 1):
                if not LIB_LINE.match(line):
                    errors.append(f"{name}:{number}: only docs, mod and use here: {line.strip()}")


# Other runtimes, and what needs a C library, stay out of the server's default build.
NOT_IN_SERVER = {"tokio", "glommio", "tokio-uring", "hwlocality", "hwlocality-sys", "nixl-sys"}


def check_arrows(errors: list[str]) -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())
    for member in workspace["workspace"]["members"]:
        manifest = tomllib.loads((ROOT / member / "Cargo.toml").read_text())
        crate = manifest["package"]["name"]
        needs = set(manifest.get("dependencies", {}))
        ours = {name for name in needs if name.startswith("maru-")}
        for name in sorted(ours - ARROWS.get(crate, ours)):
            errors.append(f"{member}: {crate} must not depend on {name}")
        if member in PURE:
            for name in sorted(needs - ours - PURE_CRATES):
                errors.append(f"{member}: a pure crate must not depend on {name}")
            library = (ROOT / member / "src/lib.rs").read_text()
            for attribute in ("#![no_std]", "#![forbid(unsafe_code)]"):
                if attribute not in library:
                    errors.append(f"{member}/src/lib.rs: {attribute} is missing")
        if manifest.get("lints", {}).get("workspace") is not True:
            errors.append(f"{member}/Cargo.toml: [lints] workspace = true is missing")


def check_dependency_notes(errors: list[str]) -> None:
    notes = (ROOT / "docs/decisions/dependencies.md").read_text()
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())
    for name in workspace["workspace"]["dependencies"]:
        if not name.startswith("maru-") and f"| {name} |" not in notes:
            errors.append(f"docs/decisions/dependencies.md: no line says why {name} is here")


def check_server_tree(errors: list[str]) -> None:
    command = ["cargo", "tree", "--locked", "-p", "maru-shardd", "-e", "normal", "--prefix", "none"]
    tree = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if tree.returncode != 0:
        errors.append(f"cargo tree: {tree.stderr.strip()}")
    crates = {line.split()[0] for line in tree.stdout.splitlines() if line.strip()}
    for name in sorted(crates & NOT_IN_SERVER):
        errors.append(f"shard/daemon: the server must not depend on {name}")


def main() -> int:
    errors: list[str] = []
    check_sources(errors)
    check_arrows(errors)
    check_dependency_notes(errors)
    check_server_tree(errors)
    for error in errors:
        print(error)
    print(f"tidy: {len(errors)} findings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
