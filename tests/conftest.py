"""Settings of all tests."""

import os
import signal

# The models are tiny: threads only wait for one another. Set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's background job ignores Ctrl-C, and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
