"""``Setup``: what the questions of one call are asked with. A ``Lab`` makes it; runs, studies and controls take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from dragin_lab.catalog.methods import exchange_settings
from dragin_lab.catalog.methods import method as make_method
from dragin_lab.core.episode import Retriever
from dragin_lab.core.method import METHODS, Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.data.exemplars import template_for
from dragin_lab.errors import SettingError
from dragin_lab.run.cache import Cache, cached


@dataclass(frozen=True)
class Setup:
    """A model, a retriever, a prompt, a seed and a cache, all of them open.

    ``model`` is an engine (``engines.engine.Engine``), or a ``Cluster``, whose workers answer elsewhere.
    """

    model: Any
    retriever: Retriever | None = None  # None where no method of the call searches
    prompt: PromptTemplate | None = None  # None: the benchmark's own, else the model's default
    seed: int = 0
    cache: Cache | None = None
    layout: str | None = None  # of every prompt; None: the prompt's own
    retriever_spec: str | None = None  # the name that the retriever was asked for by, such as "bm25"

    @property
    def elsewhere(self) -> bool:
        """Whether episodes are answered somewhere else (``cluster.Cluster``)."""
        return hasattr(self.model, "finish")

    @property
    def writer(self) -> Any:
        """The model with the cache before it."""
        return cached(self.model, self.cache)

    def template(self, method: Method, asked: PromptTemplate | None = None) -> PromptTemplate:
        """The prompt in the form that a method answers in: ``prompt``, else ``asked``, else the model's default.

        Raises ``SettingError`` where the method needs something that model or pipeline does not give.
        """
        check_needs(method, self.model)
        template = template_for(method, self.model, self.prompt or asked)
        return template if self.layout is None else replace(template, layout=self.layout)

    def retriever_for(self, method: Method) -> Retriever | None:
        """The retriever where the method searches at all; else None."""
        return self.retriever if method.retrieves else None


@runtime_checkable
class MakesSetups(Protocol):
    """A ``Lab``, for the rooms below it."""

    def setup(self, *methods: Method) -> Setup:
        """What these methods are asked with; the retriever is opened where one of them searches."""


def as_method(given: Method | str, settings: Mapping[str, Any]) -> Method:
    """A method by name or as it is, with settings exchanged. Raises ``SettingError`` as ``dl.method``."""
    if isinstance(given, Method):
        return exchange_settings(given, **settings) if settings else given
    return make_method(given, **settings)


def check_needs(method: Method, model: Any) -> None:
    """Raise ``SettingError`` where a method needs something that model or pipeline does not give."""
    if method.reads_attention and not getattr(model, "has_attention", True):
        free = [name for name in METHODS if not make_method(name).reads_attention]
        why = getattr(model, "no_attention", "")
        raise SettingError(
            f"method {method.name!r} looks at attention, and {model.name} has none; these need only probabilities: "
            f"{', '.join(free)}" + (f" ({why})" if why else "")
        )
    if method.trigger.hidden is not None and not getattr(model, "has_hidden", True):
        raise SettingError(
            f"trigger {method.trigger.name!r} reads hidden states, and {model.name} gives none; load the model in "
            "transformers for it"
        )
    if "entities" in method.trigger.needs:
        method.pipeline.require_entities()
