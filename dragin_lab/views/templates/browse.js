// The batch explorer: browse(root, data) draws it into `root`. Text never becomes HTML.
const browse = (root, data) => {
  const el = (name, attributes = {}, ...inner) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...inner.flat(3).filter((part) => part !== null && part !== undefined && part !== false));
    if (node.matches("button, input, select, textarea, summary, [tabindex]")) node.setAttribute("data-lm-suppress-shortcuts", "true");
    return node;
  };
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
  const option = (value, label, now) => el("option", { value, selected: value === now }, label);
  const pick = (label, key, values) => el("select", { "aria-label": label, onchange: (e) => { state[key] = e.target.value; choose(); } }, option("", `${label}: any`), values.map((v) => option(v, v)));

  // -- the table ------------------------------------------------------------------------------------------------------
  // The question takes the width that the methods leave. A row holds two lines of it, on a narrow page four.
  const height = () => (grid.clientWidth < 760 ? 81 : 47);
  const status = el("span", { class: "soft", role: "status" });
  const body = el("tbody");
  const heads = [];
  const sorter = (key, label) => {
    const button = el("button", { type: "button", title: "sort", onclick: () => {
      state.down = state.sort === key && !state.down;
      state.sort = key;
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      button.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      choose();
    } }, label);
    heads.push(button);
    return button;
  };
  const outcomes = ["right", "wrong", "unreadable", "failed"].filter((v) => questions.some((one) => one.by.some((a) => hasOutcome(a, v))));
  const head = el("tr", {}, el("th", { scope: "col" }, sorter("q", "question")), types.length ? el("th", { scope: "col", class: "type", style: "width:110px" }, sorter("type", "type")) : null,
    methods.map((name, i) => el("th", { scope: "col", style: "width:128px" }, sorter(i, name),
      el("select", { "aria-label": `outcome of ${name}`, onchange: (e) => { state.by[i] = e.target.value; choose(); } }, option("", "any"), outcomes.map((v) => option(v, v))))));
  const grid = el("div", { class: "grid", tabindex: "-1" }, el("table", { style: `min-width:${210 + 128 * methods.length}px` }, el("thead", {}, head), body));
  const cell = (a) => a ? el("td", {}, el("div", {}, el("b", { class: CSS[verdict(a)] }, SIGNS[verdict(a)]), el("span", { class: "c" }, ` ${a.n} ◆`, a.c ? ` · ${a.c}` : ""))) : el("td", {}, "–");
  const row = (one, at) => el("tr", { "data-at": at, tabindex: "0", "aria-label": `open: ${one.q}`, onclick: () => open(at), onkeydown: (e) => {
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(at); }
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (by) { e.preventDefault(); focus(at + by); }
  } }, el("td", {}, el("div", { class: "asked", title: one.q, dir: "auto" }, one.q)), types.length ? el("td", { class: "type" }, el("div", {}, one.type.replaceAll("_", " "))) : null, one.by.map(cell));
  const pad = (height) => el("tr", { "aria-hidden": "true" }, el("td", { class: "pad", colspan: methods.length + 1 + Boolean(types.length), style: `height:${height}px` }));
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
  const search = el("input", { type: "search", placeholder: "search questions, answers, queries, passages", "aria-label": "search", oninput: (e) => { clearTimeout(typing); state.text = e.target.value; typing = setTimeout(choose, 120); } });
  const bar = el("div", { class: "bar" }, search, data.sets.length > 1 ? pick("data set", "set", data.sets) : null, types.length ? pick("type", "type", types) : null, causes.length ? pick("cause", "cause", causes) : null,
    el("label", {}, "retrievals at least ", el("input", { type: "number", min: 0, style: "width:4em", oninput: (e) => { state.least = Number(e.target.value) || 0; choose(); } })), status);
  const list = el("div", {}, bar, grid);

  // -- sentence beside sentence (views/alignment.py) ------------------------------------------------------------------
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
      out.push(i ? " " : "", same ? a[i] : el("ins", {}, a[i]));
      if (same) j++;
    }
    return out;
  };

  // -- two traces -----------------------------------------------------------------------------------------------------
  const needed = (one, p) => one.needs.some(([, id, title]) => (id ? passages[p][0] === id : passages[p][1] === title));
  const came = (one, a, n) => {
    const step = a.steps[n];
    return el("div", { class: "came" }, el("p", {}, el("b", {}, `◆ ${n + 1} `), step.why || "retrieved"), step.cut ? el("p", {}, "thrown away: ", el("del", {}, step.cut)) : null,
      el("p", {}, "asked: ", el("q", {}, step.q)),
      step.p.length ? el("ol", {}, step.p.map((p, r) => el("li", {}, el("details", {}, el("summary", {}, `${r + 1}. ${passages[p][1] || passages[p][0]}`, needed(one, p) ? el("b", { class: "right" }, " ★ needed") : null), passages[p][2])))) : null);
  };
  const side = (one, a, at, other) => at === null ? el("div", { class: "soft" }, "–") : el("div", {}, a.text[at][2].map((n) => came(one, a, n)),
    el("p", { class: `said${a.text[at][0] ? " new" : ""}`, dir: "auto" }, other === null ? a.text[at][1] : marked(a.text[at][1], other)));
  const rankOf = (a, [, id, title]) => {
    if (!a) return "–";
    const hits = a.steps.flatMap((s, n) => s.p.map((p, r) => [p, n, r])).filter(([p]) => (id ? passages[p][0] === id : passages[p][1] === title));
    return hits.length ? hits.map(([, n, r]) => `rank ${r + 1} in ◆ ${n + 1}`).join(", ") : "not found";
  };
  const about = (a, i) => el("div", {}, el("div", { class: "ans" }, el("b", { dir: "auto" }, a ? a.a || "(no answer)" : "(not answered)"), a ? el("span", { class: `chip ${CSS[verdict(a)] || ""}` }, SIGNS[verdict(a)]) : null),
    a && a.c ? el("p", {}, el("b", {}, `${a.c}: `), a.why) : null,
    a ? el("p", { class: "soft" }, `${a.n} retrieval${a.n === 1 ? "" : "s"} · ${a.p} tokens · ended: ${a.end}`) : null);
  const open = (at) => {
    if (at < 0 || at >= shown.length) return;
    const one = shown[at];
    if (state.open === null) {
      const wanted = state.by.map((want, i) => [want, i]).filter(([want]) => want).map(([, i]) => i);
      const verdicts = one.by.map(verdict);
      const differs = verdicts.findIndex((v) => v !== verdicts[0]);
      state.pair = wanted.length > 1 ? wanted.slice(0, 2) : wanted.length === 1 ? [wanted[0], wanted[0] ? 0 : Math.min(1, methods.length - 1)] : [0, differs > 0 ? differs : Math.min(1, methods.length - 1)];
    }
    state.open = at;
    const [i, j] = state.pair;
    const [a, b] = [one.by[i], one.by[j]];
    const chooser = (k) => el("select", { "aria-label": k ? "right" : "left", onchange: (e) => { state.pair[k] = Number(e.target.value); open(at); } }, methods.map((name, n) => option(String(n), name, String(state.pair[k]))));
    const step = (by, label) => el("button", { type: "button", disabled: at + by < 0 || at + by >= shown.length, onclick: () => open(at + by) }, label);
    const tools = el("div", { class: "tell", tabindex: "0", role: "group", "aria-label": "keys: n next, p previous, Escape back" }, el("button", { type: "button", onclick: close }, "← all questions"), step(-1, "‹ previous (p)"), step(1, "next (n) ›"), el("span", { class: "soft", role: "status" }, `${at + 1} of ${shown.length}`));
    const slots = a && b ? align(a.text, b.text) : (a || b || { text: [] }).text.map((_, n) => (a ? [n, null] : [null, n]));
    const flat = (s) => s.replace(/\s+/g, " ").trim();
    const differ = slots.map(([x, y]) => x === null || y === null || flat(a.text[x][1]) !== flat(b.text[y][1]));
    const first = i === j ? -1 : differ.indexOf(true);
    const lines = slots.map(([x, y], n) => el("div", { class: `two${n === first ? " first" : ""}` }, n === first ? el("div", { class: "vh2" }, "first difference") : null,
      side(one, a, x, y === null || !differ[n] ? null : b.text[y][1]), side(one, b, y, x === null || !differ[n] ? null : a.text[x][1])));
    detail.replaceChildren(tools,
      el("div", { class: "head" }, el("div", { class: "eye" }, `${one.set} · ${one.id}${one.type ? ` · ${one.type}` : ""}`), el("h3", { class: "q", dir: "auto" }, one.q), el("p", {}, el("span", { class: "soft" }, "gold: "), one.gold.join(" or ") || "nobody knows")),
      el("div", { class: "two" }, [[a, 0], [b, 1]].map(([x, k]) => el("div", {}, chooser(k), about(x)))),
      one.needs.length ? el("div", { class: "head wide needs" }, el("table", { class: "need" }, el("thead", {}, el("tr", {}, ["needed", methods[i], methods[j]].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, one.needs.map((need) => el("tr", {}, el("td", {}, need[0]), el("td", {}, rankOf(a, need)), el("td", {}, rankOf(b, need))))))) : "",
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
    focus(at);
  };
  const detail = el("div", { hidden: true });
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
