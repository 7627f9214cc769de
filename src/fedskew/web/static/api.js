// The server's answers, and the runs as the stream of changes keeps them.

export class Refused extends Error {}

export async function get(path, params = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== ""));
  return answer(await fetch(`${path}?${query}`, { signal }));
}

export async function post(path, body = {}) {
  const headers = { "content-type": "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answer(response) {
  const body = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (response.status === 401) throw new Refused(body.error);
  if (!response.ok) throw new Error(body.error);
  return body;
}

// One stream for the page: `runs` is a Map from id to run, `store` says how the store is.
export class Live extends EventTarget {
  runs = new Map();
  store = null;  // null until the first answer
  #stream = null;
  #again = 0;

  open() {
    this.close();
    this.#stream = new EventSource("/api/events");
    this.#stream.addEventListener("runs", (event) => {
      const told = JSON.parse(event.data);
      this.runs = new Map(told.runs.map((run) => [run.id, run]));
      this.store = told.store;
      this.#tell(this.runs.keys());
    });
    this.#stream.addEventListener("change", (event) => {
      const told = JSON.parse(event.data);
      for (const run of told.changed ?? []) this.runs.set(run.id, run);
      for (const id of told.gone ?? []) this.runs.delete(id);
      if (told.store) this.store = told.store;
      this.#tell([...(told.changed ?? []).map((r) => r.id), ...(told.gone ?? [])]);
    });
    this.#stream.onerror = () => {
      this.dispatchEvent(new CustomEvent("link", { detail: "waiting" }));
      // a browser tries again by itself, unless it was refused
      if (this.#stream?.readyState === EventSource.CLOSED) this.#again = setTimeout(() => this.open(), 3000);
    };
  }

  close() {
    clearTimeout(this.#again);
    this.#stream?.close();
    this.#stream = null;
  }

  #tell(changed) {
    this.dispatchEvent(new CustomEvent("link", { detail: "live" }));
    this.dispatchEvent(new CustomEvent("change", { detail: { changed: new Set(changed) } }));
  }
}
