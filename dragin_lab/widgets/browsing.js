// The batch explorer (views/templates/browse.js) in a notebook: marks and notes go to Python, into the run directories.
function render({ model, el }) {
  const { body, complain } = card(model, el, "dl-browse v-browse", "Explore runs");
  const unwatch = watchKernel(model, body, complain);
  const root = make("div", { class: "browse" });
  body.append(root);
  browse(root, model.get("data").runs, (set, id, note) => model.send({ kind: "note", set, id, ...note }));
  model.on("msg:custom", (said) => complain(said.error || ""));
  return unwatch;
}
export default { render };
