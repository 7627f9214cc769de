// Curves of the chosen runs, seeds as bands, growing while they train; what they reached and what it cost.
import { get } from "../api.js";
import { card, Chart } from "../charts.js";
import { failed, h, percent } from "../dom.js";
import { tabled } from "../table.js";
import { chips, choose, steady } from "./chosen.js";

export const title = "Compare";

export function open(box, params, context) {
  const known = () => [...context.picks].some((id) => context.live.runs.has(id));
  if (!known()) {
    const empty = context.live.runs.size === 0;
    box.append(choose(context, "their curves side by side"));
    return { change: () => { if (known() || (context.live.runs.size === 0) !== empty) context.again(); } };
  }
  const accuracy = new Chart({ label: "Test accuracy over communication rounds" });
  const loss = new Chart({ label: "Loss over communication rounds", nothing: "No loss was measured yet." });
  const table = tabled({ name: "comparison" });
  const trouble = h("div");
  const note = h("p", { class: "note" });

  const which = h("select", { "aria-label": "Which loss", onchange: () => { context.set({ loss: which.value }); refresh.run(); } },
    h("option", { value: "test_loss" }, "test loss"), h("option", { value: "loss" }, "training loss"));
  which.value = params.get("loss") ?? "test_loss";
  const target = h("input", { type: "number", min: 0, max: 100, step: 0.5, id: "target", class: "narrow", onchange: () => {
    context.set({ target: target.value });
    refresh.run();
  } });
  target.value = params.get("target") ?? "";
  const chosen = chips(context, () => (context.picks.size ? refresh.run() : context.again()));

  const refresh = steady(async () => {
    try {
      const goal = target.value === "" ? undefined : Math.min(100, Math.max(0, Number(target.value))) / 100;
      const answer = await get("/api/compare", { runs: [...context.picks].join(","), target: goal, loss: which.value });
      trouble.replaceChildren();
      target.placeholder = answer.target === null ? "" : (100 * answer.target).toFixed(1);
      note.textContent = [
        answer.usual && answer.target !== null && `Without a target of yours it is 95 % of the best accuracy, ${percent(answer.target)}.`,
        answer.thinned && `Long curves show at most ${answer.points} measured points each: the ends and the extremes of every stretch.`,
        answer.left_out > 0 && `${answer.left_out} more runs are chosen than can be drawn.`,
      ].filter(Boolean).join(" ");
      await Promise.all([accuracy.show(answer.accuracy), loss.show(answer.loss)]);
      table.show(answer.table);
    } catch (error) {
      trouble.replaceChildren(failed(error));
    }
  });

  const lossCard = card("Loss", loss);
  lossCard.querySelector("h2").append(which);
  box.append(chosen.box, trouble,
    h("div", { class: "grid two" }, card("Test accuracy", accuracy), lossCard),
    h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "What they reached, and what it cost"),
        h("label", { class: "row", for: "target" }, "Target accuracy", target, "%")),
      note, table.box));
  refresh.run();
  return {
    change(changed) {
      chosen.fill();
      if ([...context.picks].some((id) => changed.has(id))) refresh.run();
    },
    close() { refresh.close(); accuracy.close(); loss.close(); },
  };
}
