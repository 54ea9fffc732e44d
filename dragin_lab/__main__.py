"""``python -m dragin_lab`` is ``dragin-lab``."""

from dragin_lab.cli import main

if __name__ == "__main__":
    main()
