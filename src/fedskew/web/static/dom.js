// Elements out of plain values. Text is only ever set as text: a name can hold anything and stays a name.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list" && key !== "form" && typeof value !== "string") element[key] = value;
    else element.setAttribute(key === "className" ? "class" : key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

export function say(text) {
  document.getElementById("say").textContent = text;
}

export function empty(title, ...more) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...more);
}

export function loading(text = "Loading…") {
  return h("p", { class: "empty loading", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);
}

export function failed(error) {
  return h("div", { class: "failed", role: "alert" }, String(error.message ?? error));
}

export const percent = (v, digits = 1) => (v === null || v === undefined ? "–" : `${(100 * v).toFixed(digits)}%`);
export const fixed = (v, digits = 2) => (v === null || v === undefined ? "–" : v.toFixed(digits));
export const whole = (v) => (v === null || v === undefined ? "–" : Math.round(v).toLocaleString("en"));

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "< 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i += 1; }
  return `${i === 0 ? n : n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0)} ${units[i]}`;
}

export function ago(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  if (!(seconds >= 0)) return iso;
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

// A run in words, where it has no name of its own: "fedavg, share, classes:1", as charts call it.
export function titled(run) {
  const remedies = run.remedy ? run.remedy.split(", ").map((part) => part.split(" ")[0]) : [];
  return run.name || [run.algorithm, ...remedies, run.partition].join(", ");
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a page that is not on loopback has no clipboard
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(`${what} copied`);
}
