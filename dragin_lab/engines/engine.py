"""The interface of an engine, drafts that are asked of it side by side, and a draft as a stream."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import check_text, instance
from dragin_lab.core.episode import Tokenizer, Write
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.trace.trace import Draft, Prompt

if TYPE_CHECKING:
    from dragin_lab.core.prompts import Exemplar
    from dragin_lab.engines.identity import Probed

BESIDE = 8  # prompts that one text is scored after at once
#: Called with the draft so far after each of its tokens.
OnToken = Callable[[Draft], None]
Facts = dict[str, Any]  # what is recorded; fits into JSON
DraftJob = tuple[Any, Write, int | None]  # a key, a request and a seed
DraftResult = tuple[Any, Draft | Exception]  # the key of a job, and its draft or error


class Engine:
    """A model that writes. Subclasses set ``tokenizer`` and define ``write``; all else is
    unsupported by default.

    Attributes:
        context_window: in tokens; None: it has no limit. has_entropy: whether ``entropy`` is
            measured; it is NaN otherwise. has_attention: whether drafts have ``received`` and
            ``rows``; ``has_hidden``: whether they have ``states``. sample: whether it draws its
            tokens; its drafts are then never cached. exemplars: the worked examples that it
            brings, by the form of answers; only the package's own model has them. parts: names of
            prompt spans that are read separately, so that they are read only once.
    """

    name = "engine"
    tokenizer: Tokenizer
    context_window: int | None = None
    has_entropy = True
    has_attention = False
    has_hidden = False
    sample = False
    exemplars: Mapping[str, tuple[Exemplar, ...]] = {}
    parts: tuple[str, ...] = ()
    device: Any = "cpu"  # where tokens are drawn
    probed: Probed | None = None  # what it computed when ``provenance`` was last asked

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        """Write the draft that a request asks for. After every token its ``stop`` is asked and
        ``watch`` is called.

        Args:
            seed: of the sampling; ignored under greedy decoding.
            watch: called with the draft so far; an error that it raises ends the draft.
        """
        raise NotImplementedError

    def refuse_overrun(self, p: int, new: int) -> None:
        """Raise ``ModelError`` where p tokens and ``new`` ones do not fit into the window."""
        if self.context_window is not None and p + new > self.context_window:
            what = f"{p:,} prompt tokens and {new} new ones" if new else f"{p:,} tokens"
            raise ModelError(
                f"{what} do not fit into the {self.context_window:,} positions of {self.name};"
                " shorten the prompt, ask for fewer tokens (max_new_tokens), or open it with a"
                " larger window, where it can have one"
            )

    def find_state(self, layer: int | str) -> Any:
        """Where a layer's hidden states are. Raises ``ModelError`` for a layer without any."""
        raise ModelError(f"{self.name} gives no hidden states; load it in transformers")

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """The attention map of some ids by themselves: (h, n, n) float32, queries on the middle
        axis.
        """
        raise ModelError(f"{self.name} gives no attention")

    def score(
        self, prompt: Prompt, text: str, *, attention: bool = False, hidden: int | str | None = None
    ) -> Draft:
        """Measure ``text`` as if the model had written it after ``prompt`` (teacher forcing).

        ``text`` is used to the character, with its leading space. ``stopped`` is "forced". Raises
        ``ModelError`` for no text, and for one that merges with the prompt's last token or does not
        fit.
        """
        encode = self.tokenizer.encode
        instance("prompt", prompt, Prompt, "give a Prompt")
        before = encode(prompt.text, special=prompt.special)
        whole = encode(prompt.text + check_text("text", text), special=prompt.special)
        if whole[: len(before)] != before:
            raise ModelError(
                f"{text[:20]!r} merges with the end of the prompt into other tokens, so it cannot"
                " be scored after it; begin the text with a space"
            )
        ids = tuple(whole[len(before) :])
        if not ids:
            raise ModelError(f"the text to score, {text!r}, has no tokens; give some text")
        return replace(
            self.force(Write(prompt, len(ids), attention=attention, hidden=hidden, prefix=ids)),
            stopped="forced",
        )

    def force(self, request: Write) -> Draft:
        """The draft of a request whose ``prefix`` is the whole text."""
        return self.write(request)

    def score_many(self, prompts: Sequence[Prompt], ids: Sequence[int]) -> np.ndarray:
        """Log-probabilities of the same ids after each of several prompts (teacher forcing): (m, n)
        float32, nats.

        By any engine that writes a given ``prefix``. Raises ``ModelError`` for no ids, for what
        does not fit, and where the engine does not measure a given text.
        """
        given = tuple(map(int, ids))
        scored = np.empty((len(prompts), len(given)), np.float32)
        if not given:
            raise ModelError("there are no ids to score; give the ids of some text")
        with closing(self.batch(max(min(len(prompts), BESIDE), 1))) as batch:
            for number, prompt in enumerate(prompts):
                batch.ask(number, Write(prompt, len(given), prefix=given))
            while len(batch):
                for number, draft in batch.step():
                    if isinstance(draft, Exception):
                        raise draft
                    if tuple(draft.ids) != given or not np.isfinite(draft.logprob).all():
                        raise ModelError(
                            f"{self.name} gives no log-probabilities of a text that is given to it;"
                            " open the model in transformers or llama.cpp, or on a server that"
                            " echoes the log-probabilities of a prompt, as vLLM does"
                        )
                    scored[number] = draft.logprob
        return scored

    def batch(self, size: int) -> Batch:
        """Drafts written side by side, at most ``size`` at once."""
        return Batch(self, size)

    def probe(self) -> np.ndarray | None:
        """What the model computes for a few fixed ids (``probe_ids``), float32; None where that
        cannot be asked.
        """
        return None

    def provenance(self) -> Facts:
        """What decides what it writes and what is captured, its probe among it; values fit into
        JSON.

        It is asked at the start of each answer: an engine whose model may have been changed looks
        at it then.
        """
        return {"model": self.name}

    def identity(self) -> Facts | None:
        """All that can change a bit of it, beside the request, fit for JSON; None: nothing it
        writes is cached.

        What is cached is known by the ids of its prompt, so the tokenizer then has
        ``encode_prompt``.
        """
        return None

    def identify(self, **facts: Any) -> Facts:
        """An ``identity``: ``provenance`` without the name, what all numbers depend on, and other
        ``facts``.

        Without the probe, the device and the processor: a probe is compared, and what is computed
        decides.
        """
        from dragin_lab import __version__

        known = {
            "numpy": np.__version__,
            "torch": version("torch"),
            "dragin_lab": __version__,
        } | self.describe()
        return {
            name: fact for name, fact in known.items() if name not in ("model", "probe", "device")
        } | facts

    def describe(self) -> Facts:
        """As ``provenance``, without looking at the model."""
        return self.provenance()


class Batch:
    """A queue of drafts asked of an engine; this one writes them one at a time.

    Attributes:
        size: drafts written at once, at most.
        notes: one line for each reason why ``size`` is less than was asked for.
    """

    def __init__(self, engine: Any, size: int = 1) -> None:
        if size < 1:
            raise SettingError(f"a batch of {size} drafts writes none; give at least 1")
        self.engine = engine
        self.asked = size
        self.size = 1
        self.notes = [f"written one at a time: {engine.name} writes no others beside"] * (size > 1)
        self._waiting: list[DraftJob] = []
        self._writing: dict[Any, Any] = {}  # drafts in progress, of engines that write side by side

    def __len__(self) -> int:
        """Drafts asked for and not yet answered."""
        return len(self._waiting) + len(self._writing)

    def ask(self, key: Any, request: Write, seed: int | None = None) -> None:
        """Ask for a draft; ``step`` answers under ``key``."""
        self._waiting.append((key, request, seed))

    def step(self) -> list[DraftResult]:
        """Write further; the drafts that ended since the last call, or their errors."""
        if not self._waiting:
            return []
        key, request, seed = self._waiting.pop(0)
        try:
            return [(key, self.engine.write(request, seed))]
        except Exception as error:  # noqa: BLE001 - handed to the episode that asked
            return [(key, error)]

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``Engine.attend``."""
        return self.engine.attend(ids)

    def describe(self) -> Facts:
        """Size asked for, size now and why they differ; values fit into JSON."""
        return {"asked": self.asked, "size": self.size, "notes": list(self.notes)}

    def close(self) -> None:
        """Drop the drafts in progress."""
        self._waiting.clear()
        self._writing.clear()


class _ClosedError(BaseException):
    """Raised in the writing thread after the stream was closed."""


def stream_draft(
    engine: Any, request: Write, seed: int | None = None
) -> Generator[Draft, None, Draft]:
    """Yield the draft so far after each token, written by the engine in a separate thread; return
    the draft.

    Raises what ``write`` raises. Closing the stream, or an interrupt while it waits, ends the
    writing after the current token.
    """
    if getattr(engine, "user", None) == threading.get_ident():  # it would wait for itself
        raise SettingError(
            "this model is writing a draft, and one of its triggers asked the same lab for a stream"
            " of another; use lab.ask there, which answers within"
        )
    drafts = queue.SimpleQueue[Draft | None]()  # None: it has ended
    closed = threading.Event()
    written = Future[Draft]()

    def watch(draft: Draft) -> None:
        if closed.is_set():
            raise _ClosedError
        drafts.put(draft)

    def work() -> None:
        if closed.is_set():  # an interrupt landed while this thread was being started
            return
        try:
            written.set_result(engine.write(request, seed, watch=watch))
        except BaseException as error:  # noqa: BLE001 - raised again where the stream is read
            written.set_exception(error)
        drafts.put(None)

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(work,), name="dragin-lab-draft", daemon=True
    )
    try:
        thread.start()
        while (draft := drafts.get()) is not None:
            yield draft
    finally:
        closed.set()
        if thread.is_alive():
            thread.join()
    return written.result()
