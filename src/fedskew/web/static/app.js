// The frame around the views: addresses, the stream of changes, themes, and what is said when something is wrong.
import { get, Live, Refused } from "./api.js";
import { h, say, failed, loading } from "./dom.js";
import * as runs from "./views/runs.js";
import * as compare from "./views/compare.js";
import * as clients from "./views/clients.js";
import * as drift from "./views/drift.js";
import * as whatif from "./views/whatif.js";
import * as papers from "./views/papers.js";

const VIEWS = { runs, compare, clients, drift, whatif, papers };
const main = document.getElementById("main");
const banner = document.querySelector(".banner");
const live = new Live();
let about = { control: false, version: "" };
let open = null;  // the view that is shown: { name, params, view }
let ready = false;  // the stream has told what runs there are

// The address is the state: #/compare?runs=3f...,a7...
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: path in VIEWS ? path : "runs", params: new URLSearchParams(query) };
}

function link(name, params) {
  const query = [...params].filter(([, v]) => v).map(([k, v]) => `${k}=${encodeURIComponent(v).replaceAll("%2C", ",")}`);
  return `#/${name}${query.length ? `?${query.join("&")}` : ""}`;
}

const context = {
  live,
  get control() { return about.control; },
  get picks() { return new Set((address().params.get("runs") ?? "").split(",").filter(Boolean)); },
  // change parameters of the address without leaving the view
  set(changes) {
    const { name, params } = address();
    for (const [key, value] of Object.entries(changes)) value ? params.set(key, value) : params.delete(key);
    history.replaceState(null, "", link(name, params));
    open.params = params;
    navigation();
  },
  again() { open?.view.close?.(); open = null; show(); },
  pick(ids) { this.set({ runs: [...ids].join(",") }); },
  go(name, changes = {}) {
    const params = new URLSearchParams();
    const picks = address().params.get("runs");
    if (picks) params.set("runs", picks);
    for (const [key, value] of Object.entries(changes)) params.set(key, value);
    location.hash = link(name, params);
  },
};

function navigation() {
  const { name } = address();
  const picks = context.picks;
  const kept = new URLSearchParams(picks.size ? { runs: [...picks].join(",") } : {});
  const links = Object.entries(VIEWS).map(([key, view]) => h("a", {
    href: link(key, kept), "aria-current": key === name ? "page" : null,
  }, view.title));
  const nav = document.querySelector("header nav");
  const focused = [...nav.children].indexOf(document.activeElement);
  nav.replaceChildren(...links);
  if (focused >= 0) links[focused].focus();
}

function show() {
  const { name, params } = address();
  if (open && open.name === name && String(open.params) === String(params)) return;
  const moved = open && open.name !== name;
  open?.view.close?.();
  main.replaceChildren();
  open = { name, params, view: {} };
  document.title = `${VIEWS[name].title} · fedskew`;
  navigation();
  const heading = h("h1", { tabIndex: -1 }, VIEWS[name].title);
  const body = h("div", { class: `view ${name}` });
  main.append(heading, body);
  if (ready) open.view = VIEWS[name].open(body, params, context) ?? {};
  else body.append(loading("Reading the store…"));
  if (moved) heading.focus({ preventScroll: true });
}

function told() {
  const problem = live.store?.error;
  banner.hidden = !problem;
  banner.textContent = problem ?? "";
}

live.addEventListener("link", ({ detail }) => {
  const element = document.querySelector(".link");
  if (element.dataset.state === detail) return;
  element.dataset.state = detail;
  element.querySelector(".word").textContent = detail === "live" ? "live" : "connecting";
  element.title = detail === "live" ? "Changes are shown as they happen" : "The server does not answer; trying again";
  if (open && detail !== "live") say("The connection is lost; trying again");
});

live.addEventListener("change", ({ detail }) => {
  told();
  if (ready) return open.view.change?.(detail.changed);
  ready = true;
  context.again();
});

// A browser opens six connections to one server: tabs out of sight give theirs back.
document.addEventListener("visibilitychange", () => (document.hidden ? live.close() : live.open()));
window.addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  (main.querySelector("h1") ?? main).focus();
});

// Colours: as the system, light, dark, and round again.
const THEMES = { system: ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };
const button = document.querySelector("button.theme");
function coloured(theme) {
  const [sign, word] = THEMES[theme];
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("fedskew-theme", theme);
  button.textContent = sign;
  button.title = `Colours: ${word}`;
  button.setAttribute("aria-label", `Colours: ${word}. Press to change.`);
}
button.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  coloured(names[(names.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % names.length]);
});
coloured(document.documentElement.dataset.theme ?? "system");

// The token has become a cookie; it need not stay in the address.
if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", `/${location.hash}`);

try {
  about = await get("/api/about");
  show();
  live.open();
} catch (error) {
  main.replaceChildren(failed(error));
  if (error instanceof Refused) {
    const field = h("input", { type: "password", autocomplete: "off", "aria-label": "Token", placeholder: "token" });
    main.append(h("form", {
      class: "row", onsubmit: (event) => {
        event.preventDefault();
        location.href = `/?token=${encodeURIComponent(field.value)}${location.hash}`;
      },
    }, field, h("button", { class: "primary" }, "Open")));
  }
}
