// The runs a view shows, seeds of one setting as one chip that can be taken away, and a way to choose others.
import { empty, h, titled } from "../dom.js";

export function chips(context, after) {
  const box = h("div", { class: "chosen", role: "group", "aria-label": "Chosen runs" });
  const most = 12;
  function fill() {
    const known = [...context.picks].map((id) => context.live.runs.get(id)).filter(Boolean);
    const key = known.map((run) => run.id + titled(run)).join();
    if (box.dataset.key === key) return;
    box.dataset.key = key;
    const alike = Map.groupBy(known, (run) => JSON.stringify([titled(run), run.data]));
    box.replaceChildren(
      ...[...alike.values()].slice(0, most).map((runs) => {
        const name = titled(runs[0]);
        const seeds = runs.length === 1 ? `seed ${runs[0].seed}` : `${runs.length} runs`;
        return h("span", { class: "tag", title: `${name}, ${runs[0].data}: ${runs.map((run) => run.id).join(", ")}` },
          h("span", { class: "tag-name" }, name), h("span", { class: "note" }, seeds),
          h("button", { type: "button", class: "quiet", "aria-label": `Leave out ${name}`, onclick: () => {
            const picks = context.picks;
            for (const run of runs) picks.delete(run.id);
            context.pick(picks);
            fill();
            after();
          } }, "×"));
      }),
      alike.size > most ? h("span", { class: "note" }, `and ${alike.size - most} more`) : "",
      h("button", { type: "button", class: "small", onclick: () => context.go("runs") }, "Choose runs"));
  }
  fill();
  return { box, fill };
}

export function choose(context, what) {
  const newest = [...context.live.runs.values()].sort((a, b) => (a.created < b.created ? 1 : -1)).slice(0, 6);
  if (!newest.length) return empty("There is no run yet.", h("p", {}, "It will be here as soon as one is trained into this store."));
  return empty(`Choose runs to see ${what}.`,
    h("p", {}, "Tick them in the table of runs; seeds of one setting become one line with a band."),
    h("div", { class: "row centre" },
      h("button", { type: "button", class: "primary", onclick: () => context.go("runs") }, "Choose runs"),
      h("button", { type: "button", onclick: () => {
        location.hash = `${location.hash.split("?")[0]}?runs=${newest.map((r) => r.id).join(",")}`;
      } }, newest.length === 1 ? "Take the only one" : `Take the newest ${newest.length}`)));
}

// Calls `load` now and whenever asked, never twice at once, and at most so often.
export function steady(load, pause = 700) {
  let running = false, again = false, closed = false, timer = 0;
  async function run() {
    if (closed) return;
    if (running) { again = true; return; }
    running = true;
    await load();
    timer = setTimeout(() => { running = false; if (again) { again = false; run(); } }, pause);
  }
  return { run, close() { closed = true; clearTimeout(timer); } };
}
