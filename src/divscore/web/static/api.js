// The only place that talks to the server. Errors become sentences that a person can read.

const ROOT = "/api/v1";

/** An answer that is no success: `status`, `title`, and the sentence in `message`. */
export class Problem extends Error {
  constructor(status, title, detail) {
    super(sentence(detail || title));
    Object.assign(this, { name: "Problem", status, title, readable: true });
  }
}

/** The server does not answer at all. */
export class Gone extends Error {
  constructor() {
    super("divscore does not answer. Is it still running in the terminal?");
    Object.assign(this, { name: "Gone", readable: true });
  }
}

const sentence = (text) => {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
};

/** Whether the server answered last time; sends "change" when that changes. */
export const connection = Object.assign(new EventTarget(), { up: true });

function heard(up) {
  if (connection.up === up) return;
  connection.up = up;
  connection.dispatchEvent(new Event("change"));
  if (!up) listen();
}

async function listen() {
  while (!connection.up) {
    await pause(1000);
    await get("/status").catch(() => {});
  }
}

/** Wait. @param {number} milliseconds @param {AbortSignal} [signal] */
export const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

/**
 * Call the API and return its JSON.
 * @param {string} method
 * @param {string} path below /api/v1, with its query
 * @param {any} [body] sent as JSON; a string as it is
 * @param {{signal?: AbortSignal, headers?: Object<string, string>}} [options]
 * @returns {Promise<any>}
 */
export async function call(method, path, body, options = {}) {
  const request = { method, ...options };
  if (method !== "GET") {
    request.headers ??= { "Content-Type": "application/json" };
    request.body = typeof body === "string" ? body : JSON.stringify(body ?? {});
  }
  let [answer, data] = [null, null];
  try {
    answer = await fetch(ROOT + path, request);
    const json = answer.status !== 204 && /\bjson\b/.test(answer.headers.get("content-type") ?? "");
    data = json ? await answer.json() : await answer.text(); // the server may end in the middle of its answer
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // what a network that fails throws
    heard(false);
    throw new Gone();
  }
  heard(true);
  if (answer.ok) return data;
  throw new Problem(answer.status, data?.title ?? "The request failed", data?.detail ?? "");
}

/** GET with a query: get("/projects/1/items", {annotator: "Ann"}) @returns {Promise<any>} */
export const get = (path, query = {}, options = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return call("GET", given.length ? `${path}?${new URLSearchParams(given)}` : path, undefined, options);
};
/** @returns {Promise<any>} */
export const post = (path, body, options) => call("POST", path, body, options);
/** @returns {Promise<any>} */
export const put = (path, body, options) => call("PUT", path, body, options);
/** @returns {Promise<any>} */
export const patch = (path, body, options) => call("PATCH", path, body, options);
/** Send a table; whatever else is sent is JSON. @param {string} path @param {string} text @returns {Promise<any>} */
export const putTable = (path, text) => call("PUT", path, text, { headers: { "Content-Type": "text/csv" } });
/** @returns {Promise<any>} */
export const remove = (path, options) => call("DELETE", path, undefined, options);

/**
 * Follow a job until it ends: by server-sent events, or by asking where they do not come through.
 * @param {{job: string}} started the answer 202
 * @param {{onprogress?: (job: any) => void, signal?: AbortSignal}} [options] aborting stops following, not the job
 * @returns {Promise<any>} the finished job; a job that failed is thrown as a Problem, one that was cancelled as AbortError
 */
export async function follow(started, { onprogress = (job) => {}, signal } = {}) {
  const path = `/jobs/${started.job}`;
  const ended = (job) => ["done", "failed", "cancelled", "interrupted"].includes(job.state);
  let job = await events(`${ROOT}${path}/events`, onprogress, ended, signal);
  while (!job || !ended(job)) {
    try {
      job = await get(path, {}, { signal });
      onprogress(job);
    } catch (error) {
      if (!(error instanceof Gone)) throw error;
    }
    if (!job || !ended(job)) await pause(500, signal);
  }
  if (job.state === "failed") throw new Problem(job.error.status, job.error.title, job.error.detail);
  if (job.state === "interrupted")
    throw new Problem(503, "Interrupted", "divscore was stopped while this was running. Start it again");
  if (job.state === "cancelled") throw new DOMException("The job was cancelled", "AbortError");
  return job;
}

function events(url, onprogress, ended, signal) {
  return new Promise((resolve, reject) => {
    const source = new EventSource(url);
    const finish = (job) => (source.close(), resolve(job));
    signal?.addEventListener("abort", () => (source.close(), reject(signal.reason)), { once: true });
    source.onerror = () => finish(null); // then it is asked for
    source.onmessage = (event) => {
      const job = JSON.parse(event.data);
      onprogress(job);
      if (ended(job)) finish(job);
    };
  });
}
