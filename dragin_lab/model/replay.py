"""A draft made again from what a cache holds of it: the code that generates, given the pieces instead of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from dragin_lab.core.episode import Write
from dragin_lab.core.trace import Continuation
from dragin_lab.model.decode import PieceEvent, Writing
from dragin_lab.model.measure import Recorder
from dragin_lab.model.tapped import TappedModel

_MEASURED = ("entropy", "logprob", "alternative_ids", "alternative_probs")


class _Rows:
    """Hands the cached rows to a recorder, as far as the model would have known them."""

    def __init__(self, among: np.ndarray, n: int) -> None:
        self.known = 1  # rows that forwards up to here would have made
        self.recorder: Recorder | None = None
        self._rows = np.zeros((n + 1, n), np.float32)  # row r has r entries
        self._rows[np.tril_indices(n + 1, -1, n)] = among

    def look_back(self) -> None:
        assert self.recorder is not None
        first = self.recorder.rows
        if self.known > first and not np.isnan(self._rows).any():  # a model without attention has no rows
            self.recorder.looked_back(torch.tensor(self._rows[None, None, first : self.known, : self.known - 1]))


@torch.inference_mode()
def replay(
    lm: TappedModel, draft: Write, cached: Mapping[str, np.ndarray], way: str
) -> tuple[list[PieceEvent], Continuation] | None:
    """The events and the continuation of a draft, as the model would make them.

    None where the cached pieces end before the draft does, and where its ``Stop`` does not look at attention as the one
    did that they were made for, ``way`` (``Writing.way``; "beside" serves any).

    Args:
        cached: arrays of ``Recorder.to_keep``, made after the same prompt with the same bias.
    """
    n = len(cached["ids"])
    rows = _Rows(cached["among"], n)
    writing = Writing(lm, draft, None, rows.look_back, followed=True, capture=False, device=torch.device("cpu"))
    rows.recorder = writing.recorder
    writing.recorder.stored = cached["attention"] if draft.attention else None
    writing.recorder.states = list(torch.tensor(cached["hidden"])) if "hidden" in cached else []
    measured = [torch.tensor(cached[name]) for name in _MEASURED]
    warped = torch.tensor(cached["entropy_processed"]) if "entropy_processed" in cached else None
    events = []
    for t, piece in enumerate(cached["ids"].tolist()):
        entropy, logprob, which, best = (values[t : t + 1] for values in measured)
        writing.chose(piece, (entropy, logprob, which, best), warped=None if warped is None else warped[t : t + 1])
        events.append(writing.event())
        writing.check()
        if way not in ("beside", writing.way):
            return None
        rows.known += 1
        writing.fed()
        if writing.stopped:
            break
    else:
        return None
    rows.look_back()
    p, m = len(writing.prompt_ids), len(writing.ids)
    made = writing.continuation(p)
    if draft.attention:
        made = replace(made, attention=cached["attention"][:, : m + 1, : p + m].copy())
    return events, replace(made, stored=True)
