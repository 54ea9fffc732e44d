// What all scripted cards share: making elements (text never becomes HTML), numbers for people, keys, a lost kernel.
const FOCUSABLE = "button, input, select, textarea, summary, a, [tabindex]";
// Lumino listens on the document before any element does, and would take the arrow keys for the notebook. With this
// attribute on the very element that has the focus, its keys are its own.
const SUPPRESS = "data-lm-suppress-shortcuts";

const make = (name, attributes = {}, ...inner) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...inner.flat(3).filter((part) => part !== null && part !== undefined && part !== false));
  if (node.matches(FOCUSABLE)) node.setAttribute(SUPPRESS, "true");
  return node;
};

// Only for what Python's views have drawn and escaped.
const fromHtml = (html, css = "") => {
  const node = make("div", { class: css });
  node.innerHTML = html;
  node.querySelectorAll(FOCUSABLE).forEach((part) => part.setAttribute(SUPPRESS, "true"));
  return node;
};

// Around a sentence or a draft that was judged as a whole.
const bracket = (text, above, css = "") => make("bdi", { class: `bracket ${above ? "above" : ""} ${css}` }, text);

const figure = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size < 10 ? 3 : size < 1000 ? 1 : 0).replace("-", "−");
};

const percent = (p) =>
  p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.0005 ? `${(100 * p).toFixed(1)} %` : "<0.1 %";

// A card in the views' own frame.
const card = (model, el, name, title) => {
  document.querySelectorAll(`.dl-stand-in[data-widget="${model.get("data").id}"]`).forEach((view) => { view.hidden = true; });
  const alert = make("p", { class: "alert", role: "alert", hidden: true });
  const body = make("div", { class: `dl ${name}`, role: "region", "aria-label": title });
  body.append(alert);
  el.classList.add("dl-host");
  el.append(make("div", { class: "dl-out" }, body));
  const complain = (reason) => {
    alert.textContent = reason || "";
    alert.hidden = !reason;
  };
  return { body, complain };
};

const GONE = "The kernel is gone: run the cell again.";

// Says in the card that the kernel was restarted or shut down, takes no more input there, and calls `lost`. A drawn
// widget hears of its connection only when it ends.
const watchKernel = (model, body, complain, lost = () => {}) => {
  const gone = () => {
    complain(GONE);
    body.querySelectorAll("button, input, select, textarea").forEach((part) => { part.disabled = true; });
    lost();
  };
  model.on("comm_live_update", gone);
  return () => model.off("comm_live_update", gone);
};

// What is wrong with a number box ("" for nothing): empty, beyond its ends, not whole where it has to be.
const wrongNumber = (input, label) => {
  const { min, max, step, value } = input, number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number)) return `${label} is empty: give a number`;
  if (min !== "" && number < Number(min)) return `${label} is ${value}: give at least ${min}`;
  if (max !== "" && number > Number(max)) return `${label} is ${value}: give at most ${max}`;
  if (step === "1" && !Number.isInteger(number)) return `${label} is ${value}: give a whole number`;
  return "";
};

// Marks a number box that is wrong and says why beside it.
const judge = (input, note, reason) => {
  input.setAttribute("aria-invalid", String(Boolean(reason)));
  note.textContent = reason;
  note.hidden = !reason;
};

// Stands in for the kernel where a card was saved as a page.
const savedModel = (traits) => ({ saved: true, get: (name) => traits[name], on: () => {}, off: () => {}, send: () => {} });
