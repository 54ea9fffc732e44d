// Two traces with their differences marked: step from one to the next, or see only what differs.
function render({ model, el }) {
  const data = model.get("data");
  const { body, complain } = card(model, el, "dl-compare v-methods", "Compare two traces");
  complain(data.error);
  if (data.error) return;
  const view = fromHtml(data.html, "dl-compared");
  const marks = () => [...body.querySelectorAll(".slot ins, .dl-diff tbody tr")].filter((node) => !node.closest("[hidden]"));
  let at = -1;
  const where = make("span", { class: "soft", role: "status" });
  const go = (by) => {
    const marked = marks();
    body.querySelectorAll(".dl-on").forEach((node) => node.classList.remove("dl-on"));
    if (!marked.length) return;
    at = (at + by + marked.length) % marked.length;
    if (at < 0) at = 0;
    marked[at].classList.add("dl-on");
    marked[at].scrollIntoView({ block: "nearest" });
    where.textContent = `difference ${at + 1} of ${marked.length}`;
  };
  const back = make("button", { type: "button", class: "dl-button", onclick: () => go(at < 0 ? 0 : -1) }, "← difference");
  const on = make("button", { type: "button", class: "dl-button", onclick: () => go(1) }, "difference →");
  const only = make("button", { type: "button", class: "dl-button", "aria-pressed": "false", onclick: () => {
    const pressed = only.getAttribute("aria-pressed") !== "true";
    only.setAttribute("aria-pressed", String(pressed));
    view.querySelectorAll('[data-part="sentence"]').forEach((row) => { row.hidden = pressed && !row.querySelector("ins"); });
    at = -1;
    count();
  } }, "Only what differs");
  const tools = make("div", { class: "dl-tools head", tabindex: "0", role: "group", "aria-label": "Differences: N next, P previous" }, back, on, only, where, make("span", { class: "soft" }, "keys: N next, P previous"));
  const rows = data.lines.map(([path, a, b]) => make("tr", {}, make("th", { scope: "row" }, path), make("td", {}, make("bdi", {}, a)), make("td", {}, make("bdi", {}, b))));
  const table = rows.length
    ? make("div", { class: "wide" }, make("table", { class: "dl-diff" }, make("thead", {}, make("tr", {}, ["what", data.a, data.b].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, rows)))
    : make("p", { class: "soft" }, "The traces are the same, but for how long things took.");
  body.append(tools, view, make("section", { class: "row", "data-part": "diff" }, make("h4", {}, "Record", make("small", {}, "what differs in the traces themselves; of the steps, the first that differs")), table));
  const count = () => {
    const marked = marks().length;
    where.textContent = marked === 1 ? "1 difference" : `${marked} differences`;
    back.disabled = on.disabled = !marked;
  };
  body.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { n: 1, N: 1, p: -1, P: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    go(by);
  });
  count();
}
export default { render };
