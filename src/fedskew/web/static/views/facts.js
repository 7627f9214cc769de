// A line of numbers with their names and a word below each.
import { h } from "../dom.js";

export function facts() {
  const box = h("dl", { class: "facts" });
  return {
    box,
    show(items) {
      box.hidden = !items.length;
      box.replaceChildren(...items.map(([name, value, more, key]) => h("div", { class: "fact" },
        h("dt", {}, name), h("dd", { class: "value", "data-fact": key ?? name }, value), more && h("dd", { class: "note" }, more))));
    },
  };
}
