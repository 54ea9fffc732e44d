"""``Lab``: a model, a retriever, a prompt, a seed and a cache, in one object. Every question is
asked with one.

lab = dl.Lab()                                    # Almanac: the model and the passages that the
package brings lab = dl.Lab("Qwen/Qwen2.5-0.5B", "wiki.jsonl")   # your own model and passages trace
= lab.ask("Who directed The Silent Fukain?", "dragin", threshold=1.1)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.catalog.exchanged import restore_method
from dragin_lab.checks import count, flag, instance, number, several, shown
from dragin_lab.core.budget import Threshold
from dragin_lab.core.episode import Retriever
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import Exemplar, PromptTemplate
from dragin_lab.data.datasets import template_of
from dragin_lab.data.tabular import Fields
from dragin_lab.errors import SettingError
from dragin_lab.results.curve import MOST, Curve, begin_curve, make_curve
from dragin_lab.results.funnel import attribute_run
from dragin_lab.results.runs import Runs
from dragin_lab.results.sweeps import Sweep, run_values
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.doors import as_retriever
from dragin_lab.run.batches import ask_many
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.branch import answer_branch
from dragin_lab.run.cache import Cache, as_cache
from dragin_lab.run.episodes import Stream, finish_stream, open_stream
from dragin_lab.run.setup import (
    Setup,
    as_method,
    check_arguments,
    describe_retriever,
    is_engine,
    is_loaded,
    warn_of_almanac,
)
from dragin_lab.run.sweeps import read_sweep, run_methods
from dragin_lab.study.attribution import LEAST, SURE, Attribution
from dragin_lab.study.leaving_out import attribute_trace
from dragin_lab.study.other_ways import find_other_ways
from dragin_lab.text import facts_html
from dragin_lab.trace.trace import Question, Trace

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from dragin_lab.widgets.exploring import AskLive
    from dragin_lab.widgets.tuning import Board

#: Models and indexes are opened one after another in a process: the libraries that load them are
#: not thread-safe.
_OPENING = threading.RLock()
os.register_at_fork(after_in_child=lambda: globals().update(_OPENING=threading.RLock()))


class Lab(AbstractContextManager["Lab"]):
    """What every question is asked with. Immutable; ``replace`` makes another.

    Args:
        model: a folder, GGUF file, Hugging Face id or the address of a server
            (``engines.load.open_model``); a loaded
            causal language model of transformers, peft or torch.compile, with ``tokenizer``, which
            you may hook, steer, edit or give other adapters at any time; an engine of your own or a
            ``Cluster``. None is Almanac's model.
        corpus: passages (a ``Corpus``, or what ``Corpus.load`` takes); None is Almanac's, with a
            warning where the
            model is another, or the cluster's.
        exemplars: worked examples: a ``PromptTemplate``, a list of ``Exemplar``, a YAML file, a
            benchmark's name for
            this package's own set, or "published:NAME". None is the benchmark's own, else the
            model's default.
        retriever: "bm25", "tantivy" or "dense:MODEL" over ``corpus``; or an object with
            ``search(query, k)``, or a
            function of both, in place of a corpus.
        seed: of sampled decoding, at least 0. cache: serves what was written before in this
            process: True, or a ``Cache`` that labs share. A sweep makes its own where there is
            none; False forbids that too.
        layout: "dragin", "flare" or "chat" (the model's own chat template); None is that of the
            prompt. fields: columns of ``corpus``, where they are not id, title and text:
            "id=doc_id,text=contents" or a mapping. loading: as for ``load.open_model``: ``dtype``,
            ``device``, ``layer``, ``tokenizer``, ``engine="llama.cpp"`` …;
            for a loaded model as for ``LanguageModel``.

    A model or passages given by name are opened when they are first needed. ``close``, or leaving a
    ``with``, frees a model in llama.cpp.

    Raises ``SettingError`` for a seed, cache, prompt or retriever that cannot be one, and for an
    unknown argument.
    """

    def __init__(
        self,
        model: Any = None,
        corpus: Any = None,
        exemplars: PromptTemplate | Iterable[Exemplar] | str | Path | None = None,
        retriever: Any = None,
        seed: int = 0,
        cache: Cache | bool | None = None,
        *,
        layout: str | None = None,
        fields: Fields = None,
        **loading: Any,
    ) -> None:
        self._given = {"model": model, "corpus": corpus, "retriever": retriever, "fields": fields}
        check_arguments(self._given, layout, loading)
        self.seed = count("seed", seed, 0)
        self.layout = layout
        self.cache = as_cache(cache)
        self.uncached = cache is False
        self.prompt = (
            exemplars if isinstance(exemplars, PromptTemplate | None) else template_of(exemplars)
        )
        self._given["retriever"] = (
            retriever if isinstance(retriever, str | None) else as_retriever(retriever)
        )
        self._loading = loading
        self._opened = dict[str, Any]()
        # of chat templates that write the date
        self._day = datetime.now().isoformat(timespec="seconds")

    def replace(self, **changes: Any) -> Lab:
        """The same lab with other arguments; what is not named is shared, a loaded model and an
        open index too.
        """
        arguments: dict[str, Any] = {
            "seed": self.seed,
            "cache": not self.uncached and self.cache,
            "exemplars": self.prompt,
            "layout": self.layout,
            **self._given,
        }
        if isinstance(changes.get("model"), str | Path | None):
            arguments |= self._loading
        opened = dict(self._opened)
        if "model" in changes or self._loading.keys() & changes.keys():
            opened.pop("model", None)
        # a cluster brings its own retriever
        if changes.keys() & {"model", "corpus", "retriever", "fields"}:
            opened.pop("retriever", None)
            opened.pop("retriever_facts", None)
        if "corpus" in changes:
            arguments["fields"] = None
            if not isinstance(arguments["retriever"], str):
                arguments["retriever"] = None
        if not isinstance(changes.get("retriever"), str | None):
            arguments["corpus"] = arguments["fields"] = None
        lab = Lab(**arguments | changes)
        lab._opened = opened
        lab._day = self._day
        return lab

    @property
    def model(self) -> Any:
        """The ``LanguageModel``, ``LlamaModel``, ``ServerModel`` or ``Cluster``. Raises as
        ``load.open_model``.
        """
        return self._open("model", self._open_model)

    def _open(self, part: str, open_part: Callable[[], Any]) -> Any:
        """Open a part once; what else is asked meanwhile, by other threads, waits for it."""
        if part not in self._opened:
            with _OPENING:
                if part not in self._opened:
                    self._opened[part] = open_part()
        return self._opened[part]

    def _open_model(self) -> Any:
        given = self._given["model"]
        if is_engine(given):
            return given
        # brings torch, which other engines do without
        from dragin_lab.engines.load import LanguageModel, open_model

        if is_loaded(given):
            return LanguageModel(given, **self._loading)
        return open_model(None if given is None else str(given), **self._loading)

    def close(self) -> None:
        """Free a model in llama.cpp, and close the connections of one behind a server."""
        if close := getattr(self._opened.get("model"), "close", None):
            close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def elsewhere(self) -> bool:
        """Whether episodes are answered somewhere else (``cluster.Cluster``)."""
        return hasattr(self.model, "finish")

    @property
    def retriever(self) -> Retriever:
        """What passages are fetched with. Raises as ``open_retriever``."""
        return self._open("retriever", self._open_retriever)

    def _open_retriever(self) -> Retriever:
        given = self._given["retriever"]
        corpus = self._given["corpus"]
        if not isinstance(given, str | None):
            return given
        opened = (
            self.model.retriever
            if self.elsewhere
            else open_retriever(given, corpus, self._given["fields"])
        )
        if corpus is None:
            warn_of_almanac(self.model, opened)
        return opened

    @property
    def retriever_spec(self) -> str | None:
        """The name that the retriever was asked for by, such as "bm25"; None for the default and
        your own.
        """
        given = self.model.recipe.retriever if self.elsewhere else self._given["retriever"]
        return given if isinstance(given, str) else None

    def setup(self, *methods: Method) -> Setup:
        """What these methods are asked with: all of it open, the retriever where one of them
        searches.
        """
        searches = any(method.retrieves for method in methods)
        retriever = self.retriever if searches else None
        return Setup(
            self.model,
            retriever,
            prompt=self.prompt,
            seed=self.seed,
            cache=self.cache,
            layout=self.layout,
            day=self._day,
            retriever_spec=self.retriever_spec,
            retriever_facts=self._retriever_facts if searches else None,
        )

    def _setup_sharing(self, *methods: Method) -> Setup:
        """``setup`` with a cache where the lab has none and may have one."""
        setup = self.setup(*methods)
        if self.cache is None and not (self.uncached or self.elsewhere):
            return replace(setup, cache=Cache())
        return setup

    @property
    def _retriever_facts(self) -> dict[str, Any] | None:
        """What a retriever that the lab opened records of itself; None for one of the user's own,
        which is asked at each question.
        """
        if not isinstance(self._given["retriever"], str | None):
            return None
        return self._open("retriever_facts", lambda: describe_retriever(self.retriever))

    def template(self, method: Method | str, asked: PromptTemplate | None = None) -> PromptTemplate:
        """The prompt in the form that a method answers in: the lab's, else ``asked``, else the
        model's default.

        Raises ``SettingError`` where the method needs something that model or pipeline does not
        give.
        """
        return self.setup().template(as_method(method, {}), asked)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was opened by name, which whoever unpickles it opens again.

        Raises ``SettingError`` for a model that was loaded before: it would be copied, and no
        longer be the one hooked.
        """
        if is_loaded(self._given["model"]):
            raise SettingError(
                "a lab of a loaded model is not copied or sent to another process: the copy would"
                " be another model. Open the model there, or use lab.replace(...), which shares it"
            )
        return vars(self) | {"_opened": {}}

    def _list_parts(self) -> dict[str, str]:
        """What was given, or was opened of it, each in a line."""
        parts = {}
        for name in ("model", "retriever", "corpus"):
            part = self._opened.get(name, self._given[name])
            if part is not None:
                parts[name] = _name_part(part)
        if self.prompt is not None:
            parts["exemplars"] = str(len(self.prompt.exemplars))
        return parts

    def __repr__(self) -> str:
        parts = self._list_parts()
        if self.layout is not None:
            parts["layout"] = repr(self.layout)
        if self.seed != 0:
            parts["seed"] = str(self.seed)
        if self.cache is not None:
            parts["cache"] = repr(self.cache)
        return f"Lab({', '.join(f'{name}={part}' for name, part in parts.items())})"

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = dict.fromkeys(("model", "corpus"), "Almanac's")
        facts |= self._list_parts() | {"layout": self.layout, "seed": self.seed}
        return facts_html("Lab", facts | {"cache": self.cache and repr(self.cache)})

    # -- asking ------------------------------------------------------------------------------------

    def ask(
        self,
        question: str | Question,
        method: Method | str = "dragin",
        *,
        gold: str | Iterable[str] | None = None,
        **settings: Any,
    ) -> Trace:
        """Answer one question and return its ``Trace``.

        ``method`` is a name or a ``Method``, and ``settings`` are those of ``dl.method``: ``when``,
        ``what``, ``variant``, ``threshold`` … ``gold`` is the right answer, or several, to score
        against.

        Raises ``SettingError`` for an empty question or a method that cannot be. What fails later
        ends the episode with ``trace.ended == "error"`` and is raised; it, and a
        ``KeyboardInterrupt``, carry the trace so far as ``.trace``.
        """
        method = as_method(method, settings)
        return finish_stream(open_stream(self.setup(method), question, method, gold, watched=False))

    def stream(
        self,
        question: str | Question,
        method: Method | str = "dragin",
        *,
        gold: str | Iterable[str] | None = None,
        **settings: Any,
    ) -> Stream:
        """Answer one question as a ``Stream``: iterate for an event for each token, retrieval and
        step as it happens.

        ``.trace`` is valid at any moment, ``.close()`` cancels. Arguments and errors as for
        ``ask``.
        """
        method = as_method(method, settings)
        return open_stream(self.setup(method), question, method, gold)

    def ask_many(
        self,
        questions: Iterable[str | Question],
        method: Method | str = "dragin",
        *,
        batch_size: int = 1,
        **settings: Any,
    ) -> Iterator[Trace]:
        """Answer many questions, yielding each trace as it ends; one that fails says so, the rest
        are still answered.

        With ``batch_size`` above 1 that many episodes run side by side in one batch, and traces
        come in the order in which they end. Each gives the text that it gives alone, except where
        two tokens are equally likely to rounding.

        Raises ``SettingError`` for a method or ``batch_size`` that cannot be. A
        ``KeyboardInterrupt`` carries the cancelled episodes as ``traces``.
        """
        method = as_method(method, settings)
        return ask_many(self.setup(method), questions, method, batch_size)

    def run(
        self,
        questions: Any,
        methods: Method | str | Sequence[Method | str] = ("dragin",),
        *,
        output: str | Path,
        limit: int | None = None,
        batch_size: int = 1,
        traces: bool | None = None,
        progress: bool = True,
        fields: Fields = None,
        attribute: bool = False,
    ) -> Runs:
        """Answer every question with every method, and record each answer in a run directory as
        soon as it is known.

        Args:
            questions: a benchmark's name or file, a ``Benchmark``, a list of texts or of
                ``Question``, rows of
                questions (a file, a DataFrame, a Hugging Face data set, dictionaries).
            methods: names or ``Method`` objects. output: each method has a folder below it,
                ``OUTPUT/<questions>/<label>``, as of 'dragin-lab run'.
                <questions> is the benchmark's or file's name, and "questions" for lists and tables.
            limit: take only the first ``limit`` questions. traces: None keeps slim traces up to
                ``runwriter.TRACE_SPACE`` bytes a run; True keeps every one, in full,
                those of a finished run too, which are then answered again; False keeps none.
            progress: a bar on a terminal or in a notebook, plain lines elsewhere. fields: the
                columns of rows of questions, where they are not id, question and answer:
                "question=q,answer=a". attribute: say of each retrieval whether it was used
                (``Lab.attribute``): in the kept traces, of a finished
                run too, for ``Runs.retrievals`` and ``Runs.funnel``.

        Returns the ``Runs``. A folder that holds a part of this very run, of fewer questions too,
        is completed; what failed is tried again. An interrupt loses the episodes under way and
        nothing else.

        Raises ``RunError`` where a folder holds another run, ``SettingError`` for what cannot be
        run.
        """
        if traces is not None and not isinstance(traces, bool):
            raise SettingError(f"traces={shown(traces)}: give True, False or None")
        given = several(
            "methods",
            methods,
            Method | str,
            "give names of methods, or methods of dl.method",
            alone=True,
        )
        chosen = [as_method(method, {}) for method in given]
        asked = as_benchmark(questions, limit, fields)
        setup = self.setup(*chosen)
        if flag("attribute", attribute) and traces is False:
            raise SettingError(
                "attribute=True measures the traces that a run keeps; leave traces=False out"
            )
        records = run_methods(
            setup, asked, chosen, output, progress, batch_size=batch_size, traces=traces
        )
        for record in records if attribute else ():
            attribute_run(setup, record, progress)
        return Runs(records)

    def sweep(
        self,
        questions: Any,
        method: Method | str = "dragin",
        *,
        output: str | Path | None = None,
        limit: int | None = None,
        batch_size: int = 1,
        progress: bool = True,
        fields: Fields = None,
        **settings: Any,
    ) -> Sweep:
        """Answer the questions once for each value of one setting: ``lab.sweep(questions,
        threshold=[1.0, 1.2])``.

        Exactly one of ``settings``, a trigger's own too, has a list of values; the others stay.
        Each value has a run directory below ``output``, as ``run`` has it; None writes nothing.
        Values share what they write in the lab's cache, or in one made for this sweep. ``fields``
        is as for ``run``. Returns a ``Sweep`` with ``.table``.

        Raises ``SettingError`` unless one setting has values that the method takes; otherwise as
        ``run``.
        """
        setting, methods = read_sweep(method, settings)
        asked = as_benchmark(questions, limit, fields)
        setup = self._setup_sharing(*methods)
        return run_values(setup, asked, setting, methods, output, batch_size, progress)

    def curve(
        self,
        questions: Any,
        method: Method | str = "dragin",
        *,
        lowest: float | None = None,
        most: int = MOST,
        output: str | Path | None = None,
        limit: int | None = None,
        batch_size: int = 1,
        progress: bool = True,
        fields: Fields = None,
        **settings: Any,
    ) -> Curve:
        """What a method answers at every θ, exactly: ``lab.curve(questions, "dragin")``.

        An episode changes only where a score that was compared with θ is crossed, so each question
        is answered a few times: from the highest θ down to ``lowest`` (by default two fifths of the
        method's own), at most ``most`` times. ``output`` is a folder that keeps the pieces and
        their traces; the same call goes on there. The other arguments are as for ``sweep``.

        Raises ``SettingError`` for a method without a threshold, a trigger that judges by code of
        its own, sampled decoding and a cluster. An interrupt carries what is finished as
        ``.curve``.
        """
        chosen = as_method(method, settings)
        asked = as_benchmark(questions, limit, fields)
        making = begin_curve(
            self._setup_sharing(chosen),
            chosen,
            asked,
            output=output,
            batch_size=batch_size,
            lowest=lowest,
            most=most,
        )
        return make_curve(making, progress)

    def budget(
        self,
        questions: Any,
        retrievals: float,
        method: Method | str = "dragin",
        *,
        held_out: Any = None,
        lowest: float | None = None,
        batch_size: int = 1,
        **settings: Any,
    ) -> Threshold:
        """θ at which a method retrieves ``retrievals`` times a question: ``lab.budget(questions,
        1.5)``.

        It is that of ``lab.curve(questions, …).budget(retrievals)``, which answers each question
        some four times and says exactly what θ costs. θ is a number with attributes: ``reached``,
        the retrievals a question, ``questions``, how many they are, and ``table``, which says what
        it gives too, and the same of the ``held_out`` questions.

        Raises ``SettingError`` as ``curve``, and for a number that no threshold reaches, with the
        nearest one that is reached.
        """
        wanted = number("retrievals", retrievals)
        how: dict[str, Any] = {"batch_size": batch_size, "progress": False, "lowest": lowest}
        curve = self.curve(questions, method, **how, **settings)
        if not curve.complete:
            raise SettingError("; ".join(["no threshold can be found", *curve.notes]))
        others = None
        if held_out is not None:
            others = self.curve(held_out, method, **how, **settings)
        return curve.budget(wanted, held_out=others)

    # -- what if -----------------------------------------------------------------------------------

    def branch(
        self,
        trace: Trace,
        *,
        step: int | None = None,
        token: int | None = None,
        to: int | str | None = None,
        source: str | None = None,
        query: str | None = None,
        passages: Iterable[Any] | None = None,
        retrieve: bool | None = None,
        nlp: Any = None,
    ) -> Trace:
        """The episode of a trace once more, with one thing other than it was, and run on from
        there.

        What was there before gives the trace itself. ``.parting`` of the result says where it
        parts, and from what.

        Args:
            trace: of this lab's model, passages and exemplars; one that was saved or kept by a run
                will do. step: its number, from 1, as in views and tables. token: its number in the
                text, from 1. to: what stands in the token's place: an id, or a text, of an
                alternative or any other. source: the text that has the token: "draft",
                "continuation", or "extraction", which belongs to no step;
                None is the step's draft, where it has one, else its continuation.
            query: what is searched for in place of the step's query. passages: what is found in
                place of the step's passages; as a retriever may answer. retrieve: True to retrieve
                after the step's draft, at ``token``'s word or else the one that scores highest;
                False to write on: nothing fires before the sentence has ended. Paper variant only.
            nlp: the trace's pipeline, where it is not the default.

        Raises ``SettingError`` for a place that is not there, several changes at once and a trace
        of another lab; ``SettingError`` where the episode strays from its record. Otherwise as
        ``ask``.
        """
        method = restore_method(_check_trace(trace).method, nlp)
        return answer_branch(
            self.setup(method),
            method,
            trace,
            retrieve=retrieve,
            step=step,
            token=token,
            to=to,
            source=source,
            query=query,
            passages=passages,
        )

    def fan(self, trace: Trace, *, nlp: Any = None) -> go.Figure:
        """An answer with the other branch of each of its decisions: what every retrieval costs, and
        what it is worth.

        Each decision is taken once the other way and its episode run on (``branch``): without a
        retrieval that was made, with one that was not. Where no trigger judged a draft, as in the
        reference variant, a retrieval finds nothing instead. The trace keeps what came of it, is
        saved with it, and draws it without the model: ``trace.fan()``. ``nlp`` as for ``branch``.

        Raises ``SettingError`` where nothing was decided; otherwise as ``branch``.
        """
        method = restore_method(_check_trace(trace).method, nlp)
        trace.other_ways = find_other_ways(self._setup_sharing(method), method, trace)
        figure: go.Figure = trace.fan()
        return figure

    def attribute(
        self,
        trace: Trace,
        *,
        sure: float = SURE,
        least: float = LEAST,
        attention: bool = False,
        effect: bool = False,
        gold: Iterable[str] = (),
        nlp: Any = None,
    ) -> Attribution:
        """Which words of an answer are from which passage: what each retrieval was good for, as an
        ``Attribution``.

        Each text of the answer is scored again under every subset of the passages in view
        (``study.attribution``); nothing is written. The trace keeps the result, and is saved with
        it.

        Args:
            trace: of this lab's model; one that was saved or kept by a run will do.
            sure: the probability without passages from which on a token counts as sure, 0 to 1.
            least: nats that passages have to give a token before it counts as theirs.
            attention: measure attention where the trace has no rows: one forward more for each
                text.
            effect: the F1 of each retrieval against its having found nothing: the episode once
                more for each.
            gold: titles or ids of the passages that the question needs; those of a benchmark's
                question are known.
            nlp: the trace's pipeline, where it is not the default; for ``effect``.

        Raises ``SettingError`` for a trace of another model, and a model that scores no given text.
        """
        _check_trace(trace)
        bounds = {"sure": number("sure", sure, 0, 1), "least": number("least", least, 0)}
        method = restore_method(trace.method, nlp) if effect else None
        setup = self.setup() if method is None else self.setup(method)
        trace.attributed = attribute_trace(
            setup, method, trace, attention=attention, effect=effect, gold=gold, **bounds
        )
        return Attribution(trace)

    def explore(
        self, question: str | Question = "", method: str = "dragin", **settings: Any
    ) -> AskLive:
        """Type a question, watch its answer token by token, stop it by a button; ``.trace`` is
        there at any moment.
        """
        from dragin_lab.widgets.exploring import live  # ipywidgets are an extra

        return live(self, question, method, **settings)

    def tune(self, traces: Any, *, sweep: Any = None, nlp: Any = None) -> Board:
        """``dl.tune`` with a button that answers the chosen question with this lab and the
        chosen values.
        """
        from dragin_lab.widgets.tuning import tune

        return tune(traces, sweep=sweep, lab=self, nlp=nlp)


def _check_trace(trace: Any) -> Trace:
    checked: Trace = instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
    return checked


def _name_part(part: Any) -> str:
    """A part of a lab in a line: a loaded model, which writes a line a layer, by its class."""
    text = repr(part)
    return type(part).__name__ if "\n" in text else text
