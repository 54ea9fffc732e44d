"""A draft from what a cache holds of it: the code that generates gets the tokens from there instead of from a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from dragin_lab.core.episode import Write
from dragin_lab.model.decode import TokenEvent, Writing
from dragin_lab.model.tapped import TappedModel
from dragin_lab.trace.trace import Continuation

_MEASURED = ("entropy", "logprob", "alternative_ids", "alternative_probs")


@torch.inference_mode()
def replay(
    lm: TappedModel, draft: Write, cached: Mapping[str, np.ndarray], way: str
) -> tuple[list[TokenEvent], Continuation] | None:
    """The events and the continuation of a draft, as the model would give them.

    None where the cached tokens end before the draft does, and where its ``Stop`` does not look at attention as the one
    did that they were computed for, ``way`` (``Writing.way``; "beside" serves any).

    Args:
        cached: arrays of ``Recorder.to_keep``, after the same prompt with the same bias.
    """
    n = len(cached["ids"])
    blind = "among" not in cached  # a model without attention has no rows
    rows = np.zeros((n + 1, n), np.float32)  # what each query position pays to the tokens; row r has r entries
    rows[np.tril_indices(n + 1, -1, n)] = 0.0 if blind else cached["among"]

    def look_back() -> None:
        """Hand over the rows that the model would have known by now."""
        first, known = writing.recorder.rows, fed + 1
        if known > first and not blind:
            writing.recorder.looked_back(torch.tensor(rows[None, None, first:known, : known - 1]))

    fed = 0  # tokens
    writing = Writing(lm, draft, None, look_back, followed=True, capture=False, device=torch.device("cpu"))
    writing.recorder.stored = cached["attention"] if draft.attention else None
    writing.recorder.states = list(torch.tensor(cached["hidden"])) if "hidden" in cached else []
    measured = [torch.tensor(cached[name]) for name in _MEASURED]
    warped = torch.tensor(cached["entropy_processed"]) if "entropy_processed" in cached else None
    events = []
    for t, token in enumerate(cached["ids"].tolist()):
        entropy, logprob, which, best = (values[t : t + 1] for values in measured)
        writing.chose(token, (entropy, logprob, which, best), warped=None if warped is None else warped[t : t + 1])
        events.append(writing.event())
        writing.check()
        if way not in ("beside", writing.way):
            return None
        fed = t + 1
        writing.fed()
        if writing.stopped:
            break
    else:
        return None
    look_back()
    return events, replace(writing.continuation(len(writing.prompt_ids)), stored=True)
