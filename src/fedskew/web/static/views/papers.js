// The papers' tables and figures: the published numbers beside those of this store, and what is still missing.
import { get } from "../api.js";
import { card, Chart } from "../charts.js";
import { copy, empty, failed, h, loading } from "../dom.js";
import { tabled } from "../table.js";

export const title = "Papers";

export function open(box, params, context) {
  const state = { paper: params.get("paper"), name: params.get("name"), scale: params.get("scale") ?? "" };
  const tools = h("div", { class: "tools" });
  const body = h("div", {}, loading("Reading the papers…"));
  let charts = [], papers = [], asked = null;
  box.append(tools, body);
  get("/api/papers").then((told) => { papers = told; build(); refresh(); }, (error) => body.replaceChildren(failed(error)));

  function build() {
    const paper = papers.find((p) => p.paper === state.paper) ?? papers[0];
    state.paper = paper.paper;
    if (!paper.exhibits.includes(state.name)) {
      state.name = paper.exhibits.find((e) => e === "table 3") ?? paper.exhibits[0];
    }
    if (!paper.scales.includes(state.scale)) state.scale = "";
    const field = (key, label, options) => {
      const choice = h("select", { name: key, onchange: () => { state[key] = choice.value; build(); refresh(); tools.querySelector(`[name=${key}]`).focus(); } },
        ...options.map(([value, text]) => h("option", { value, selected: value === state[key] }, text)));
      return h("label", { class: "row" }, label, choice);
    };
    tools.replaceChildren(
      field("paper", "Paper", papers.map((p) => [p.paper, p.title])),
      field("name", "Table or figure", paper.exhibits.map((e) => [e, e[0].toUpperCase() + e.slice(1)])),
      field("scale", "Scale", [["", "what the store has most of"], ...paper.scales.map((s) => [s, s])]));
  }

  async function refresh() {
    context.set({ paper: state.paper, name: state.name, scale: state.scale });
    asked?.abort();
    const mine = asked = new AbortController();
    if (!body.querySelector(".card")) body.replaceChildren(loading("Looking for its runs in the store…"));
    try {
      const told = await get(`/api/papers/${encodeURIComponent(state.paper)}`, { name: state.name, scale: state.scale }, mine.signal);
      if (mine === asked) show(told);
    } catch (error) {
      if (error.name !== "AbortError") body.replaceChildren(failed(error));
    }
  }

  function show(told) {
    charts.forEach((chart) => chart.close());
    charts = [];
    const table = told.table && tabled({ name: told.name });
    table?.show(told.table);
    const figures = told.charts.map(({ caption, chart }) => {
      const figure = new Chart({ label: caption, nothing: "None of its runs is in the store yet." });
      charts.push(figure);
      figure.show(chart);
      return card(caption, figure);
    });
    const left = told.cells - told.trained;
    const missing = h("div", { class: left ? "notice" : "notice done" },
      h("p", {}, h("strong", {}, `${told.trained} of ${told.cells} cells`), ` are trained in this store at scale “${told.scale}”.`),
      left > 0 && h("div", { class: "row" }, h("code", {}, told.command),
        h("button", { type: "button", class: "small", onclick: () => copy(told.command, "The command") }, "Copy")));
    body.replaceChildren(
      h("section", { class: "card" }, h("h2", {}, told.title), missing, table?.box ?? ""),
      figures.length ? h("div", { class: `grid ${figures.length > 1 ? "two" : ""}` }, ...figures) : "",
      !table && !figures.length ? empty("There is nothing to show of it yet.") : "");
  }

  return { close() { asked?.abort(); charts.forEach((chart) => chart.close()); } };
}
