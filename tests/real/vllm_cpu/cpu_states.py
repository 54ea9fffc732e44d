"""vLLM's own connector of hidden states where there is no CUDA: its copies have nothing to wait
for.
"""

import contextlib

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import example_hidden_states_connector as stock


class Done:
    """A stream or an event of CUDA."""

    def __init__(self, *_, **__): ...

    def record(self, *_): ...

    def wait_event(self, *_): ...

    def synchronize(self): ...

    def query(self):
        return True


empty_like = torch.empty_like
torch.cuda.Stream = torch.cuda.Event = Done
torch.cuda.stream = lambda _: contextlib.nullcontext()
torch.empty_like = lambda *given, pin_memory=False, **more: empty_like(*given, **more)


class ExampleHiddenStatesConnector(stock.ExampleHiddenStatesConnector):
    """The same."""
