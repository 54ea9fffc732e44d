"""Which prompt a model gets for a method: its own default, or what was given, in the form that the method needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dragin_lab.core.forms import FORMS
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.data.exemplars import FORM_SETS, load_template

if TYPE_CHECKING:
    from dragin_lab.core.method import Method


class Model(Protocol):
    """What a template has to know of a model, wherever it is."""

    @property
    def embedded(self) -> bool:
        """Whether it is the one that the package brings."""


def default_template(lm: Model, method: Method | None = None) -> PromptTemplate:
    """The prompt for a model: the embedded model's own exemplars for it; for any other none where a method needs none.

    ``self-ask`` and ``flare-instruct`` answer in a form that has to be shown: ``exemplars.FORM_SETS`` shows it.
    """
    from dragin_lab.almanac import default_exemplars

    form = "reasoning" if method is None else method.form
    if FORMS[form].task:
        return PromptTemplate(form=form)
    if lm.embedded:
        return PromptTemplate(default_exemplars(form), form=form)
    return load_template(FORM_SETS[form], form) if form in FORM_SETS else PromptTemplate()


def template_for(method: Method, lm: Model, prompt: PromptTemplate | None = None) -> PromptTemplate:
    """``prompt`` in the form that a method answers in; None takes the model's own default.

    Exemplars that do not show the form are completed: for search calls the skill is shown before them, as the FLARE
    paper's Prompt D.3 does; in place of those without follow-up questions stand the default's own.
    """
    default = default_template(lm, method)
    if prompt is None:
        return default
    if FORMS[method.form].shown(prompt.exemplars):
        return replace(prompt, form=method.form)
    exemplars = prompt.exemplars
    if not default.preamble or not exemplars:
        exemplars = default.exemplars
    return replace(
        prompt,
        form=method.form,
        exemplars=exemplars,
        preamble=default.preamble + prompt.preamble,
        instruction=default.instruction + prompt.instruction,
    )
