"""Views of traces, sweeps and ground truth: pure functions that take a trace or a table and return a ``View``.

``heatmap``, ``selections``, ``timeline``, ``side_by_side`` and ``replayed`` are HTML and CSS alone. ``attention_map``,
``contributions``, ``threshold_sweep``, ``cost_quality``, ``frontier``, ``needs_curves`` and ``score_distributions`` are
figures: SVG by matplotlib, with their numbers as a table. All show in a notebook, in a saved page and, as text, in a
terminal. ``view.save`` writes a page that opens offline, or a figure as a picture, ``save_html`` several views as one
page; ``browse_page`` is the explorer of whole runs.
"""

from dragin_lab.views.attention import attention_map
from dragin_lab.views.browsing import browse_page
from dragin_lab.views.contributions import contributions
from dragin_lab.views.export import save_html
from dragin_lab.views.figures import Figure
from dragin_lab.views.frame import View
from dragin_lab.views.heatmaps import heatmap
from dragin_lab.views.methods import side_by_side
from dragin_lab.views.needs import needs_curves, score_distributions
from dragin_lab.views.replays import replayed
from dragin_lab.views.selections import selections
from dragin_lab.views.thresholds import cost_quality, frontier, threshold_sweep
from dragin_lab.views.timelines import timeline
from dragin_lab.views.trace import trace_html, trace_text, trace_view

__all__ = [
    "Figure",
    "View",
    "attention_map",
    "browse_page",
    "contributions",
    "cost_quality",
    "frontier",
    "heatmap",
    "needs_curves",
    "replayed",
    "save_html",
    "score_distributions",
    "selections",
    "side_by_side",
    "threshold_sweep",
    "timeline",
    "trace_html",
    "trace_text",
    "trace_view",
]
