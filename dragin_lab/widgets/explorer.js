// Step through an episode token by token. All data is here; nothing is asked of Python. A tree of branches (branching.js)
// draws each trace by it: `model.branch` and `model.forms` ask for another one.
const PART = { question: "question", answer: "answer so far", passages: "passages", exemplars: "exemplars", draft: "this text" };

const bar = (label, value, top, shown, css) =>
  make(
    "div",
    { class: `dl-bar ${css}` },
    make("span", {}, label),
    make("i", { style: `--w:${top > 0 && value > 0 ? Math.min(value / top, 1) : 0}`, "aria-hidden": "true" }),
    make("b", {}, shown),
  );

function render({ model, el }) {
  const data = model.get("data");
  const { body, complain } = card(model, el, "dl-explore", "Explore a trace");
  complain(data.error);
  if (data.error) return;
  body.append(fromHtml(data.head));
  if (!data.texts.length) {
    body.append(make("p", { class: "head soft" }, "Nothing is written yet, so there are no tokens to look at."));
    return;
  }
  let text = 0;
  let token = 0;

  const tabs = make("div", { class: "dl-tabs", role: "tablist", "aria-label": "Texts of the episode" });
  const words = make("div", { class: "txt dl-tokens", role: "listbox", tabindex: "0", dir: "auto" });
  const figures = make("div", { class: "dl-token", role: "status", "aria-live": "polite" });
  const side = make("div", { class: "dl-step-about" });
  const id = `dl-${Math.random().toString(36).slice(2, 9)}`;

  data.texts.forEach((t, i) => {
    const tab = make(
      "button",
      { type: "button", role: "tab", class: "dl-tab", id: `${id}-t${i}`, "aria-controls": `${id}-w`, onclick: () => show(i, null, true) },
      make("b", {}, t.title),
      make("small", {}, t.about),
    );
    tabs.append(tab);
  });
  words.id = `${id}-w`;
  const move = (to) => () => to();
  const back = make("button", { type: "button", class: "dl-button", onclick: move(() => step(-1)), "aria-label": "Previous token" }, "← token");
  const on = make("button", { type: "button", class: "dl-button", onclick: move(() => step(1)), "aria-label": "Next token" }, "token →");
  const hit = make("button", { type: "button", class: "dl-button", onclick: move(() => nextHit()) }, data.next);
  const keys = make("span", { class: "soft" }, `← → tokens · ↑ ↓ texts · H ${data.next} · Home End${model.branch ? " · 1–9 branch" : ""}`);
  body.append(
    tabs,
    make("div", { class: "dl-split" }, make("div", { class: "dl-left" }, make("div", { class: "dl-tools" }, back, on, hit, keys), words, side), figures),
    fromHtml(data.legend),
  );

  function show(which, at, focus) {
    const t = data.texts[which];
    const fresh = which !== text || !words.childElementCount;
    text = which;
    if (fresh) {
      words.replaceChildren();
      t.cells.forEach((c, i) => {
        if (c.b) words.append(c.b);
        if (c.u && c.u[2]) words.append(bracket("[", c.u[1]));
        const css = [c.l ? `h${c.l}` : "", c.x || "", "dl-cell"].join(" ").trim();
        const name = `${c.y || ""}${c.h ? "hit: " : ""}${c.t}`;
        words.append(
          make("span", { class: css, role: "option", id: `${id}-p${i}`, "data-token": i, "aria-selected": "false", "aria-label": name, onclick: () => show(text, i, true) }, c.t),
        );
        if (c.u && c.u[3]) words.append(bracket("]", c.u[1]), bracket(c.u[0], c.u[1], "tag"));
      });
      if (!t.cells.length) words.append(make("span", { class: "soft" }, "nothing was written"));
      words.setAttribute("aria-label", `${t.title}: tokens`);
      side.replaceChildren(fromHtml(t.html), ...(model.forms ? model.forms(t, () => t.cells[token]) : []));
      [...tabs.children].forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(i === which));
        tab.tabIndex = i === which ? 0 : -1;
      });
      hit.disabled = !t.cells.some((c) => c.j);
    }
    select(at === null ? t.start : at);
    if (focus) words.focus({ preventScroll: true });
  }

  function select(at) {
    const cells = data.texts[text].cells;
    words.querySelectorAll('[aria-selected="true"]').forEach((node) => node.setAttribute("aria-selected", "false"));
    words.querySelectorAll(".dl-seen").forEach((node) => {
      node.classList.remove("dl-seen");
      node.style.removeProperty("--seen");
    });
    if (!cells.length) {
      figures.replaceChildren();
      words.removeAttribute("aria-activedescendant");
      return;
    }
    token = Math.max(0, Math.min(at, cells.length - 1));
    const node = words.querySelector(`[data-token="${token}"]`);
    node.setAttribute("aria-selected", "true");
    words.setAttribute("aria-activedescendant", node.id);
    figures.replaceChildren(...about(cells[token]));
  }

  function about(c) {
    const top = data.tops;
    const t = data.texts[text];
    const rows = [
      make("div", { class: "dl-name" }, make("b", { dir: "auto" }, c.v), make("small", {}, `token ${c.n} of ${t.tokens} · ${t.title}`)),
      bar("entropy", c.e, top.e, `${figure(c.e)}${c.d ? ` ± ${figure(c.d)}` : ""} nats`, "e"),
      bar("attention received", c.a, top.a, figure(c.a), "a"),
      bar("probability", c.p, 1, percent(c.p), "p"),
    ];
    if (c.w) {
      rows.push(make("h4", {}, "Its word ", make("bdi", {}, `“${c.w.t}”`)));
      if (c.w.s !== null) {
        const full = Math.max(top.s, data.theta ?? top.s) - data.base;
        const scored = bar(data.score, c.w.s - data.base, full, figure(c.w.s), c.w.over ? "s over" : "s");
        if (data.theta !== null) scored.querySelector("i").style.setProperty("--t", (data.theta - data.base) / Math.max(full, 1e-9));
        rows.push(scored);
      }
      const flags = [];
      if (c.w.stop) flags.push("● stop word: never a hit");
      if (c.h) flags.push("◆ hit: lacks information");
      if (c.f) flags.push("this token fired");
      if (c.w.v) flags.push(c.w.v);
      rows.push(make("p", { class: "soft" }, flags.join(" · ")));
      if (c.w.m) rows.push(make("p", { class: "soft" }, c.w.m, t.second ? " (attention as the trigger read it)" : ""));
    } else {
      rows.push(make("p", { class: "soft" }, t.unjudged));
    }
    if (c.u) rows.push(make("p", {}, `Judged as a whole: ${c.u[0]}`));
    if (c.g) rows.push(make("p", { class: "soft" }, "✂ thrown away"));
    if (c.o.length) {
      rows.push(make("h4", {}, "Likeliest tokens here"));
      rows.push(make("ol", { class: "dl-list" }, c.o.map(([name, p, written], rank) =>
        make("li", { class: written ? "dl-written" : null, style: `--w:${p}` }, model.branch ? model.branch(t, c, rank, name) : make("bdi", {}, name), make("span", {}, `${written ? "✓ " : ""}${percent(p)}`)))));
    }
    rows.push(make("h4", {}, "Attends to"));
    if (c.k.length) {
      const most = c.k[0][2] || 1;
      c.k.forEach(([, , weight, cells]) => cells.forEach((at) => {
        const seen = words.querySelector(`[data-token="${at}"]`);
        if (seen) seen.classList.add("dl-seen");
      }));
      rows.push(make("ol", { class: "dl-list" }, c.k.map(([name, part, weight]) =>
        make("li", { style: `--w:${weight / most}` }, make("bdi", {}, name), make("small", {}, PART[part] || part || "prompt"), make("span", {}, figure(weight))))));
    } else {
      rows.push(make("p", { class: "soft" }, t.rows ? "only to itself and to special tokens" : "The rows of attention were not kept. The paper variant of dragin keeps them."));
    }
    return rows;
  }

  const step = (by) => {
    const cells = data.texts[text].cells;
    if (token + by < 0 && text > 0) return show(text - 1, data.texts[text - 1].cells.length - 1, true);
    if (token + by >= cells.length && text < data.texts.length - 1) return show(text + 1, 0, true);
    select(token + by);
  };
  const nextHit = () => {
    const cells = data.texts[text].cells;
    const order = cells.map((_, i) => (token + 1 + i) % cells.length);
    const next = order.find((i) => cells[i].j);
    if (next !== undefined) select(next);
  };
  const actions = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    ArrowDown: () => show(Math.min(text + 1, data.texts.length - 1), null, true),
    ArrowUp: () => show(Math.max(text - 1, 0), null, true),
    Home: () => select(0),
    End: () => select(data.texts[text].cells.length - 1),
    h: nextHit,
    H: nextHit,
  };
  words.addEventListener("keydown", (event) => {
    const action = actions[event.key] || (model.branch && /^[1-9]$/.test(event.key) && (() => figures.querySelectorAll(".dl-alternative")[event.key - 1]?.click()));
    if (event.ctrlKey || event.metaKey || event.altKey || !action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  tabs.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    show(Math.max(0, Math.min(text + by, data.texts.length - 1)), null, false);
    tabs.children[text].focus();
  });
  const first = data.at || {};
  const which = data.texts.findIndex((t) => t.step === first.step && (!first.text || t.name === first.text));
  const cell = which < 0 || !first.token ? -1 : data.texts[which].cells.findIndex((c) => c.n >= first.token);
  show(which < 0 ? data.start : which, cell < 0 ? null : cell, false);
}
export default { render };
