// One button per view: the page, a picture, the data, the call. All of it is made here from what is shown, so nothing is loaded.
(() => {
  const STYLE = ".dl-export.dl-export{float:inline-end;margin:8px 10px 0 8px;font:12px/1.5 system-ui,sans-serif;text-align:end;position:relative;z-index:3}"
    + ".dl-export summary,.dl-export button{font:inherit;cursor:pointer;list-style:none;display:inline-block;padding:2px 9px;border:1px solid #8a8479;border-radius:6px;background:light-dark(#fff,#1d1e22);color:light-dark(#3d3a36,#e9e6e1)}"
    + ".dl-export button{margin:4px 0 0 4px}.dl-export span{display:block}@media print{.dl-export.dl-export{display:none}}";
  const make = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });
  const file = (name, type, text) => {
    const url = URL.createObjectURL(new Blob([text], { type }));
    make("a", "", { download: name, href: url }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  };
  const bytes = (url) => {
    const [head, body] = [url.slice(0, url.indexOf(",")), url.slice(url.indexOf(",") + 1)];
    return head.endsWith("base64") ? Uint8Array.from(atob(body), (one) => one.charCodeAt(0)) : decodeURIComponent(body);
  };
  // A text that a spreadsheet would compute gets an apostrophe before it; numbers stay.
  const plain = (cell) => (/^[=+\-@\t\r]/.test(cell ?? "") && Number.isNaN(Number(cell)) ? `'${cell}` : cell);
  const csv = (table) => "\ufeff" + table.map((cells) => cells.map(plain)).map((row) => row.map((cell) => /[",\n]/.test(cell ?? "") ? `"${String(cell).replaceAll('"', '""')}"` : cell ?? "").join(",")).join("\n") + "\n";
  const bare = (view) => {
    const copy = view.cloneNode(true);
    copy.querySelectorAll(".dl-export, script").forEach((node) => node.remove());
    return copy;
  };
  // A picture is the view's own HTML in an SVG, in light colours, as it would be printed.
  const svg = (view) => {
    const { width, height } = view.getBoundingClientRect(), copy = bare(view);
    copy.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
    copy.style.cssText = `color-scheme:light;width:${width}px`;
    const inner = new XMLSerializer().serializeToString(copy);
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${Math.ceil(width)}" height="${Math.ceil(height)}"><style>svg{color-scheme:light;background:#fff}</style><foreignObject width="100%" height="100%">${inner}</foreignObject></svg>`;
  };
  const png = async (view) => {
    const { width, height } = view.getBoundingClientRect(), image = new Image(), canvas = make("canvas", "", { width: 2 * width, height: 2 * height });
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg(view));
    await image.decode();
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png");
  };
  // Tokens with their figures, then every table.
  const data = (view) => {
    const figures = [...view.querySelectorAll("[data-i]")].map((node) => {
      const row = { text: [...(node.querySelector("b") ?? node).childNodes].filter((part) => !part.matches?.(".vh, .gem")).map((part) => part.textContent).join("") };
      // "likeliest: a 50 % · b 3 %", "word “a”", "entropy 1.2 × attention 0.3 = score 0.36", "HIT"
      for (const part of node.dataset.i.split("\n").flatMap((line) => line.startsWith("likeliest") ? [line] : line.split(/ {3}| (?=±)/)).slice(1)) {
        const named = part.match(/^(likeliest|word):? (.*)$/s) ?? part.match(/^(?:.*= )?(.*?) ([−<]?[\d.,]+(?:e[-−+]?\d+)?(?: %)?)$/);
        row[named ? named[1] : part] = named ? named[2].replace("−", "-") : "yes";
      }
      return row;
    });
    const names = [...new Set(figures.flatMap(Object.keys))];
    const rows = figures.length ? [names, ...figures.map((one) => names.map((name) => one[name]))] : [];
    for (const table of view.querySelectorAll("table")) rows.push([], ...[...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim())));
    return csv(rows.length ? rows : view.innerText.split("\n").map((line) => [line]));
  };
  // A figure is an SVG already. As a file it has no variables of a page, so each takes its fallback.
  const bareSvg = (plot) => new XMLSerializer().serializeToString(plot).replace(/var\(--[\w-]+, (#\w+)\)/g, "$1").replaceAll("var(--sans)", "sans-serif")
    .replace(/(<svg[^>]*>)/, '$1<rect width="100%" height="100%" fill="#fff"/>');

  for (const view of document.querySelectorAll(".dl-out")) {
    const home = view.querySelector(":scope > .dl") ?? view;
    if (home.querySelector(":scope > .dl-export") || view.closest(".dl-host")) continue;
    const title = (view.querySelector(".q, figcaption h3")?.textContent || document.title).trim();
    const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60).replace(/^-|-$/g, "") || "view";
    const plot = () => [...view.querySelectorAll(".plot svg")].find((picture) => picture.checkVisibility());
    const status = make("span", "", { role: "status" });
    const kinds = {
      HTML: () => file(`${name}.html`, "text/html", `<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>${title.replaceAll("<", "&lt;")}</title>${bare(view).outerHTML}`),
      PNG: async () => file(`${name}.png`, "image/png", bytes(await png(view))),
      SVG: () => file(`${name}.svg`, "image/svg+xml", plot() ? bareSvg(plot()) : svg(view)),
      CSV: () => file(`${name}.csv`, "text/csv", data(view)),
    };
    if (view.dataset.code) kinds.Code = () => {
      status.textContent = view.dataset.code;
      getSelection().selectAllChildren(status); // where a browser forbids the clipboard, it is selected
      return navigator.clipboard?.writeText(view.dataset.code).catch(() => {});
    };
    const menu = make("details", "", { className: "dl-export" });
    menu.append(make("style", STYLE), make("summary", "Export"), ...Object.entries(kinds).map(([kind, work]) => make("button", kind, {
      type: "button",
      onclick: () => Promise.resolve().then(work).then(() => { if (kind !== "Code") status.textContent = ""; }, (error) => { status.textContent = `This browser cannot write a ${kind}: ${error.message}`; }),
    })), status);
    home.prepend(menu);
  }

  // A saved page keeps in its address which steps are open and which token is looked at: #open=1,3&token=31. In a
  // notebook the address belongs to Jupyter.
  if (!document.body.classList.contains("dl-page")) return;
  const steps = [...document.querySelectorAll("details.step")], tokens = [...document.querySelectorAll("[data-i]")];
  const address = () => new URLSearchParams(location.hash.slice(1));
  const look = (token) => { token.tabIndex = -1; token.focus({ preventScroll: true }); };
  const keep = (name, value) => {
    const kept = address();
    for (const key of [...kept.keys()]) if (!["open", "token"].includes(key)) kept.delete(key); // a link to a step
    kept.set(name, value);
    history.replaceState(null, "", `#${kept}`);
  };
  const opened = () => steps.flatMap((one, i) => (one.open ? [i + 1] : [])).join(",");
  const first = opened();
  const show = () => {
    const kept = address(), token = tokens[Number(kept.get("token")) - 1], step = document.getElementById(location.hash.slice(1));
    if (kept.has("open")) steps.forEach((one, i) => { one.open = kept.get("open").split(",").includes(String(i + 1)); });
    if (step?.matches("details")) step.open = true;
    if (token) { token.scrollIntoView({ block: "center" }); look(token); }
  };
  show();
  addEventListener("hashchange", show);
  addEventListener("click", (event) => {
    const token = event.target.closest("[data-i]");
    if (token) { look(token); keep("token", tokens.indexOf(token) + 1); }
  });
  addEventListener("toggle", (event) => {
    if (steps.includes(event.target) && (opened() !== first || address().has("open"))) keep("open", opened());
  }, true);
})();
