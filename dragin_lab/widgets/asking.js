// Ask and watch: tokens appear coloured as they are made; a button stops.
const KINDS = { draft: "draft", continuation: "written on", answer: "extraction of the answer", query: "what it asked and found" };

function render({ model, el }) {
  const data = model.get("data");
  const { body, complain } = card(model, el, "dl-ask", "Ask live");
  const unwatch = watchKernel(model, body, complain, () => { status.textContent = ""; });
  const id = `dl-${Math.random().toString(36).slice(2, 9)}`;
  let touched = false;

  const question = make("textarea", { id: `${id}-q`, class: "dl-question", rows: 2, dir: "auto", "aria-label": "Question", placeholder: "Who is the mother of the director of film …?" });
  question.value = data.question;
  const choose = (name, label, values, value) => {
    const pick = make("select", { id: `${id}-${name}`, class: `dl-${name}`, "aria-label": label }, values.map((v) => make("option", { value: v }, v)));
    pick.value = value;
    return [pick, make("div", { class: "dl-control" }, make("label", { for: pick.id }, label), pick)];
  };
  const [lab, labBox] = choose("lab", "lab", data.labs, data.labs[0]);
  const [method, methodBox] = choose("method", "method", data.methods, data.method);
  const [variant, variantBox] = choose("variant", "variant", data.variants, data.variant);
  const theta = make("input", { type: "number", id: `${id}-theta`, class: "dl-threshold", min: 0, step: "any", "aria-label": "threshold θ" });
  const note = make("small", { class: "dl-wrong", role: "alert", hidden: true });
  const thetaBox = make("div", { class: "dl-control" }, make("label", { for: theta.id }, "threshold θ"), theta, note);
  const start = make("button", { type: "button", class: "dl-button main dl-start", onclick: () => ask() }, "Ask");
  const stop = make("button", { type: "button", class: "dl-button stop dl-stop", onclick: () => { model.send({ kind: "stop" }); stop.disabled = true; status.textContent = "Stopping …"; } }, "Stop");
  const status = make("span", { class: "soft dl-status", role: "status" });
  const live = make("div", { class: "dl-live", "aria-label": "The answer as it is written" });
  const whole = make("div", { class: "dl-ran", hidden: true });
  const examples = make("select", { class: "dl-examples", "aria-label": "Example questions", onchange: () => { if (examples.value) question.value = examples.value; } },
    make("option", { value: "" }, "Example questions …"), data.examples.map((text) => make("option", { value: text }, text)));
  const world = make("div", { class: "dl-world soft", hidden: !data.examples.length }, "Almanac is a fictional encyclopedia, so ask about its own films and people. ", examples);
  body.append(
    make("div", { class: "dl-ask-form" }, make("label", { for: question.id, class: "eye" }, "Question"), question, world),
    make("div", { class: "dl-controls" }, labBox, methodBox, variantBox, thetaBox),
    make("div", { class: "dl-actions" }, start, stop, status, make("span", { class: "soft" }, "Ctrl+Enter asks · Esc stops")),
    live,
    whole,
  );

  const setTheta = () => {
    const own = data.thresholds[`${method.value}/${variant.value}`];
    thetaBox.hidden = own === null || own === undefined;
    if (!touched) {
      theta.value = own ?? "";
      theta.min = own < 0 ? "" : 0;
      judge(theta, note, "");
    }
  };
  theta.addEventListener("input", () => { touched = true; judge(theta, note, wrongNumber(theta, "θ")); });
  for (const pick of [method, variant]) pick.addEventListener("change", () => { touched = false; setTheta(); });
  setTheta();

  function ask() {
    const busy = (model.get("state") || {}).busy;
    if (busy) return;
    const wrong = thetaBox.hidden ? "" : wrongNumber(theta, "θ");
    judge(theta, note, wrong);
    if (wrong) return theta.focus();
    complain("");
    start.disabled = true;
    model.send({
      kind: "ask", question: question.value, lab: lab.value, method: method.value, variant: variant.value,
      threshold: thetaBox.hidden || theta.value === "" ? null : Number(theta.value),
    });
  }
  body.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      ask();
    } else if (event.key === "Escape" && !stop.disabled) {
      event.stopPropagation();
      stop.click();
    }
  });

  let shownRun = 0;
  let parts = {};
  const part = (step, kind, fresh) => {
    const key = `${step}/${kind}`;
    if (!parts[key]) {
      const inner = make("div", {});
      const title = kind === "answer" ? "Answer" : `Step ${step + 1}`;
      const row = make("section", { class: "row", "data-part": kind, "data-step": step + 1 }, make("h4", {}, title, make("small", {}, fresh && kind === "continuation" ? "written with passages" : KINDS[kind])), inner);
      parts[key] = inner;
      live.append(row);
    }
    return parts[key];
  };
  const textOf = (step, kind, fresh) => {
    const box = part(step, kind, fresh);
    let text = box.querySelector(".txt");
    if (!text) {
      live.querySelectorAll(".dl-caret").forEach((node) => node.classList.remove("dl-caret"));
      text = make("div", { class: "txt dl-caret", dir: "auto" });
      box.append(text);
    }
    return text;
  };
  const news = {
    token: (n) => {
      if (!n.text) return;
      const span = make("span", { class: n.level ? `h${n.level} dl-cell` : "dl-cell", "data-i": n.about });
      const lead = n.text.length - n.text.trimStart().length;
      const text = textOf(n.step, n.of, n.fresh);
      if (lead && lead < n.text.length && !n.text.includes("\n")) { text.append(n.text.slice(0, lead)); span.textContent = n.text.slice(lead); } else span.textContent = n.text;
      text.append(span);
    },
    decided: (n) => {
      if (n.html) {
        const text = textOf(n.step, "draft");
        text.classList.remove("dl-caret");
        text.replaceChildren(...fromHtml(n.html).childNodes);
      }
      const box = part(n.step, "draft");
      box.append(make("p", { class: "soft" }, make("b", {}, n.retrieve ? "◆ Retrieve: " : "✓ Go on: "), make("bdi", {}, n.reason)));
    },
    retrieved: (n) => {
      const box = part(n.step, "query");
      box.append(fromHtml(n.query), fromHtml(n.passages));
    },
    done: () => {},
    ended: () => live.querySelectorAll(".dl-caret").forEach((node) => node.classList.remove("dl-caret")),
  };

  function heard(message) {
    if (message.kind !== "news") return;
    if (message.run !== shownRun) begin(message.run);
    message.news.forEach((n) => news[n.is](n));
  }
  function begin(run) {
    shownRun = run;
    parts = {};
    live.replaceChildren();
    whole.hidden = true;
  }
  function changed() {
    const state = model.get("state") || {};
    start.disabled = Boolean(state.busy);
    stop.disabled = !state.busy;
    status.textContent = state.status || "";
    if (state.busy && state.run !== shownRun) begin(state.run);
    complain(state.error);
    if (!state.busy) live.querySelectorAll(".dl-caret").forEach((node) => node.classList.remove("dl-caret"));
    whole.hidden = !state.html;
    if (state.html) whole.replaceChildren(make("h4", { class: "eye" }, "The whole trace"), fromHtml(state.html));
  }
  model.on("msg:custom", heard);
  model.on("change:state", changed);
  changed();
  return () => {
    unwatch();
    model.off("msg:custom", heard);
    model.off("change:state", changed);
  };
}
export default { render };
