"""Engines: what writes drafts and measures them. torch and transformers are imported here and
nowhere below.
"""

import os

# Read once, when torch is first imported: threads that wait would otherwise spin, and take the time
# that others need.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
