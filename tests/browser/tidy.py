"""What a designer would mend, found by measuring a page: faint text, spilling boxes, labels over
one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

#: WCAG 2.2, success criterion 1.4.3: contrast of text, and of large text (from 24 px, or bold from
#: 18.66 px).
CONTRAST, LARGE = 4.5, 3.0

_CARD = """(card, [normal, large]) => {
  const parse = css => {
    const srgb = css.startsWith('color(srgb');
    const v = (css.match(/[\\d.]+(?:e-?\\d+)?/g) ?? []).map(Number);
    const [r, g, b] = srgb ? v.map(x => 255 * x) : v;
    return [r ?? 0, g ?? 0, b ?? 0, v[3] ?? 1];
  };
  const over = (top, under) => top.slice(0, 3).map((x, i) => x * top[3] + under[i] * (1 - top[3]));
  const light = c => {
    const [r, g, b] = c.map(x => x / 255)
      .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const scheme = getComputedStyle(card).colorScheme;
  const dark = scheme === 'dark'
    || (scheme === 'light dark' && matchMedia('(prefers-color-scheme: dark)').matches);
  const found = [];
  const edge = card.getBoundingClientRect();
  const shown = el => {
    const box = el.getBoundingClientRect();
    return box.width > 1 && box.height > 1
      && getComputedStyle(el).visibility === 'visible' && el.checkVisibility();
  };
  for (const el of [card, ...card.querySelectorAll('*')]) {
    if (!shown(el) || el.closest('.vh, :disabled, style, script')) continue;
    const own = [...el.childNodes].filter(n => n.nodeType === 3 && n.textContent.trim());
    if (!own.length) continue;
    const words = own.map(n => n.textContent.trim()).join(' ').slice(0, 40);
    let rolls = false;
    for (let up = el; up && up !== card.parentElement; up = up.parentElement)
      rolls ||= ['auto', 'scroll'].includes(getComputedStyle(up).overflowX);
    const boxes = own.flatMap(node => {
      const range = document.createRange();
      range.selectNodeContents(node);
      return [...range.getClientRects()];
    });
    const right = Math.max(...boxes.map(r => r.right));
    if (!rolls && right > edge.right + 1)
      found.push(`spills by ${Math.round(right - edge.right)} px: ${words}`);
    const layers = [];
    let picture = false, opacity = 1;
    for (let up = el; up; up = up.parentElement) {
      const css = getComputedStyle(up);
      opacity *= Number(css.opacity);
      picture ||= css.backgroundImage !== 'none' && !css.backgroundImage.includes('repeating');
      const back = parse(css.backgroundColor);
      layers.push(back);
      if (back[3] === 1) break;
    }
    if (picture) continue;
    let back = dark ? [18, 18, 18] : [255, 255, 255];
    for (const layer of layers.reverse()) back = over(layer, back);
    const css = getComputedStyle(el), ink = parse(css.color);
    const front = over([...ink.slice(0, 3), ink[3] * opacity], back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(css.fontSize);
    const big = size >= 24 || (size >= 18.66 && Number(css.fontWeight) >= 700);
    if (ratio < (big ? large : normal) - 0.01)
      found.push(`contrast ${ratio.toFixed(2)}, ${css.color} on ${back.map(Math.round)}: ${words}`);
  }
  return [...new Set(found)];
}"""

_FIGURE = """figure => {
  const problems = [], box = el => el.getBoundingClientRect();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const inside = box(figure);
  const written = text => text.textContent.trim() && box(text).width;
  const texts = [...figure.querySelectorAll('.main-svg text')].filter(written);
  for (const text of texts) {
    const says = text.textContent.trim(), b = box(text);
    const across = Math.max(b.right - inside.right, inside.left - b.left);
    if (Math.max(across, b.bottom - inside.bottom, inside.top - b.top) > 1)
      problems.push(`cut off: ${says}`);
    if (parseFloat(getComputedStyle(text).fontSize) < 9) problems.push(`too small: ${says}`);
  }
  const flat = texts.filter(text => !/rotate\\((?!0)/.test(text.getAttribute('transform') ?? ''));
  flat.forEach((a, i) => flat.slice(i + 1).forEach(b => {
    if (meet(box(a), box(b)))
      problems.push(`over one another: ${a.textContent.trim()} | ${b.textContent.trim()}`);
  }));
  return [...new Set(problems)];
}"""


def card_problems(card: Locator) -> list[str]:
    """What is wrong with a static view or a widget: text of too little contrast, text outside of
    its card.
    """
    return card.evaluate(_CARD, [CONTRAST, LARGE])


def figure_problems(figure: Locator) -> list[str]:
    """What is wrong with a figure: texts that meet, are cut off or too small to read."""
    return figure.evaluate(_FIGURE)


def sideways(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
