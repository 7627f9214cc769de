// The form that starts a run, where the dashboard was opened with --allow-control.
import { get, post } from "../api.js";
import { failed, h, say } from "../dom.js";

const FIELDS = [
  ["name", "Name", { type: "text", maxLength: 200, placeholder: "optional" }],
  ["data", "Data set", null],
  ["partition", "Partition", { type: "text", value: "classes:1" }],
  ["clients", "Clients", { type: "number", min: 1, value: "10" }],
  ["algorithm", "Algorithm", { type: "text", value: "fedavg" }],
  ["share", "Share", { type: "text", placeholder: "beta=0.1,alpha=0.5" }],
  ["warm_up", "Warm-up", { type: "text", placeholder: "0.6" }],
  ["model", "Network", { type: "text", value: "auto" }],
  ["rounds", "Rounds", { type: "number", min: 1, value: "50" }],
  ["batch", "Batch", { type: "number", min: 1, value: "10" }],
  ["lr", "Learning rate", { type: "number", min: 0, step: "any", value: "0.1" }],
  ["seed", "Seed", { type: "number", min: 0, value: "0" }],
];

export async function newRun(context) {
  const data = (await get("/api/whatif/choices")).data;
  const trouble = h("div");
  const go = h("button", { class: "primary" }, "Start");
  const form = h("form", { method: "dialog", class: "start", onsubmit: start },
    h("h2", {}, "New run"),
    h("div", { class: "fields" }, ...FIELDS.map(([name, label, props]) => h("label", { class: "field" }, h("span", {}, label),
      props ? h("input", { name, ...props }) : h("select", { name }, ...data.map((d) => h("option", { value: d }, d)))))),
    h("label", { class: "row" }, h("input", { type: "checkbox", name: "divergence" }), "Measure weight divergence (trains SGD beside it)"),
    trouble,
    h("div", { class: "row" }, go, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  const dialog = h("dialog", { "aria-label": "New run", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();

  async function start(event) {
    event.preventDefault();
    go.disabled = true;
    go.textContent = "Starting…";
    const wanted = { divergence: form.elements.divergence.checked };
    for (const [name] of FIELDS) {
      const { value, type } = form.elements[name];
      if (value !== "") wanted[name] = type === "number" ? Number(value) : value;
    }
    try {
      const { run } = await post("/api/runs", wanted);
      say(`Run ${run} has started`);
      dialog.close();
    } catch (error) {
      trouble.replaceChildren(failed(error));
    }
    go.disabled = false;
    go.textContent = "Start";
  }
}
