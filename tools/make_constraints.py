"""Write constraints.txt from pyproject.toml.

It has one version of every package that a full installation pulls in, as pip resolves it. Without
options every version stays as it is and only what came or went with pyproject.toml changes:

    python tools/make_constraints.py
    python tools/make_constraints.py --newest pandas --newest ray    # resolve these two again
    python tools/make_constraints.py --newest all                    # everything but what is held

What is held is only renewed when it is named.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
#: The extras of a full installation, in the Makefile's order.
EXTRAS = ("notebooks", "corpora", "dense", "cluster", "gguf", "large", "docs", "dev")
#: What only some tests need: other makers' search libraries, and what is built for minutes.
BESIDE = ("doors", "llama")
#: torch's CPU build, which the tests run on, often comes from an index of its own. With 4.25 or
#: later of jsonschema Jupyter's servers and Ray's workers take two seconds longer to start: its new
#: check of addresses builds a parser.
HELD = ("torch", "jsonschema")


def project() -> dict[str, Any]:
    """The ``project`` table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return table


def requirements(table: Mapping[str, Any], extras: Sequence[str] = (*EXTRAS, *BESIDE)) -> list[str]:
    """What an installation with these extras asks for, as written in pyproject.toml."""
    asked = table["optional-dependencies"]
    return list(
        dict.fromkeys([*table["dependencies"], *(r for extra in extras for r in asked[extra])])
    )


def pins(text: str) -> dict[str, str]:
    """Versions by canonical name, from the text of a constraints file."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {
        str(canonicalize_name(name)): version
        for name, version in (line.split("==") for line in lines if line)
    }


def resolve(keep: Mapping[str, str]) -> dict[str, str]:
    """Versions by name of all that pip would install into an empty environment, with ``keep`` as
    constraints.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, constraints = Path(folder, "report.json"), Path(folder, "constraints.txt")
        constraints.write_text(
            "".join(f"{name}=={version}\n" for name, version in keep.items()), encoding="utf-8"
        )
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        options = [
            "--constraint",
            str(constraints),
            "--report",
            str(report),
            f"{ROOT}[{','.join([*EXTRAS, *BESIDE])}]",
        ]
        subprocess.run([*pip, *options], check=True)
        found = [
            one["metadata"] for one in json.loads(report.read_text(encoding="utf-8"))["install"]
        ]
    # A local version ("2.13.0+cpu") names a build, and other machines take another build of the
    # same version.
    return {
        one["name"]: Version(one["version"]).public
        for one in found
        if one["name"] != project()["name"]
    }


def constraints_text(versions: Mapping[str, str]) -> str:
    """The text of constraints.txt."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [
        (
            f"# One version of everything that a full installation pulls in (Python {python},"
            f" {sys.platform}, CPU)."
        ),
        "# Written by tools/make_constraints.py.",
        *(f"{name}=={versions[name]}" for name in sorted(versions, key=str.lower)),
    ]
    return "\n".join(lines) + "\n"


def main(args: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--newest", action="append", default=[], metavar="NAME", help='a package to renew, or "all"'
    )
    renewed = {str(canonicalize_name(name)) for name in parser.parse_args(args).newest}
    now = pins(CONSTRAINTS.read_text(encoding="utf-8")) if CONSTRAINTS.is_file() else {}
    if unknown := renewed - {"all"} - set(now):
        parser.error(
            f"constraints.txt has no {', '.join(sorted(unknown))}; give names of packages it lists"
        )
    keep = {
        n: v for n, v in now.items() if n not in renewed and ("all" not in renewed or n in HELD)
    }
    CONSTRAINTS.write_text(constraints_text(resolve(keep)), encoding="utf-8")


if __name__ == "__main__":
    main()
