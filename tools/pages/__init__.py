"""What writes README.md's and docs' figures, pages and pictures: run one as ``python -m tools.pages.NAME``."""
