"""The pictures of notebooks have the colours of their figures, however few bytes they have."""

from __future__ import annotations

import base64
import io
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from PIL import Image, ImageColor, ImageDraw

from dragin_lab.views import theme
from dragin_lab.widgets.control import PLOTLY, figure_json
from tools.gallery import COLOURS, tidy

OTHERS = ["#123456", "#fedcba"]  # of somebody's own figure


def paint(colours: list[str], size: int) -> Image.Image:
    """A picture with a small square of each colour below a band of thousands of others."""
    picture = Image.new("RGB", (400, 300), "white")
    band = Image.radial_gradient("L").resize((400, 200))
    picture.paste(Image.merge("RGB", [band, band.rotate(90), band.rotate(180)]))
    draw = ImageDraw.Draw(picture)
    for place, colour in enumerate(colours):
        draw.rectangle([20 * place, 220, 20 * place + size, 220 + size], colour)
    return picture


@pytest.mark.parametrize("size", [1, 8])
def test_a_point_keeps_its_colour(size: int) -> None:
    colours = [*theme.COLOURS, *OTHERS]
    figure = go.Figure(go.Scatter(y=[0] * len(colours), marker_color=colours))
    png = io.BytesIO()
    paint(colours, size).save(png, "PNG")
    data: dict[str, Any] = {"image/png": base64.b64encode(png.getvalue()).decode()}
    output = nbformat.v4.new_output("display_data", data | {PLOTLY: figure_json(figure)})
    tidy(output)
    small = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
    assert small.mode == "P"
    there = [colour for _, colour in small.convert("RGB").getcolors(256)]
    assert {ImageColor.getrgb(colour) for colour in colours} <= {*there}
    assert len(there) <= COLOURS
