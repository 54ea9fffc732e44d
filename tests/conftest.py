"""Settings of all tests."""

import os

# The models are tiny: threads only wait for one another. Set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
