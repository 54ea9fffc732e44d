"""The prompt of a model for a method: its default or a given one, in the form that the method needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from dragin_lab.core.forms import FORMS
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.data.exemplars import FORM_SETS, load_template

if TYPE_CHECKING:
    from dragin_lab.core.method import Method


class Model(Protocol):
    """What a template needs to know about a model."""

    @property
    def embedded(self) -> bool:
        """Whether it is the package's own."""


def default_template(lm: Model, method: Method | None = None) -> PromptTemplate:
    """The default prompt of a model: the embedded model has its own exemplars, any other only those a method needs.

    ``self-ask`` and ``flare-instruct`` need examples of their form of answer, which are in ``exemplars.FORM_SETS``.
    """
    from dragin_lab.almanac import default_exemplars

    form = "reasoning" if method is None else method.form
    if FORMS[form].task:
        return PromptTemplate(form=form)
    if lm.embedded:
        return PromptTemplate(default_exemplars(form), form=form, chosen="Almanac's default set")
    if form not in FORM_SETS:
        return PromptTemplate()
    return replace(load_template(FORM_SETS[form], form), chosen=f"the package's own set for {form}")


def template_for(method: Method, lm: Model, prompt: PromptTemplate | None = None) -> PromptTemplate:
    """``prompt`` in the form in which a method answers; None takes the model's default.

    Exemplars that do not show the form are completed: for search calls, examples of them come first, as in the FLARE
    paper's Prompt D.3; exemplars without follow-up questions are replaced by the default's.
    """
    default = default_template(lm, method)
    if prompt is None:
        return default
    if FORMS[method.form].shown(prompt.exemplars):
        return replace(prompt, form=method.form)
    exemplars, chosen = prompt.exemplars, prompt.chosen
    if not default.preamble or not exemplars:
        exemplars, chosen = default.exemplars, default.chosen
    return replace(
        prompt,
        form=method.form,
        exemplars=exemplars,
        chosen=chosen,
        preamble=default.preamble + prompt.preamble,
        instruction=default.instruction + prompt.instruction,
    )
