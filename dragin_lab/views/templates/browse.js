// The batch explorer: browse(root, data) draws it into `root`.
const browse = (root, data) => {
  const { methods, questions, passages } = data;
  const verdict = (one) => !one ? "none" : one.end === "error" ? "failed" : one.u ? "unreadable" : one.em === null ? "answered" : one.em >= 1 ? "right" : "wrong";
  const hasOutcome = (one, want) => verdict(one) === want || (want === "wrong" && ["unreadable", "failed"].includes(verdict(one)));
  const SIGNS = { right: "✓ right", wrong: "✗ wrong", unreadable: "? unreadable", failed: "! failed", answered: "answered", none: "–" };
  const CSS = { right: "right", wrong: "wrong", unreadable: "wrong", failed: "wrong" };
  const causes = Object.keys(data.causes).filter((kind) => questions.some((one) => one.by.some((a) => a && a.c === kind)));
  const types = [...new Set(questions.map((one) => one.type).filter(Boolean))].sort();

  // -- what is chosen -------------------------------------------------------------------------------------------------
  const state = { text: "", type: "", set: "", cause: "", least: 0, by: methods.map(() => ""), sort: null, down: false, open: null, pair: [0, Math.min(1, methods.length - 1)] };
  let shown = questions;
  const words = new Map();
  const haystack = (one) => {
    if (!words.has(one)) {
      const parts = [one.q, one.id, ...one.gold];
      for (const a of one.by) if (a) parts.push(a.a, ...a.text.map((s) => s[1]), ...a.steps.flatMap((s) => [s.q, ...s.p.flatMap((p) => passages[p].slice(1))]));
      words.set(one, parts.join("\n").toLowerCase());
    }
    return words.get(one);
  };
  const rank = (a) => (a ? ["right", "answered", "wrong", "unreadable", "failed"].indexOf(verdict(a)) * 1000 + a.n : 1e6);
  const choose = () => {
    const wanted = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    shown = questions.filter((one) =>
      (!state.set || one.set === state.set) && (!state.type || one.type === state.type)
      && state.by.every((want, i) => !want || hasOutcome(one.by[i], want))
      && (!state.cause || one.by.some((a, i) => a && a.c === state.cause && (!state.by.some(Boolean) || state.by[i])))
      && (!state.least || one.by.some((a, i) => a && a.n >= state.least && (!state.by.some(Boolean) || state.by[i])))
      && wanted.every((word) => haystack(one).includes(word)));
    if (state.sort !== null) {
      const of = (one) => state.sort === "q" ? one.q : state.sort === "type" ? one.type : rank(one.by[state.sort]);
      shown = [...shown].sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (state.down ? -1 : 1));
    }
    grid.scrollTop = 0;
    status.textContent = `${shown.length.toLocaleString("en")} of ${questions.length.toLocaleString("en")} questions`;
    rows();
  };
  const option = (value, label, now) => make("option", { value, selected: value === now }, label);
  // A control and its part of the state follow each other.
  const controls = [];
  const follow = () => controls.forEach((control) => control());
  const tie = (control, get) => { controls.push(() => { control.value = get(); }); return control; };
  const pick = (label, key, values) => tie(make("select", { "aria-label": label, onchange: (e) => { state[key] = e.target.value; choose(); } }, option("", `${label}: any`), values.map((v) => option(v, v))), () => state[key]);

  // -- the table ------------------------------------------------------------------------------------------------------
  // The question takes the width that the methods leave. A row holds two lines of it, on a narrow page four.
  const height = () => (grid.clientWidth < 760 ? 81 : 47);
  const status = make("span", { class: "soft", role: "status" });
  const body = make("tbody");
  const sorter = (key, label) => {
    const button = make("button", { type: "button", title: "sort", onclick: () => { state.down = state.sort === key && !state.down; state.sort = key; follow(); choose(); } }, label);
    controls.push(() => { if (state.sort === key) button.setAttribute("aria-sort", state.down ? "descending" : "ascending"); else button.removeAttribute("aria-sort"); });
    return button;
  };
  const outcomes = ["right", "wrong", "unreadable", "failed"].filter((v) => questions.some((one) => one.by.some((a) => hasOutcome(a, v))));
  const head = make("tr", {}, make("th", { scope: "col" }, sorter("q", "question")), types.length ? make("th", { scope: "col", class: "type", style: "width:110px" }, sorter("type", "type")) : null,
    methods.map((name, i) => make("th", { scope: "col", style: "width:128px" }, sorter(i, name),
      tie(make("select", { "aria-label": `outcome of ${name}`, onchange: (e) => { state.by[i] = e.target.value; choose(); } }, option("", "any"), outcomes.map((v) => option(v, v))), () => state.by[i]))));
  const grid = make("div", { class: "grid", tabindex: "-1" }, make("table", { style: `min-width:${210 + 128 * methods.length}px` }, make("thead", {}, head), body));
  const cell = (a) => a ? make("td", {}, make("div", {}, make("b", { class: CSS[verdict(a)] }, SIGNS[verdict(a)]), make("span", { class: "c" }, ` ${a.n} ◆`, a.c ? ` · ${a.c}` : ""))) : make("td", {}, "–");
  const row = (one, at) => make("tr", { "data-at": at, tabindex: "0", "aria-label": `open: ${one.q}`, onclick: () => open(at), onkeydown: (e) => {
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(at); }
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (by) { e.preventDefault(); focus(at + by); }
  } }, make("td", {}, make("div", { class: "asked", title: one.q, dir: "auto" }, one.q)), types.length ? make("td", { class: "type" }, make("div", {}, one.type.replaceAll("_", " "))) : null, one.by.map(cell));
  const pad = (height) => make("tr", { "aria-hidden": "true" }, make("td", { class: "pad", colspan: methods.length + 1 + Boolean(types.length), style: `height:${height}px` }));
  const rows = (all = false) => {
    const first = all ? 0 : Math.max(0, Math.floor(grid.scrollTop / height()) - 10);
    const last = all ? Math.min(shown.length, 2000) : Math.min(shown.length, first + Math.ceil((grid.clientHeight || 700) / height()) + 24);
    const focused = body.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    body.replaceChildren(pad(first * height()), ...shown.slice(first, last).map((one, i) => row(one, first + i)), pad(all ? 0 : (shown.length - last) * height()));
    if (focused !== null) body.querySelector(`[data-at="${focused}"]`)?.focus({ preventScroll: true });
  };
  const focus = (at) => {
    if (at < 0 || at >= shown.length) return;
    if (!body.querySelector(`[data-at="${at}"]`)) { grid.scrollTop = at * height() - 200; rows(); }
    body.querySelector(`[data-at="${at}"]`)?.focus();
  };
  new ResizeObserver(() => rows()).observe(grid);
  let drawing = 0;
  grid.addEventListener("scroll", () => { cancelAnimationFrame(drawing); drawing = requestAnimationFrame(() => rows()); });
  addEventListener("beforeprint", () => rows(true));
  addEventListener("afterprint", () => rows());
  let typing = 0;
  const search = tie(make("input", { type: "search", placeholder: "search questions, answers, queries, passages", "aria-label": "search", oninput: (e) => { clearTimeout(typing); state.text = e.target.value; typing = setTimeout(choose, 120); } }), () => state.text);
  const bar = make("div", { class: "bar" }, search, data.sets.length > 1 ? pick("data set", "set", data.sets) : null, types.length ? pick("type", "type", types) : null, causes.length ? pick("cause", "cause", causes) : null,
    make("label", {}, "retrievals at least ", tie(make("input", { type: "number", min: 0, style: "width:4em", oninput: (e) => { state.least = Number(e.target.value) || 0; choose(); } }), () => state.least || "")), status);
  const list = make("div", {}, bar, grid);

  // -- sentence beside sentence (views/methods.py) ------------------------------------------------------------------
  const trigrams = (text) => { const flat = ` ${text.toLowerCase().split(/\s+/).join(" ")} `; const out = new Set(); for (let i = 0; i + 3 <= flat.length; i++) out.add(flat.slice(i, i + 3)); return out; };
  const alike = (a, b) => { let same = 0; for (const t of a) same += b.has(t); return a.size + b.size ? (2 * same) / (a.size + b.size) : 0; };
  const align = (left, right) => {
    const a = left.map((s) => trigrams(s[1])), b = right.map((s) => trigrams(s[1]));
    const like = a.map((x) => b.map((y) => { const v = alike(x, y); return v >= 0.15 ? v : 0; }));
    const best = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
    for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) best[i][j] = Math.max(like[i][j] ? best[i + 1][j + 1] + like[i][j] : 0, best[i + 1][j], best[i][j + 1]);
    const out = [];
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && like[i][j] && best[i][j] === best[i + 1][j + 1] + like[i][j]) out.push([i++, j++]);
      else if (j >= b.length || (i < a.length && best[i][j] === best[i + 1][j])) out.push([i++, null]);
      else out.push([null, j++]);
    }
    return out;
  };
  // The words of a sentence; those that the other one does not have, in order, are marked.
  const marked = (text, other) => {
    const a = text.split(/\s+/), b = other.split(/\s+/);
    const best = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
    for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    const out = [];
    for (let i = 0, j = 0; i < a.length; i++) {
      while (j < b.length && a[i] !== b[j] && best[i][j] === best[i][j + 1]) j++;
      const same = j < b.length && a[i] === b[j];
      out.push(i ? " " : "", same ? a[i] : make("ins", {}, a[i]));
      if (same) j++;
    }
    return out;
  };

  // -- two traces -----------------------------------------------------------------------------------------------------
  const needed = (one, p) => one.needs.some(([, id, title]) => (id ? passages[p][0] === id : passages[p][1] === title));
  const came = (one, a, n) => {
    const step = a.steps[n];
    return make("div", { class: "came" }, make("p", {}, make("b", {}, `◆ ${step.n} `), step.why || "retrieved"), step.cut ? make("p", {}, "thrown away: ", make("del", {}, step.cut)) : null,
      make("p", {}, "asked: ", make("q", {}, step.q)),
      step.p.length ? make("ol", {}, step.p.map((p, r) => make("li", {}, make("details", {}, make("summary", {}, `${r + 1}. ${passages[p][1] || passages[p][0]}`, needed(one, p) ? make("b", { class: "right" }, " ★ needed") : null), passages[p][2])))) : null);
  };
  const side = (one, a, at, other) => at === null ? make("div", { class: "soft" }, "–") : make("div", {}, a.text[at][2].map((n) => came(one, a, n)),
    make("p", { class: `said${a.text[at][0] ? " new" : ""}`, dir: "auto" }, other === null ? a.text[at][1] : marked(a.text[at][1], other)));
  const rankOf = (a, [, id, title]) => {
    if (!a) return "–";
    const hits = a.steps.flatMap((s) => s.p.map((p, r) => [p, s.n, r])).filter(([p]) => (id ? passages[p][0] === id : passages[p][1] === title));
    return hits.length ? hits.map(([, n, r]) => `rank ${r + 1} in ◆ ${n}`).join(", ") : "not found";
  };
  const about = (a, i) => make("div", {}, make("div", { class: "ans" }, make("b", { dir: "auto" }, a ? a.a || "(no answer)" : "(not answered)"), a ? make("span", { class: `chip ${CSS[verdict(a)] || ""}` }, SIGNS[verdict(a)]) : null),
    a && a.c ? make("p", {}, make("b", {}, `${a.c}: `), a.why) : null,
    a ? make("p", { class: "soft" }, `${a.n} retrieval${a.n === 1 ? "" : "s"} · ${a.p} tokens · ended: ${a.end}`) : null);
  const open = (at, pair = null) => {
    if (at < 0 || at >= shown.length) return;
    const one = shown[at];
    if (pair) state.pair = pair;
    else if (state.open === null) {
      const wanted = state.by.map((want, i) => [want, i]).filter(([want]) => want).map(([, i]) => i);
      const verdicts = one.by.map(verdict);
      const differs = verdicts.findIndex((v) => v !== verdicts[0]);
      state.pair = wanted.length > 1 ? wanted.slice(0, 2) : wanted.length === 1 ? [wanted[0], wanted[0] ? 0 : Math.min(1, methods.length - 1)] : [0, differs > 0 ? differs : Math.min(1, methods.length - 1)];
    }
    state.open = at;
    const [i, j] = state.pair;
    const [a, b] = [one.by[i], one.by[j]];
    const chooser = (k) => make("select", { "aria-label": k ? "right" : "left", onchange: (e) => { state.pair[k] = Number(e.target.value); open(at); } }, methods.map((name, n) => option(String(n), name, String(state.pair[k]))));
    const step = (by, label) => make("button", { type: "button", disabled: at + by < 0 || at + by >= shown.length, onclick: () => open(at + by) }, label);
    const tools = make("div", { class: "tell", tabindex: "0", role: "group", "aria-label": "keys: n next, p previous, Escape back" }, make("button", { type: "button", onclick: close }, "← all questions"), step(-1, "‹ previous (p)"), step(1, "next (n) ›"), make("span", { class: "soft", role: "status" }, `${at + 1} of ${shown.length}`));
    const slots = a && b ? align(a.text, b.text) : (a || b || { text: [] }).text.map((_, n) => (a ? [n, null] : [null, n]));
    const flat = (s) => s.replace(/\s+/g, " ").trim();
    const differ = slots.map(([x, y]) => x === null || y === null || flat(a.text[x][1]) !== flat(b.text[y][1]));
    const first = i === j ? -1 : differ.indexOf(true);
    const lines = slots.map(([x, y], n) => make("div", { class: `two${n === first ? " first" : ""}` }, n === first ? make("div", { class: "vh2" }, "first difference") : null,
      side(one, a, x, y === null || !differ[n] ? null : b.text[y][1]), side(one, b, y, x === null || !differ[n] ? null : a.text[x][1])));
    detail.replaceChildren(tools,
      make("div", { class: "head" }, make("div", { class: "eye" }, `${one.set} · ${one.id}${one.type ? ` · ${one.type}` : ""}`), make("h3", { class: "q", dir: "auto" }, one.q), make("p", {}, make("span", { class: "soft" }, "gold: "), one.gold.join(" or ") || "nobody knows")),
      make("div", { class: "two" }, [[a, 0], [b, 1]].map(([x, k]) => make("div", {}, chooser(k), about(x)))),
      one.needs.length ? make("div", { class: "head wide needs" }, make("table", { class: "need" }, make("thead", {}, make("tr", {}, ["needed", methods[i], methods[j]].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, one.needs.map((need) => make("tr", {}, make("td", {}, need[0]), make("td", {}, rankOf(a, need)), make("td", {}, rankOf(b, need))))))) : "",
      ...lines);
    detail.hidden = false;
    list.hidden = true;
    tools.focus({ preventScroll: true });
  };
  const close = () => {
    const at = state.open;
    state.open = null;
    detail.hidden = true;
    list.hidden = false;
    rows();
    if (at !== null) focus(at);
  };
  const detail = make("div", { hidden: true });
  detail.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("select")) return;
    const does = { n: () => open(state.open + 1), p: () => open(state.open - 1), ArrowRight: () => open(state.open + 1), ArrowLeft: () => open(state.open - 1), Escape: close }[e.key];
    if (!does) return;
    e.preventDefault();
    e.stopPropagation();
    does();
  });
  root.append(list, detail);
  choose();
};
