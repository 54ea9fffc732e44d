"""`python -m tools.almanac ship` writes the package's data, `build --out DIR` files in the originals' formats."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dragin_lab.almanac import WORLD
from dragin_lab.errors import DraginLabError
from tools.almanac.build import build, ship


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.almanac", description="Almanac, the embedded world.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="write passages, and questions in the formats of the originals")
    command.add_argument("--out", type=Path, required=True, help="folder to write; must not exist yet")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--force", action="store_true", help="replace the folder")
    command = commands.add_parser("ship", help="write the data that the package ships")
    command.add_argument("--out", type=Path, default=WORLD)
    command.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        print(ship(given.out, given.seed) if given.command == "ship" else build(given.out, given.seed, given.force))
    except DraginLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
