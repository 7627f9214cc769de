// Who holds what in one run, and how well its network knows each class over rounds.
import { get } from "../api.js";
import { card, Chart } from "../charts.js";
import { bytes, empty, failed, fixed, h, titled, whole } from "../dom.js";
import { facts } from "./facts.js";
import { steady } from "./chosen.js";

export const title = "Clients";

export function open(box, params, context) {
  const { live } = context;
  if (!live.runs.size) {
    box.append(empty("There is no run yet.", h("p", {}, "Until there is one, ", h("a", { href: "#/whatif" }, "What if"), " draws any population.")));
    return { change: () => live.runs.size && context.again() };
  }
  const wanted = params.get("run");
  const picks = [...context.picks].filter((id) => live.runs.has(id));
  let run = live.runs.has(wanted) ? wanted : picks[0] ?? [...live.runs.keys()][0];

  const charts = {
    population: new Chart({ label: "Examples of each class, a bar a client", nothing: "The population cannot be drawn." }),
    emd: new Chart({ label: "How many clients have which EMD", nothing: "The population cannot be drawn." }),
    sizes: new Chart({ label: "How many clients hold how many examples", nothing: "The population cannot be drawn." }),
    per_class: new Chart({ label: "Accuracy of each class over rounds", nothing: "No round was evaluated yet." }),
  };
  const choice = h("select", { id: "which-run", onchange: () => { run = choice.value; context.set({ run }); refresh.run(); } });
  const numbers = facts();
  const trouble = h("div");
  list();

  function list() {
    const key = [...live.runs.values()].map((r) => r.id + titled(r)).join();
    if (choice.dataset.key === key) return;
    choice.dataset.key = key;
    const option = (r) => h("option", { value: r.id }, `${titled(r)} · seed ${r.seed} · ${r.data} · ${r.id}`);
    const mine = picks.map((id) => live.runs.get(id)).filter(Boolean);
    const rest = [...live.runs.values()].filter((r) => !picks.includes(r.id));
    choice.replaceChildren(...(mine.length
      ? [h("optgroup", { label: "picked" }, ...mine.map(option)), h("optgroup", { label: "others" }, ...rest.map(option))]
      : rest.map(option)));
    choice.value = run;
  }

  const refresh = steady(async () => {
    try {
      const told = await get("/api/clients", { run });
      trouble.replaceChildren(...(told.error ? [h("div", { class: "failed", role: "alert" }, told.error)] : []));
      const f = told.facts, p = told.prepared;
      numbers.show(f ? [
        ["clients", whole(f.clients), ""],
        ["examples", whole(f.examples), f.smallest === f.largest ? `${whole(f.smallest)} a client` : `${whole(f.smallest)} to ${whole(f.largest)} a client`],
        ["EMD, mean", fixed(f.emd, 3), `largest ${fixed(f.emd_max, 3)}`],
        ["effective classes", fixed(f.effective_classes, 1), `of ${f.classes}`],
        ...(p?.shared ? [["shared", `${whole(p.received)} examples`, `each, of ${whole(p.shared)}; EMD ${fixed(p.emd_before)} → ${fixed(p.emd)}; ${bytes(p.bytes)} in all`]] : []),
      ] : []);
      await Promise.all(Object.entries(charts).map(([key, chart]) => chart.show(told[key])));
    } catch (error) {
      trouble.replaceChildren(failed(error));
    }
  }, 1500);

  box.append(
    h("div", { class: "tools" }, h("label", { for: "which-run" }, "Run"), choice), trouble, numbers.box,
    h("div", { class: "grid wide-left" },
      card("Who holds what", charts.population, "Examples of each class, a bar a client; shared examples included (Hsu et al. 2019, Figure 1)."),
      card("EMD of the clients", charts.emd, "Distance of a client's labels from everybody's: 0 alike, near 2 nothing in common."),
      card("Accuracy of each class over rounds", charts.per_class, "Of the test set; dark where the network knows nothing of a class."),
      card("Sizes", charts.sizes, "How many examples a client trains on.")));
  refresh.run();
  return {
    change(changed) { list(); if (changed.has(run)) refresh.run(); },
    close() { refresh.close(); Object.values(charts).forEach((chart) => chart.close()); },
  };
}
