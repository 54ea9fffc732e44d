"""`python -m tools.almanac build --out DIR [--seed N] [--force]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dragin_lab.errors import DraginLabError
from tools.almanac.build import build


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac", description="Almanac, the embedded world.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="write passages, questions, labels and exemplars")
    command.add_argument("--out", type=Path, required=True, help="folder to write; must not exist yet")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--force", action="store_true", help="replace the folder")
    given = parser.parse_args(arguments)
    try:
        print(build(given.out, given.seed, given.force))
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
