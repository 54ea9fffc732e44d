// A trace and its branches: a tree to choose from, a branch beside what it parts from, and controls that ask for more.
const PATIENCE = 5000; // milliseconds in which a kernel that is there has answered

function render({ model, el }) {
  const { body, complain } = card(model, el, "dl-branches v-methods", "Explore a trace and its branches");
  const tree = make("div", { class: "dl-tree", role: "tree", "aria-label": "The trace and its branches" });
  const status = make("span", { class: "dl-status soft", role: "status" });
  const stop = make("button", { type: "button", class: "dl-button stop", hidden: true, onclick: () => model.send({ kind: "stop" }) }, "Stop");
  const beside = make("div", { class: "dl-beside" });
  const panel = make("div", { class: "dl-panel" });
  body.append(tree, make("div", { class: "dl-actions" }, status, stop), beside, panel);
  let live = model.get("data").live && !model.saved;
  let shown = -1;
  let waiting = 0;

  function drawTree() {
    tree.replaceChildren(...model.get("nodes").map(({ node }, i) =>
      make("div", { role: "treeitem", class: "dl-branch", tabindex: "-1", "aria-level": node.level, "aria-selected": "false", style: `--level:${node.level}`, onclick: () => open(i, true) },
        make("span", { "aria-hidden": "true" }, i ? "↳" : "●"), make("bdi", {}, node.place), make("b", { dir: "auto" }, node.answer), make("small", {}, node.verdict))));
  }

  function open(number, focus) {
    const data = model.get("nodes")[number];
    shown = number;
    [...tree.children].forEach((item, i) => {
      item.setAttribute("aria-selected", String(i === number));
      item.tabIndex = i === number ? 0 : -1;
    });
    beside.replaceChildren(...(data.node.beside ? [fromHtml(data.node.beside)] : []));
    const inner = make("div");
    panel.replaceChildren(inner);
    const asks = live ? { branch: alternative, forms } : {};
    draw({ model: { ...model.saved && { saved: true }, get: () => data, ...asks }, el: inner });
    if (focus) tree.children[number].focus({ preventScroll: true });
  }

  // -- asking for a branch --------------------------------------------------------------------------------------------

  function send(change) {
    complain("");
    model.send({ kind: "branch", trace: shown, change });
    clearTimeout(waiting);
    waiting = setTimeout(() => complain(GONE), PATIENCE);
  }

  const alternative = (t, c, rank, name) =>
    make("button", { type: "button", class: "dl-alternative", title: "Branch: this token here, and on from there", onclick: () => send({ step: t.step, source: t.name, token: c.n, rank }) }, make("bdi", {}, name));

  // What of a step can be changed: its query, what was found, its decision. `chosen` is the cell that is selected.
  function forms(t, chosen) {
    const { query, passages, retrieve } = model.get("nodes")[shown].steps[t.step - 1];
    const step = t.step;
    const act = (label, change) => make("button", { type: "button", class: "dl-button", onclick: () => send({ step, ...change() }) }, label);
    const area = (label, value) => make("textarea", { rows: 2, dir: "auto", "aria-label": label }, value);
    const named = (input) => make("label", {}, make("small", {}, input.getAttribute("aria-label")), input);
    const parts = [];
    if (query !== null) {
      const text = area("Query", query);
      const boxes = passages.map(([id, title, text]) => make("input", { type: "checkbox", value: id, checked: true, "aria-label": `Keep ${title || text}` }));
      const more = area("Add a passage", "");
      text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send({ step, query: text.value }); });
      parts.push(
        make("div", { class: "dl-what" }, named(text), act("Search for this", () => ({ query: text.value }))),
        make("div", { class: "dl-what" },
          make("ul", {}, passages.map(([, title, text], i) => make("li", {}, make("label", {}, boxes[i], make("bdi", {}, title || text))))),
          named(more), act("Go on with these", () => ({ keep: boxes.filter((box) => box.checked).map((box) => box.value), add: more.value }))),
      );
    }
    if (retrieve) parts.push(act("Write on instead of retrieving", () => ({ retrieve: false })));
    if (retrieve === false) parts.push(act("Retrieve at the selected token", () => ({ retrieve: true, token: chosen().n })));
    if (!parts.length) return [];
    return [make("section", { class: "row dl-what-if", "data-part": "what-if" }, make("h4", {}, "What if", make("small", {}, "the episode goes on from here")), make("div", {}, parts))];
  }

  // -- what Python says -----------------------------------------------------------------------------------------------

  function heed() {
    const { busy, error, status: line, shown: now } = model.get("state");
    if (busy || error || now !== shown) clearTimeout(waiting);
    status.textContent = line;
    stop.hidden = !busy;
    body.classList.toggle("dl-waits", busy);
    complain(error);
    if (!busy && now !== shown && now < tree.children.length) {
      open(now, true);
      const { place, answer, verdict } = model.get("nodes")[now].node;
      status.textContent = `${place}: ${answer}, ${verdict}`;
    }
  }

  tree.addEventListener("keydown", (event) => {
    const last = tree.children.length - 1;
    const to = { ArrowDown: Math.min(shown + 1, last), ArrowUp: Math.max(shown - 1, 0), Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    open(to, true);
  });
  model.on("change:nodes", drawTree);
  model.on("change:state", heed);
  const unwatch = watchKernel(model, make("div"), complain, () => {
    live = false;
    open(shown, false);
  });
  drawTree();
  open(model.get("state").shown, false);
  return () => {
    clearTimeout(waiting);
    unwatch();
  };
}
export default { render };
