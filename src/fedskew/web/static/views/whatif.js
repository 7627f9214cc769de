// Sliders for a population: who would hold what, how skewed, and what sharing would do and cost.
import { get } from "../api.js";
import { card, Chart } from "../charts.js";
import { bytes, copy, failed, fixed, h, loading, percent, whole } from "../dom.js";
import { facts } from "./facts.js";

export const title = "What if";

export function open(box, params, context) {
  const state = { data: "digits", kind: "dirichlet", clients: 10, beta: 0, alpha: 1, seed: 0 };
  for (const key of Object.keys(state)) {
    const given = params.get(key);
    if (given !== null) state[key] = typeof state[key] === "number" ? Number(given) : given;
  }
  state.value = params.get("value");
  const charts = {
    population: new Chart({ label: "Examples of each class, a bar a client" }),
    emd: new Chart({ label: "How many clients have which EMD, before and after sharing" }),
    sizes: new Chart({ label: "How many clients hold how many examples" }),
  };
  const trouble = h("div", { class: "trouble" });
  const numbers = facts();
  const command = h("code", {});
  const form = h("form", { class: "card sliders", onsubmit: (event) => event.preventDefault() }, loading());
  const results = h("div", { class: "results" }, trouble, numbers.box,
    h("div", { class: "grid two" },
      card("EMD of the clients", charts.emd, "Distance of a client's labels from everybody's: 0 alike, near 2 nothing in common."),
      card("Sizes", charts.sizes, "How many examples a client trains on.")),
    card("Who holds what", charts.population, "Examples of each class, a bar a client; shared examples included."),
    h("section", { class: "card" }, h("h2", {}, "Train it"), h("div", { class: "row" }, command,
      h("button", { type: "button", class: "small", onclick: () => copy(command.textContent, "The command") }, "Copy"))));
  box.append(h("div", { class: "grid sidebar" }, form, results));

  let asked = null, timer = 0, choices = null;
  get("/api/whatif/choices").then((told) => { choices = told; build(); refresh(); }, (error) => form.replaceChildren(failed(error)));

  const kind = () => choices.partitions.find((p) => p.kind === state.kind) ?? choices.partitions[0];
  const partition = () => (kind().name ? `${state.kind}:${state.value}` : state.kind);

  function build() {
    if (!choices.data.includes(state.data)) state.data = choices.data[0];
    state.kind = kind().kind;
    const p = kind();
    if (p.name && (state.value === null || !(Number(state.value) >= p.low && Number(state.value) <= p.high))) state.value = p.value;
    form.replaceChildren(
      select("data", "Data set", choices.data.map((d) => [d, d])),
      select("kind", "Partition", choices.partitions.map((k) => [k.kind, k.label]), () => { state.value = null; build(); }),
      p.name && slider("value", p.name === "α" ? "α of the Dirichlet" : p.name === "n" ? "n" : "EMD", p),
      p.kind !== "groups" && slider("clients", "Clients", { ...choices.clients, step: p.kind === "emd" ? 10 : 1, low: p.kind === "emd" ? 10 : choices.clients.low }),
      h("h2", {}, "Share data"),
      slider("beta", "β, shared of all data", { low: 0, high: 0.25, step: 0.005, percent: true }),
      slider("alpha", "α, of that to each client", { low: 0.05, high: 1, step: 0.05, percent: true, disabled: !Number(state.beta) }),
      h("label", { class: "field" }, h("span", {}, "Seed"), h("input", { type: "number", min: 0, step: 1, value: String(state.seed), class: "narrow",
        oninput: ({ target }) => { state.seed = Math.max(0, Math.floor(Number(target.value) || 0)); soon(); } })));
  }

  function select(key, label, options, after = () => {}) {
    const field = h("select", { name: key, onchange: () => { state[key] = field.value; after(); soon(0); form.elements[key]?.focus(); } },
      ...options.map(([value, text]) => h("option", { value, selected: value === state[key] }, text)));
    return h("label", { class: "field" }, h("span", {}, label), field);
  }

  // A slider that moves by factors runs over logarithms; the number beside it is what is sent.
  function slider(key, label, { low, high, step = 0, log = false, percent: share = false, disabled = false }) {
    const to = (v) => (log ? Math.log10(v) : Number(v));
    const from = (v) => (log ? Number((10 ** v).toPrecision(2)) : Number(v));
    const text = (v) => (share ? percent(Number(v)) : String(v));
    const value = h("output", {}, text(state[key]));
    const field = h("input", { type: "range", name: key, min: String(to(low)), max: String(to(high)), step: String(log ? 0.01 : step), disabled,
      "aria-valuetext": text(state[key]),
      oninput: () => {
        state[key] = from(Number(field.value));
        value.textContent = text(state[key]);
        field.setAttribute("aria-valuetext", value.textContent);
        if (key === "beta") form.elements.alpha.disabled = !state.beta;
        soon();
      } });
    field.value = String(to(state[key]));
    return h("label", { class: "field" }, h("span", {}, label, value), field);
  }

  function soon(wait = 60) {
    clearTimeout(timer);
    timer = setTimeout(refresh, wait);
  }

  async function refresh() {
    asked?.abort();
    const mine = asked = new AbortController();
    const p = kind();
    const query = { data: state.data, partition: partition(), clients: state.clients, beta: state.beta, alpha: state.alpha, seed: state.seed };
    context.set({ data: state.data, kind: state.kind, value: p.name ? String(state.value) : "", clients: String(state.clients), beta: state.beta ? String(state.beta) : "", alpha: String(state.alpha), seed: state.seed ? String(state.seed) : "" });
    results.setAttribute("aria-busy", "true");
    try {
      const told = await get("/api/whatif", query, mine.signal);
      if (mine !== asked) return;
      trouble.replaceChildren();
      show(told);
    } catch (error) {
      if (error.name === "AbortError") return;
      trouble.replaceChildren(failed(error));
    }
    results.removeAttribute("aria-busy");
  }

  function show(told) {
    const f = told.facts, s = f.sharing;
    numbers.show([
      ["EMD, mean", fixed(f.emd.mean, 3), s ? "of private data" : `largest ${fixed(f.emd.max, 3)}`, "emd-before"],
      ["EMD with sharing", s ? fixed(s.emd, 3) : "–", s ? `${fixed(s.emd_predicted, 3)} expected` : "move β", "emd-after"],
      ["sent", s ? bytes(s.bytes) : "–", s ? `${whole(s.received)} of ${whole(s.shared)} examples to each client` : "nothing is shared", "bytes"],
      ["clients", whole(f.clients), f.sizes.min === f.sizes.max ? `${whole(f.sizes.min)} examples each` : `${whole(f.sizes.min)} to ${whole(f.sizes.max)} examples`, "clients"],
      ["effective classes", fixed(f.effective_classes, 1), "a client", "effective"],
    ]);
    command.textContent = ["fedskew train", `--data ${state.data}`, `--partition ${f.partition}`,
      kind().kind !== "groups" && `--clients ${state.clients}`, s && `--share beta=${state.beta},alpha=${state.alpha}`,
      state.seed && `--seed ${state.seed}`].filter(Boolean).join(" ");
    for (const [key, chart] of Object.entries(charts)) chart.show(told[key]);
  }

  return { close() { asked?.abort(); clearTimeout(timer); Object.values(charts).forEach((chart) => chart.close()); } };
}
