// A table of the server's, with its text to copy as Markdown or CSV; cells are only touched when they change.
import { copy, h } from "./dom.js";

export function tabled({ name }) {
  let text = null;
  const button = (kind, label) => h("button", { type: "button", class: "small", onclick: async ({ target }) => {
    await copy(text[kind], `The ${name} as ${label}`);
    target.textContent = "Copied";
    setTimeout(() => { target.textContent = `Copy as ${label}`; }, 1500);
  } }, `Copy as ${label}`);
  const head = h("thead"), body = h("tbody");
  const caption = h("p", { class: "note" });
  const box = h("div", { class: "tabled" },
    h("div", { class: "scroll" }, h("table", {}, head, body)), caption,
    h("div", { class: "row" }, button("markdown", "Markdown"), button("csv", "CSV")));
  box.hidden = true;
  let heads = "";

  function show(table) {
    text = table;
    box.hidden = false;
    const now = JSON.stringify(table.columns);
    if (now !== heads) {
      heads = now;
      head.replaceChildren(h("tr", {}, ...table.columns.map((c) => h("th", { scope: "col", class: c.align }, c.header))));
      body.replaceChildren();
    }
    while (body.rows.length > table.rows.length) body.deleteRow(-1);
    table.rows.forEach((cells, i) => {
      const row = body.rows[i] ?? body.appendChild(h("tr", {}, ...table.columns.map((c) => h("td", { class: c.align }))));
      cells.forEach((cell, k) => { if (row.cells[k].textContent !== cell) row.cells[k].textContent = cell; });
      row.classList.toggle("missing", table.missing[i]);
      if (table.missing[i]) {
        const at = table.columns.findIndex((c) => c.key === "ours");
        if (at >= 0) row.cells[at].replaceChildren(h("span", { class: "state missing" }, "not trained"));
      }
    });
    caption.textContent = table.caption;
  }
  return { box, show };
}
