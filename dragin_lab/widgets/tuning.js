// Sliders over stored traces. Python answers while the hand moves: at most one question is under way, and the last counts.
const PACE = 60; // milliseconds between two questions

function render({ model, el }) {
  const data = model.get("data");
  const { body, complain } = card(model, el, "dl-tuner v-replay", "Tune a threshold");
  const unwatch = watchKernel(model, body, complain, () => { clearTimeout(waiting); shown.removeAttribute("aria-busy"); });
  const asked = model.get("asked") || {};
  const origin = Object.fromEntries(data.controls.map((c) => [c.name, c.value]));
  const settings = { ...origin, ...(asked.settings || {}) };
  const id = `dl-${Math.random().toString(36).slice(2, 9)}`;
  let trace = asked.trace || 0;
  let waiting = null;
  let sent = null;
  let again = false;
  let number = asked.id || 0;

  const shown = make("div", { class: "dl-answer", "aria-live": "off" });
  const boxes = make("div", { class: "dl-controls" });
  const inputs = {};

  function ask() {
    clearTimeout(waiting);
    waiting = null;
    if (model.saved) return answered();
    if (sent !== null) {
      again = true;
      return;
    }
    again = false;
    sent = ++number;
    shown.setAttribute("aria-busy", "true");
    model.set("asked", { id: sent, trace, settings: { ...settings } });
    model.save_changes();
  }
  const soon = () => {
    waiting ??= setTimeout(ask, PACE);
  };

  function control(c) {
    const box = make("div", { class: "dl-control" });
    const name = `${id}-${c.name}`;
    box.append(make("label", { for: name }, c.label, c.about ? make("small", {}, c.about) : null));
    if (c.choices) {
      const pick = make("select", { id: name, class: `dl-${c.name}`, "aria-label": c.label, onchange: () => { settings[c.name] = pick.value; soon(); } },
        c.choices.map(([value, label]) => make("option", { value }, label)));
      inputs[c.name] = (value) => { pick.value = value ?? ""; };
      box.append(pick);
    } else if (c.values) { // a saved page holds an answer for each of these, and nothing changes between two
      const slide = make("input", { type: "range", id: name, class: `dl-slider dl-${c.name}`, min: 0, max: c.values.length - 1, step: 1, "aria-label": c.label });
      const exact = make("output", { for: name });
      inputs[c.name] = (value) => {
        slide.value = String(Math.max(0, c.values.findLastIndex((known) => known <= Number(value))));
        exact.textContent = figure(c.values[slide.value]);
        slide.setAttribute("aria-valuetext", exact.textContent);
      };
      slide.addEventListener("input", () => { settings[c.name] = c.values[slide.value]; inputs[c.name](settings[c.name]); ask(); });
      box.append(exact, slide);
    } else {
      const about = c.about ? `${c.label}, ${c.about}` : c.label;
      const slide = make("input", { type: "range", id: name, class: `dl-slider dl-${c.name}`, min: c.min, max: c.max, step: c.step, "aria-label": about });
      const exact = make("input", { type: "number", class: `dl-number dl-${c.name}-number`, min: c.min, max: c.max, step: c.step === 1 ? 1 : "any", "aria-label": `${about}: exact value` });
      const note = make("small", { class: "dl-wrong", role: "alert", hidden: true });
      const put = (value) => { exact.value = String(Number(Number(value).toPrecision(4))); };
      inputs[c.name] = (value) => { slide.value = value; put(value); judge(exact, note, ""); };
      slide.addEventListener("input", () => { put(slide.value); judge(exact, note, ""); settings[c.name] = Number(exact.value); soon(); });
      exact.addEventListener("input", () => {
        const wrong = wrongNumber(exact, c.label);
        judge(exact, note, wrong && `${wrong}; ${settings[c.name]} still holds`);
        if (wrong) return;
        slide.value = exact.value;
        settings[c.name] = Number(exact.value);
        soon();
      });
      box.append(exact, slide, note);
    }
    inputs[c.name](settings[c.name]);
    return box;
  }
  boxes.append(...data.controls.map(control));

  const actions = make("div", { class: "dl-actions" });
  const reset = make("button", { type: "button", class: "dl-button dl-reset", onclick: () => {
    for (const [key, value] of Object.entries(origin)) { settings[key] = value; inputs[key](value); }
    ask();
  } }, "As it was run");
  // The rows of the table that hold what is searched for; a click or Enter on one draws its trace in full.
  const sift = () => {
    const wanted = (search?.value || "").toLowerCase();
    shown.querySelectorAll("tr[data-trace]").forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
  };
  let search = null;
  if (data.traces.length > 1) search = make("input", { type: "search", class: "dl-find", placeholder: "search the traces", "aria-label": "Search the traces", oninput: sift });
  const run = make("button", { type: "button", class: "dl-button main dl-run", onclick: () => model.send({ kind: "run" }) }, "Run the model with these values");
  const stop = make("button", { type: "button", class: "dl-button stop dl-stop", onclick: () => model.send({ kind: "stop" }), hidden: true }, "Stop");
  const status = make("span", { class: "soft", role: "status" });
  if (data.controls.length) actions.append(reset);
  if (search) actions.append(search);
  if (data.model && data.controls.length) actions.append(run, stop);
  actions.append(status);
  const ran = make("div", { class: "dl-ran", hidden: true });
  if (data.about) body.append(make("p", { class: "head soft" }, data.about));
  body.append(boxes, actions, ran, shown);

  function answered() {
    const answer = data.answers ? { html: data.answers[Number(boxes.querySelector("input").value)] } : model.get("answer") || {};
    const on = shown.contains(document.activeElement) ? document.activeElement.dataset?.trace : undefined;
    const at = shown.querySelector(".wide")?.scrollTop || 0;
    if (answer.html) shown.replaceChildren(fromHtml(answer.html));
    sift();
    if (at) shown.querySelector(".wide").scrollTop = at;
    if (on !== undefined) shown.querySelector(`tr[data-trace="${on}"]`)?.focus({ preventScroll: true });
    complain(answer.error || data.error);
    shown.classList.toggle("dl-busy", Boolean(answer.error));
    if (sent !== null && answer.id >= sent) {
      sent = null;
      shown.removeAttribute("aria-busy");
      if (again) ask();
      else if (answer.more) soon(); // Python has not looked up all answers yet
    }
    number = Math.max(number, answer.id || 0);
  }
  function moved() {
    // Python, or another view of this widget, has set the controls.
    const now = model.get("asked") || {};
    if (now.id === sent) return;
    number = Math.max(number, now.id || 0);
    trace = now.trace || 0;
    for (const [key, value] of Object.entries(now.settings || {})) {
      settings[key] = value;
      if (inputs[key]) inputs[key](value);
    }
  }
  function runs() {
    const now = model.get("running") || {};
    const ended = run.disabled && !now.busy;
    run.disabled = now.busy;
    run.textContent = now.busy ? "Running …" : "Run the model with these values";
    stop.hidden = !now.busy;
    status.textContent = now.status || "";
    if (now.error) {
      ran.hidden = false;
      ran.replaceChildren(make("p", { class: "alert", role: "alert" }, now.error));
    } else if (now.html) {
      ran.hidden = false;
      ran.replaceChildren(make("h4", { class: "eye" }, "What the model did with these values"), fromHtml(now.html));
      if (ended) ran.scrollIntoView({ block: "nearest", behavior: "smooth" });
    }
  }
  const draw = (event) => {
    const line = event.target.closest("tr[data-trace]");
    if (!line || model.saved || (event.type === "keydown" && !["Enter", " "].includes(event.key))) return;
    event.preventDefault();
    trace = Number(line.dataset.trace);
    ask();
  };
  shown.addEventListener("click", draw);
  shown.addEventListener("keydown", draw);
  model.on("change:answer", answered);
  model.on("change:asked", moved);
  model.on("change:running", runs);
  answered();
  runs();
  return () => {
    clearTimeout(waiting);
    unwatch();
    model.off("change:answer", answered);
    model.off("change:asked", moved);
    model.off("change:running", runs);
  };
}
export default { render };
