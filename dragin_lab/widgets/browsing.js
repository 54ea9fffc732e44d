// The batch explorer (views/templates/browse.js) in a notebook.
function render({ model, el }) {
  const { body, complain } = card(model, el, "dl-browse v-browse", "Explore runs");
  const unwatch = watchKernel(model, body, complain);
  const root = make("div", { class: "browse" });
  body.append(root);
  browse(root, model.get("data").runs);
  return unwatch;
}
export default { render };
