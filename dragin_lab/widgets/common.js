// What all widgets share: making elements (text never becomes HTML), numbers for people, keys, a lost kernel.
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
  node.append(...inner.flat().filter((part) => part !== null && part !== undefined));
  if (node.matches(FOCUSABLE)) node.setAttribute(SUPPRESS, "true");
  return node;
};

// Only for what Python's views have drawn and escaped.
const drawn = (html, css = "") => {
  const node = make("div", { class: css });
  node.innerHTML = html;
  node.querySelectorAll(FOCUSABLE).forEach((part) => part.setAttribute(SUPPRESS, "true"));
  return node;
};

const figure = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size < 10 ? 3 : size < 1000 ? 1 : 0).replace("-", "−");
};

const percent = (p) =>
  p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.0005 ? `${(100 * p).toFixed(1)} %` : "<0.1 %";

// A card in the views' own frame.
const card = (el, name, title) => {
  const alert = make("p", { class: "alert", role: "alert", hidden: true });
  const body = make("div", { class: `dl ${name}`, role: "region", "aria-label": title });
  body.append(alert);
  el.classList.add("dl-host");
  el.append(make("div", { class: "dl-out" }, body));
  const complain = (said) => {
    alert.textContent = said || "";
    alert.hidden = !said;
  };
  return { body, complain };
};

const watchKernel = (model, complain) => {
  const lost = () => {
    if (model.comm_live === false) complain("The kernel behind this has gone. Run the cell again to go on.");
  };
  model.on("comm_live_update", lost);
  return () => model.off("comm_live_update", lost);
};
