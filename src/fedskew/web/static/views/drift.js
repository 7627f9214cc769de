// How far federated weights are from centralised ones, by layer; and skew, drift and accuracy across runs, linked.
import { get } from "../api.js";
import { card, Chart } from "../charts.js";
import { empty, failed, h } from "../dom.js";
import { chips, steady } from "./chosen.js";

export const title = "Drift";

export function open(box, params, context) {
  if (!context.live.runs.size) {
    box.append(empty("There is no run yet.", h("p", {}, "Weight divergence is measured with:"),
      h("pre", {}, "fedskew train --partition classes:1 --divergence")));
    return { change: () => context.live.runs.size && context.again() };
  }
  const chain = new Chart({ label: "EMD, weight divergence and accuracy of every run, linked by a brush", nothing: "No run has been evaluated yet." });
  const none = "None of the chosen runs measured its divergence. Choose runs that were trained with --divergence.";
  const relative = new Chart({ label: "Relative weight divergence by layer over rounds", nothing: none });
  const rms = new Chart({ label: "Root mean square weight divergence by layer over rounds", nothing: none });
  const trouble = h("div"), note = h("p", { class: "note" });
  const chosen = chips(context, () => refresh.run());

  const refresh = steady(async () => {
    try {
      const told = await get("/api/drift", { runs: [...context.picks].join(",") });
      trouble.replaceChildren();
      note.textContent = `${context.picks.size ? "The chosen runs" : "All runs of the store"}: ${told.runs} evaluated, `
        + `${told.measured} with their divergence. Drag over points in one panel to see the same runs in the others; double-click to clear.`;
      relative.nothing = rms.nothing = context.picks.size ? none : "Choose runs that were trained with --divergence to see their layers.";
      await Promise.all([chain.show(told.chain), relative.show(told.relative), rms.show(told.rms)]);
    } catch (error) {
      trouble.replaceChildren(failed(error));
    }
  }, 1500);

  const first = card("Skew pulls weights apart, and that costs accuracy", chain);
  first.insertBefore(note, chain.box);
  box.append(chosen.box, trouble, first,
    card("Divergence by layer, relative", relative, "‖w − w(SGD)‖ / ‖w(SGD)‖ against a matched centralised run (Zhao et al. 2018, Eq. 1)."),
    card("Divergence by layer, root mean square", rms, "Root of the mean squared difference of the weights (Lahoti et al., Eq. 1)."));
  refresh.run();
  return {
    change(changed) {
      chosen.fill();
      if (!context.picks.size || [...context.picks].some((id) => changed.has(id))) refresh.run();
    },
    close() { refresh.close(); chain.close(); relative.close(); rms.close(); },
  };
}
