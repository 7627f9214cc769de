// Every run of the store: filter, sort, pick; a row changes in place while its run trains.
import { post } from "../api.js";
import { ago, duration, empty, fixed, h, percent, say, titled } from "../dom.js";
import { newRun } from "./start.js";

export const title = "Runs";
const STATES = ["running", "finished", "interrupted", "diverged", "failed"];
const AT_FIRST = 200;

const COLUMNS = [
  { key: "name", head: "run", value: titled },
  { key: "status", head: "state", value: (r) => STATES.indexOf(r.status) },
  { key: "progress", head: "progress", value: (r) => r.round / r.rounds },
  { key: "seconds_left", head: "time left", value: (r) => r.seconds_left, number: true },
  { key: "accuracy", head: "accuracy", value: (r) => r.accuracy, number: true },
  { key: "emd", head: "EMD", value: (r) => r.emd, number: true },
  { key: "algorithm", head: "algorithm", value: (r) => r.algorithm },
  { key: "remedy", head: "remedy", value: (r) => r.remedy },
  { key: "data", head: "data", value: (r) => `${r.data} ${r.partition}` },
  { key: "created", head: "created", value: (r) => r.created, number: true },
];

export function open(box, params, context) {
  const { live } = context;
  let sort = params.get("sort") || "-created";
  let limit = AT_FIRST;
  const rows = new Map();

  const filter = h("input", {
    type: "search", placeholder: "Filter by name, id, method, data …", "aria-label": "Filter runs",
    oninput: () => { context.set({ filter: filter.value }); arrange(); },
  });
  filter.value = params.get("filter") ?? "";
  const states = h("div", { class: "chips", role: "group", "aria-label": "State" });
  const count = h("span", { class: "note count" });
  const bar = h("div", { class: "picked" });
  const all = h("input", { type: "checkbox", "aria-label": "Pick all runs that are shown", onchange: () => {
    const picks = context.picks;
    for (const { id } of shown()) all.checked ? picks.add(id) : picks.delete(id);
    context.pick(picks);
    arrange();
  } });
  const heads = COLUMNS.map((column) => h("th", { scope: "col", class: column.number ? "right" : "" },
    h("button", { type: "button", class: "sort", onclick: () => sorted(column.key) },
      column.head, h("span", { class: "arrow", "aria-hidden": "true" }))));
  const body = h("tbody");
  const table = h("table", { class: "runs-table" },
    h("caption", { class: "unseen" }, "Runs of the store"),
    h("thead", {}, h("tr", {}, h("th", { class: "pick" }, all), ...heads)), body);
  const more = h("button", { type: "button", onclick: () => { limit = Infinity; arrange(); } });
  const nothing = h("div");
  const tools = h("div", { class: "tools" }, filter, states, count,
    context.control && h("button", { type: "button", class: "primary", onclick: () => newRun(context) }, "New run"));
  box.append(tools, bar, h("div", { class: "scroll card flush" }, table), nothing, more);

  function sorted(key) {
    const first = ["accuracy", "created", "emd", "progress"].includes(key) ? `-${key}` : key;
    sort = sort === first ? (first.startsWith("-") ? key : `-${key}`) : first;
    context.set({ sort });
    arrange();
  }

  function matching() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = new URLSearchParams(location.hash.split("?")[1] ?? "").get("state");
    return [...live.runs.values()].filter((run) => {
      if (state && run.status !== state) return false;
      const text = [run.id, run.name, run.status, run.data, run.partition, run.algorithm, run.remedy].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  function shown() {
    const down = sort.startsWith("-") ? -1 : 1;
    const { value } = COLUMNS.find((c) => c.key === sort.replace("-", "")) ?? COLUMNS.at(-1);
    return matching().map((run) => [value(run), run]).sort(([a, x], [b, y]) => {
      const none = (a === null || a === undefined || a === "") - (b === null || b === undefined || b === "");
      if (none) return none;  // what has no value stands last, whichever way
      return (a < b ? -down : a > b ? down : 0) || (x.id < y.id ? -1 : 1);
    }).map(([, run]) => run).slice(0, limit);
  }

  // Brings rows, their order and everything around them in line with the runs; a row that stays is not touched.
  function arrange() {
    const wanted = shown();
    const ids = new Set(wanted.map((run) => run.id));
    for (const [id, row] of rows) if (!ids.has(id)) { row.element.remove(); rows.delete(id); }
    let at = body.firstElementChild;
    for (const run of wanted) {
      let row = rows.get(run.id);
      if (!row) rows.set(run.id, row = new Row(run.id, context, arrange));
      row.fill(run);
      if (row.element !== at) body.insertBefore(row.element, at);
      else at = at.nextElementSibling;
    }
    const total = matching().length;
    count.textContent = total === live.runs.size ? `${total} run${total === 1 ? "" : "s"}` : `${total} of ${live.runs.size} runs`;
    more.hidden = total <= limit;
    more.textContent = `Show all ${total} runs`;
    all.checked = wanted.length > 0 && wanted.every((run) => context.picks.has(run.id));
    all.indeterminate = !all.checked && wanted.some((run) => context.picks.has(run.id));
    heads.forEach((head, i) => {
      const mine = sort.replace("-", "") === COLUMNS[i].key;
      head.setAttribute("aria-sort", mine ? (sort.startsWith("-") ? "descending" : "ascending") : "none");
    });
    chips();
    picked();
    table.parentElement.hidden = !wanted.length;
    nothing.replaceChildren(...(wanted.length ? [] : [why()]));
  }

  function why() {
    if (live.store?.error) return empty("The store cannot be read.", h("p", {}, "It is looked at again as soon as its files change."));
    if (live.runs.size) return empty("No run fits the filter.", h("button", { type: "button", onclick: () => {
      filter.value = "";
      context.set({ filter: "", state: "" });
      arrange();
    } }, "Show all runs"));
    const where = h("code", {}, live.store?.folder ?? "");
    return empty(live.store?.there ? "There is no run in this store yet." : "There is no store here yet.",
      h("p", {}, "Runs that are trained into ", where, " appear here by themselves. For example:"),
      h("pre", {}, "fedskew train --partition classes:1 --rounds 40 --divergence"));
  }

  function chips() {
    const chosen = new URLSearchParams(location.hash.split("?")[1] ?? "").get("state") ?? "";
    const counts = Object.fromEntries(STATES.map((s) => [s, 0]));
    for (const run of live.runs.values()) counts[run.status] = (counts[run.status] ?? 0) + 1;
    const key = JSON.stringify([counts, chosen]);
    if (states.dataset.key === key) return;
    states.dataset.key = key;
    const focused = [...states.children].indexOf(document.activeElement);
    states.replaceChildren(...STATES.filter((s) => counts[s] || s === chosen).map((s) => h("button", {
      type: "button", class: `chip ${s}`, "aria-pressed": String(s === chosen),
      onclick: () => { context.set({ state: s === chosen ? "" : s }); arrange(); },
    }, `${s} ${counts[s]}`)));
    if (focused >= 0) states.children[focused]?.focus();
  }

  function picked() {
    const picks = context.picks;
    const known = [...picks].filter((id) => live.runs.has(id));
    const key = known.join();
    if (bar.dataset.key === key) return;
    bar.dataset.key = key;
    bar.hidden = !known.length;
    if (!known.length) return bar.replaceChildren();
    bar.replaceChildren(
      h("span", {}, `${known.length} picked`),
      h("button", { type: "button", class: "primary", onclick: () => context.go("compare") }, "Compare"),
      h("button", { type: "button", onclick: () => context.go("clients", { run: known[0] }) }, "Clients"),
      h("button", { type: "button", onclick: () => context.go("drift") }, "Drift"),
      h("button", { type: "button", class: "quiet", onclick: () => { context.pick([]); arrange(); } }, "Clear"));
  }

  arrange();
  return { change: arrange };
}

// One run's row; only what has changed is written.
class Row {
  constructor(id, context, after) {
    this.context = context;
    this.said = {};
    this.box = h("input", { type: "checkbox", onchange: () => {
      const picks = context.picks;
      this.box.checked ? picks.add(id) : picks.delete(id);
      context.pick(picks);
      after();
    } });
    this.cells = Object.fromEntries(COLUMNS.map((c) => [c.key, h("td", { class: `c-${c.key} ${c.number ? "right" : ""}`, "data-label": c.head })]));
    this.bar = h("progress", { max: 1 });
    this.rounds = h("span", { class: "rounds" });
    this.cells.progress.append(this.bar, this.rounds);
    this.label = h("a", { class: "run-name" });
    this.small = h("span", { class: "note" });
    this.cells.name.append(this.label, this.small);
    this.state = h("span", { class: "state" });
    this.actions = h("span", { class: "actions" });
    this.cells.status.append(this.state, this.actions);
    this.element = h("tr", {}, h("td", { class: "pick" }, this.box), ...Object.values(this.cells));
  }

  fill(run) {
    const named = titled(run);
    const picked = this.context.picks.has(run.id);
    this.#write("name", named, () => {
      this.label.textContent = named;
      this.label.title = named;
      this.box.setAttribute("aria-label", `Pick ${named}, ${run.id}`);
    });
    this.#write("id", run.id + run.seed, () => {
      this.label.href = `#/compare?runs=${run.id}`;
      this.small.textContent = `${run.id} · seed ${run.seed}`;
    });
    this.#write("picked", picked, () => { this.box.checked = picked; this.element.classList.toggle("on", picked); });
    this.#write("status", run.status + run.message, () => {
      this.state.className = `state ${run.status}`;
      this.state.textContent = run.status;
      this.state.title = run.message;
    });
    this.#write("progress", [run.round, run.rounds].join(), () => {
      this.bar.value = run.round / run.rounds;
      this.bar.setAttribute("aria-label", `round ${run.round} of ${run.rounds}`);
      this.rounds.textContent = `${run.round} / ${run.rounds}`;
    });
    const left = run.status === "running" ? (run.seconds_left === null ? "…" : duration(run.seconds_left)) : "–";
    const plain = {
      seconds_left: left, accuracy: percent(run.accuracy), emd: fixed(run.emd, 3), algorithm: run.algorithm,
      remedy: run.remedy || "–", data: `${run.data}, ${run.partition}`, created: ago(run.created),
    };
    for (const [key, text] of Object.entries(plain)) this.#write(key, text, () => { this.cells[key].textContent = this.cells[key].title = text; });
    if (this.context.control) this.#act(run);
  }

  #act(run) {
    const store = this.context.live.store;
    const can = store.ours.includes(run.id) ? "stop" : ["interrupted", "failed"].includes(run.status) ? "resume" : "";
    const trouble = store.failed[run.id] ?? "";
    this.#write("actions", can + trouble, () => this.actions.replaceChildren(
      ...(can ? [h("button", { type: "button", class: "small", onclick: async ({ target }) => {
        target.disabled = true;
        try {
          await post(`/api/runs/${run.id}/${can}`);
          say(`${can === "stop" ? "Stopping" : "Resuming"} run ${run.id}`);
        } catch (error) {
          this.actions.append(h("span", { class: "failed small" }, error.message));
        }
      } }, can === "stop" ? "Stop" : "Resume")] : []),
      ...(trouble && !store.ours.includes(run.id) ? [h("span", { class: "failed small" }, trouble)] : [])));
  }

  #write(key, value, change) {
    if (this.said[key] === value) return;
    this.said[key] = value;
    change();
  }
}
