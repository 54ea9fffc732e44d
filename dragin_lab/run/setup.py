"""``Setup``: what the questions of one call are asked with. A ``Lab`` makes it; runs, studies
and controls take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dragin_lab import __version__
from dragin_lab.catalog.by_name import method as make_method
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.checks import EMBEDDED, choice, is_embedded, refuse_password, shown
from dragin_lab.core.answers import FORMS
from dragin_lab.core.episode import Retriever
from dragin_lab.core.method import METHODS, Method
from dragin_lab.core.prompts import LAYOUTS, PromptTemplate
from dragin_lab.data.exemplars import SHOWN_FORMS, load_template
from dragin_lab.errors import SettingError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.cache import Cache, serve_from
from dragin_lab.run.rundir import Facts
from dragin_lab.warning import warn


@dataclass(frozen=True)
class Setup:
    """A model, a retriever, a prompt, a seed and a cache, all of them open.

    ``model`` is an engine (``engines.engine.Engine``), or a ``Cluster``, whose workers answer
    elsewhere.
    """

    model: Any
    retriever: Retriever | None = None  # None where no method of the call searches
    prompt: PromptTemplate | None = None  # None: the benchmark's own, else the model's default
    seed: int = 0
    cache: Cache | None = None
    layout: str | None = None  # of every prompt; None: the prompt's own
    # ISO; stands in a chat template that writes the date, however long it takes to answer
    day: str = ""
    # the name that the retriever was asked for by, such as "bm25"
    retriever_spec: str | None = None
    # what the package's own retriever recorded of itself when it was opened; None: it is asked
    retriever_facts: Facts | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether episodes are answered somewhere else (``cluster.Cluster``)."""
        return hasattr(self.model, "finish")

    @property
    def writer(self) -> Any:
        return self.model if self.cache is None else serve_from(self.model, self.cache)

    def template(self, method: Method, asked: PromptTemplate | None = None) -> PromptTemplate:
        """The prompt in the form that a method answers in: ``prompt``, else ``asked``, else the
        model's default.

        Raises ``SettingError`` where the method needs something that model or pipeline does not
        give.
        """
        check_needs(method, self.model)
        template = template_for(method, self.model, self.prompt or asked)
        template = template if self.layout is None else replace(template, layout=self.layout)
        chats = template.layout == "chat" or bool(template.shape.task)
        dated = chats and getattr(getattr(self.model, "tokenizer", None), "dated", False)
        return replace(template, day=self.day) if dated else template

    def retriever_for(self, method: Method) -> Retriever | None:
        """The retriever where the method searches at all; else None."""
        return self.retriever if method.retrieves else None

    def describe_retriever(self, method: Method) -> Facts | None:
        """What the retriever records of itself where the method searches at all; else None.

        One of the user's own is asked anew: it may have changed.
        """
        if method.retrieves and self.retriever_facts is not None:
            return dict(self.retriever_facts)
        return describe_retriever(self.retriever_for(method))


# -- the prompt of a model -------------------------------------------------------------------------


def default_template(lm: Any, method: Method | None = None) -> PromptTemplate:
    """The default prompt of a model: the embedded model has its own exemplars, any other only those
    a method needs.

    ``self-ask`` and ``flare-instruct`` need examples of their form of answer, which are in
    ``exemplars.OWN_SETS``.
    """
    form = "reasoning" if method is None else method.trigger.form
    if FORMS[form].task:
        return PromptTemplate(form=form)
    if lm.exemplars:
        return PromptTemplate(lm.exemplars[form], form=form, chosen="Almanac's default set")
    if form not in SHOWN_FORMS:
        return PromptTemplate()
    return replace(load_template(form), chosen=f"the package's own set for {form}")


def template_for(method: Method, lm: Any, prompt: PromptTemplate | None = None) -> PromptTemplate:
    """``prompt`` in the form in which a method answers; None takes the model's default.

    Exemplars that do not show the form are completed: for search calls, examples of them come
    first, as in the FLARE paper's Prompt D.3; exemplars without follow-up questions are replaced by
    the default's.
    """
    default = default_template(lm, method)
    if prompt is None:
        return default
    prompt = replace(prompt, form=method.trigger.form)
    if prompt.shape.shown(prompt.exemplars):
        return prompt
    if not default.preamble or not prompt.exemplars:
        prompt = replace(prompt, exemplars=default.exemplars, chosen=default.chosen)
    return replace(
        prompt,
        preamble=default.preamble + prompt.preamble,
        instruction=default.instruction + prompt.instruction,
    )


# -- who makes setups ------------------------------------------------------------------------------


@runtime_checkable
class MakesSetups(Protocol):
    """A ``Lab``, for the rooms below it."""

    def setup(self, *methods: Method) -> Setup:
        """What these methods are asked with; the retriever is opened where one of them searches."""


def as_method(given: Method | str, settings: Mapping[str, Any]) -> Method:
    """A method by name or as it is, with settings exchanged. Raises ``SettingError`` as
    ``dl.method``.
    """
    if isinstance(given, Method):
        return exchange_settings(given, **settings) if settings else given
    return make_method(given, **settings)


def serves_method(name: str, model: Any) -> bool:
    """Whether a model without attention gives all that a built-in method reads."""
    method = make_method(name)
    return not method.reads_attention and (
        getattr(model, "has_entropy", True) or "entropy" not in method.trigger.needs
    )


def check_needs(method: Method, model: Any) -> None:
    """Raise ``SettingError`` where a method needs something that model or pipeline does not
    give.
    """
    if method.reads_attention and not getattr(model, "has_attention", True):
        free = [name for name in METHODS if serves_method(name, model)]
        why = getattr(model, "no_attention", "")
        raise SettingError(
            f"method {method.name!r} looks at attention, and {model.name} has none; these need only"
            f" probabilities: {', '.join(free)}" + (f" ({why})" if why else "")
        )
    if "entropy" in method.trigger.needs and not getattr(model, "has_entropy", True):
        raise SettingError(
            f"trigger {method.trigger.name!r} reads entropies, and {model.name} gives none"
            f" ({model.no_attention}); take one that reads probabilities, such as"
            " when='probability' or 'margin'"
        )
    if method.trigger.hidden is not None and not getattr(model, "has_hidden", True):
        raise SettingError(
            f"trigger {method.trigger.name!r} reads hidden states, and {model.name} gives none;"
            " load the model in transformers for it"
        )
    if "entities" in method.trigger.needs:
        method.pipeline.require_entities()


# -- what a lab is made with -----------------------------------------------------------------------


def is_engine(model: Any) -> bool:
    """Whether it writes by itself: an engine, or a cluster."""
    return hasattr(model, "write") or hasattr(model, "finish")


def is_loaded(model: Any) -> bool:
    """Whether it is an object that an engine has to be made of: a loaded model."""
    return not (model is None or isinstance(model, str | Path) or is_engine(model))


def check_arguments(
    given: Mapping[str, Any], layout: str | None, loading: Mapping[str, Any]
) -> None:
    """Raise ``SettingError`` for arguments of ``Lab`` that cannot be, alone or together."""
    model = given["model"]
    corpus = given["corpus"]
    retriever = given["retriever"]
    for name, value in {**given, **loading}.items():
        refuse_password(name, value)
    if is_loaded(model):
        if loading.get("tokenizer") is None:
            raise SettingError(
                f"model {shown(model)} is {type(model).__name__}; give a folder or a Hugging Face"
                " id, or a loaded causal language model with its tokenizer: dl.Lab(model, corpus,"
                " tokenizer=tokenizer)"
            )
        from dragin_lab.engines.load import loaded_arguments

        for name in loading.keys() - set(loaded_arguments()):
            choice("argument of a loaded model,", name, loaded_arguments())
    if loading and is_engine(model):
        raise SettingError(
            f"{', '.join(loading)}: only for a model that the lab opens; {type(model).__name__} is"
            " open"
        )
    if hasattr(model, "finish") and not (corpus is None and retriever is None):
        raise SettingError(
            "a cluster searches its own passages; name them in its Recipe, and leave them out here"
        )
    if layout is not None:
        choice("layout", layout, LAYOUTS)
    is_own = not (retriever is None or isinstance(retriever, str))
    if is_own and corpus is not None:
        raise SettingError(
            "corpus and a retriever of your own: the retriever searches its own passages; give one"
        )
    fields = given["fields"]
    if fields is not None and (is_own or is_embedded(corpus) or isinstance(corpus, Corpus)):
        raise SettingError(
            f"fields={shown(fields)} names the columns of a file or table; give one as corpus"
        )


def warn_of_almanac(model: Any, retriever: Any) -> None:
    """Warn of a model that is not Almanac's over Almanac's passages, which nobody named."""
    named = getattr(model, "recipe", None) is not None and model.recipe.corpus is not None
    if not (named or model.exemplars) and retriever.provenance().get("corpus") == EMBEDDED:
        warn(
            f"{getattr(model, 'name', 'the model')} SEARCHES AN INVENTED WORLD: no passages were"
            " given, so it searches Almanac's; give your own as corpus (--corpus), or 'almanac'"
            " where that is meant"
        )


@cache
def describe_library() -> dict[str, str]:
    """The version of this package, and the SHA-256 (hex) of its source, which an unreleased
    change has too.
    """
    digest = sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return {"version": __version__, "source": digest.hexdigest()}


def describe_retriever(retriever: Any) -> Facts | None:
    return None if retriever is None else dict(retriever.provenance())


def describe_model(lm: Any) -> Facts:
    """What a model records of itself (``provenance``), with its chat template, the hash of its
    tokenizer, and the ids that end a text.
    """
    identity = getattr(lm, "identity", None)
    # a cluster's workers have recorded both
    known = (identity() if callable(identity) else None) or {}
    tokenizer = getattr(getattr(lm, "tokenizer", None), "hf", None)
    chat = getattr(tokenizer, "chat_template", None)
    recorded = dict(lm.provenance()) | ({"chat_template": str(chat)} if chat else {})
    return recorded | {key: known[key] for key in ("tokenizer_sha256", "eos") if key in known}
