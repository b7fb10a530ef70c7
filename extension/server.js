/**
 * The user's own `divscore serve`. Every request of the extension to it is made here, in the service worker, and goes
 * to 127.0.0.1 only. Before the token is sent, the server proves that it knows it.
 */

export const ADDRESS = "http://127.0.0.1:8642";
const WAIT_MS = 20_000; // a fetch of 30 s ends the worker
const PROOF_MS = 30_000;

/** Why nothing was sent, or what the server answered; `key` is a message of _locales. */
export class Refusal extends Error {
  /** @param {string} key @param {string} [detail] @param {number} [status] */
  constructor(key, detail = "", status = 0) {
    super(detail || key);
    this.key = key;
    this.detail = detail;
    this.status = status;
  }
}

/** @param {string} text @returns {string|null} the address if it is one of this computer */
export function loopback(text) {
  const parts = /^(?:http:\/\/)?127\.0\.0\.1(?::(\d{1,5}))?\/?$/.exec(text.trim());
  if (!parts || Number(parts[1] ?? 80) > 65535) return null;
  return `http://127.0.0.1${parts[1] ? `:${Number(parts[1])}` : ""}`;
}

/** @returns {Promise<{address: string, token: string|null}>} */
export async function pairing() {
  const { address = ADDRESS, token = null } = await chrome.storage.local.get(["address", "token"]);
  return { address: loopback(String(address)) ?? ADDRESS, token: token ? String(token) : null };
}

/** @param {BufferSource} bytes */
export async function sha256(bytes) {
  return hex(await crypto.subtle.digest("SHA-256", bytes));
}

/** @param {ArrayBuffer} buffer */
function hex(buffer) {
  return [...new Uint8Array(buffer)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * One request, without the token unless `headers` has it.
 * @param {string} address @param {string} method @param {string} path @param {unknown} [body]
 * @param {Record<string, string>} [headers]
 */
async function send(address, method, path, body, headers = {}) {
  let answer;
  try {
    answer = await fetch(`${address}/api/v1${path}`, {
      method,
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(WAIT_MS),
    });
  } catch (error) {
    proved = { address: "", token: "", until: 0 };
    throw new Refusal("notRunning", String(error));
  }
  if (!answer.headers.get("X-Divscore")) throw new Refusal("otherServer", address);
  return answer;
}

/** @param {Response} answer */
async function opened(answer) {
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const detail = String(problem.detail ?? answer.status);
  if (answer.status === 401 || answer.status === 403) throw new Refusal("refused", detail, answer.status);
  throw new Refusal(answer.status === 429 ? "busy" : "failed", detail, answer.status);
}

let proved = { address: "", token: "", until: 0 };

/** Let a server show that it knows a token, without sending it: another program may listen on its port.
 * @param {string} address @param {string} token @param {string} unknown what is wrong if it does not know it */
async function challenge(address, token, unknown) {
  const nonce = hex(crypto.getRandomValues(new Uint8Array(24)).buffer);
  const answer = await send(address, "POST", "/pair/proof", { nonce });
  if (answer.status === 403) throw new Refusal(unknown, address);
  const { proofs } = await (await opened(answer)).json();
  const encoder = new TextEncoder();
  const secret = encoder.encode(await sha256(encoder.encode(token)));
  const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const wanted = hex(await crypto.subtle.sign("HMAC", key, encoder.encode(nonce)));
  if (!Array.isArray(proofs) || !proofs.includes(wanted)) throw new Refusal(unknown, address);
}

/** The server, once it has shown that it knows our token. */
export async function prove() {
  const { address, token } = await pairing();
  if (!token) throw new Refusal("unpaired");
  if (proved.address === address && proved.token === token && proved.until > Date.now()) return { address, token };
  await challenge(address, token, "revoked");
  proved = { address, token, until: Date.now() + PROOF_MS };
  return { address, token };
}

/**
 * Ask the paired server.
 * @param {string} method @param {string} path @param {unknown} [body] @returns {Promise<any>}
 */
export async function ask(method, path, body) {
  const answer = await load(method, path, body);
  if (answer.status === 204) return null;
  // It may end in the middle of its answer.
  return answer.json().catch((/** @type {unknown} */ error) => {
    throw new Refusal("notRunning", String(error));
  });
}

/** @param {string} method @param {string} path @param {unknown} [body] */
export async function load(method, path, body) {
  const { address, token } = await prove();
  try {
    return await opened(await send(address, method, path, body, { Authorization: `Bearer ${token}` }));
  } catch (error) {
    proved = { address: "", token: "", until: 0 };
    throw error;
  }
}

/** Ask to be paired; a person compares the code in the app, or has a token for programs.
 * @param {string} [token] */
export async function askToPair(token) {
  const { address } = await pairing();
  if (token) await challenge(address, token, "wrongToken");
  const wish = { name: browserName(), extension: location.origin, ...(token ? { token } : {}) };
  const asked = await (await opened(await send(address, "POST", "/pair", wish))).json();
  await chrome.storage.session.set({ asking: { request: asked.request, code: asked.code, address } });
  return { state: "pending", code: asked.code };
}

/** Whether a person has decided; keeps the token. */
export async function pollPairing() {
  const { asking } = await chrome.storage.session.get("asking");
  const { token } = await pairing();
  if (!asking) return { state: token ? "paired" : "unpaired" };
  const { request, code, address } = /** @type {{request: string, code: string, address: string}} */ (asking);
  const path = `/pair/${encodeURIComponent(request)}`;
  const reply = await send(address, "GET", path);
  const answer = reply.status === 404 ? { state: "expired" } : await (await opened(reply)).json();
  if (answer.state === "pending") return { state: "pending", code };
  await chrome.storage.session.remove("asking");
  if (answer.state !== "accepted") return { state: answer.state };
  await chrome.storage.local.set({ token: answer.token, address });
  return { state: "paired" };
}

/** Forget the token, here and on the server; `told` is false if the server may still know it. */
export async function unpair() {
  let told = true;
  try {
    await load("DELETE", "/pair");
  } catch (error) {
    told = error instanceof Refusal && ["revoked", "refused", "unpaired"].includes(error.key);
  }
  await chrome.storage.local.remove("token");
  proved = { address: "", token: "", until: 0 };
  return { told };
}

export function browserName() {
  const named = /(?:Chrome|Firefox)\/\d+/.exec(navigator.userAgent);
  return `divscore extension ${chrome.runtime.getManifest().version}, ${named ? named[0] : "browser"}`;
}
