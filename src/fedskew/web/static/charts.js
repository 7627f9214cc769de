// Charts: drawn once, then fed with new records, so that nothing flickers while a run trains.
import { h, loading, failed } from "./dom.js";

let script = null;

function vega() {
  script ??= new Promise((ready, fail) => {
    const element = h("script", { src: "/vega.js" });
    element.onload = () => ready(window.vegaEmbed);
    element.onerror = () => { script = null; fail(new Error("the charts' script could not be loaded; reload the page")); };
    document.head.append(element);
  });
  return script;
}

const OPTIONS = {
  mode: "vega-lite", renderer: "svg", ast: true, defaultStyle: false, forceActionsMenu: true, downloadFileName: "fedskew",
  tooltip: { disableDefaultStyle: true },
  actions: { export: true, source: false, compiled: false, editor: false },
};

export class Chart {
  // `label` is what a screen reader says; `nothing` is shown where there are no records.
  constructor({ label, nothing = "Nothing to draw yet." }) {
    this.box = h("div", { class: "chart", role: "img", "aria-label": label }, loading("Drawing…"));
    this.nothing = nothing;
    this.drawn = null;
    this.key = "";
    this.result = null;
    this.queue = Promise.resolve();
    this.watch = new ResizeObserver(() => this.#resized());
    this.watch.observe(this.box);
  }

  show(drawn) {
    this.drawn = drawn;
    this.queue = this.queue.then(() => this.#draw()).catch((error) => { this.#clear(failed(error)); });
    return this.queue;
  }

  close() {
    this.watch.disconnect();
    this.result?.finalize();
    this.result = null;
  }

  #clear(element) {
    this.result?.finalize();
    this.result = null;
    this.key = "";
    this.box.replaceChildren(element);
  }

  #resized() {
    if (this.drawn && this.key && this.key !== this.#key()) this.show(this.drawn);
  }

  #key() {
    return JSON.stringify([layout(this.box.clientWidth, this.drawn.spec), this.drawn.spec]);
  }

  async #draw() {
    const drawn = this.drawn;
    if (!drawn) return this.#clear(h("p", { class: "empty" }, this.nothing));
    if (!this.box.clientWidth) return;  // not on the page: the observer calls again
    const key = this.#key();
    if (key === this.key && this.result) {
      const view = this.result.view;
      for (const [name, records] of Object.entries(drawn.data)) view.data(name, records);
      await view.runAsync();
      return;
    }
    const embed = await vega();
    // drawn out of sight first: the old picture stays until the new one is there
    const stage = h("div", { class: "stage drawing" });
    this.box.append(stage);
    const spec = fitted(structuredClone(drawn.spec), this.box.clientWidth);
    spec.datasets = drawn.data;
    const result = await embed(stage, spec, OPTIONS);
    const old = this.result;
    this.result = result;
    this.key = key;
    this.box.replaceChildren(stage);
    stage.classList.remove("drawing");
    old?.finalize();
  }
}

// How a chart of several panels is laid out: [columns, panel width]; a single one fills its box.
function layout(width, spec) {
  const legend = width < 380 ? 1 : width < 640 ? 2 : 3;
  const panels = spec.concat?.length ?? (spec.facet ? 3 : 0);
  if (!panels) return [legend];
  const columns = Math.max(1, Math.min(panels, Math.floor(width / 250)));
  return [legend, columns, 20 * Math.floor((width / columns - 92) / 20)];
}

function fitted(spec, width) {
  const [legend, columns, panel] = layout(width, spec);
  spec.config.legend.columns = legend;
  if (spec.concat) {
    spec.columns = columns;
    for (const part of spec.concat) part.width = panel;
  } else if (spec.facet) {
    spec.columns = columns;
    spec.spec.width = panel;
  } else {
    spec.width = "container";
    spec.autosize = { type: "fit-x", contains: "padding" };
  }
  return spec;
}

export function card(title, chart, note = "") {
  const box = chart.box ?? chart;
  return h("section", { class: "card" }, h("h2", {}, title), note && h("p", { class: "note" }, note), box);
}
