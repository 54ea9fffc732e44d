"""Settings of all tests of ``lm``."""

import torch

# The models are tiny: threads only wait for one another.
torch.set_num_threads(1)
