// Labels on their way to the disk of the server: kept in the browser until the server says that it has them.

import { connection, Gone, pause, post } from "./api.js";

const MOST = 500; // changes in one request
const FIRST_WAIT = 300; // milliseconds between attempts, doubled up to the last
const LAST_WAIT = 3000;
const PASSING = new Set([401, 408, 425, 429]); // refusals that may end by themselves

/**
 * Changes of one annotator in one project, sent in order, each until it is acknowledged.
 * One entry of localStorage for each change: a label costs one small write, and two tabs do not overwrite each other.
 * Sends "change" whenever `saved`, `waiting`, `problem` or `refused` changes, and "elsewhere" with the labels that
 * another tab of the same person gave.
 */
export class Queue extends EventTarget {
  /** @param {{id: number, made: string}} project @param {string} annotator @param {number} saved labels on the server */
  constructor(project, annotator, saved) {
    super();
    // Another project folder on the same port may have a project with the same number, but not made at the same time.
    this.place = `divscore:change:${project.id}:${project.made}:${annotator}:`;
    this.path = `/projects/${project.id}/labels`;
    this.annotator = annotator;
    this.saved = saved;
    this.version = 0; // of the changes on the server when `saved` was counted there
    this.problem = "";
    this.refused = ""; // why the server will not take what waits, however often it is sent
    this.kept = true; // whether the browser keeps what waits
    this.changes = this.stored();
    this.last = 0;
    this.running = false;
    this.wake = () => {};
    this.listen = () => connection.up && this.wake();
    connection.addEventListener("change", this.listen);
    this.tabs = new BroadcastChannel(this.place);
    this.tabs.onmessage = ({ data: { labels = [], counted = null } }) => {
      if (labels.length) this.dispatchEvent(new CustomEvent("elsewhere", { detail: labels }));
      if (counted) this.count(counted);
      this.changed();
    };
    if (this.changes.length) this.send();
  }

  /** Changes that an earlier page could not send, in their order. */
  stored() {
    const found = [];
    try {
      for (let at = 0; at < localStorage.length; at++) {
        const name = localStorage.key(at);
        if (name.startsWith(this.place)) found.push(JSON.parse(localStorage.getItem(name)));
      }
    } catch {
      this.kept = false;
    }
    return found.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0));
  }

  /** How many changes the server has not acknowledged. */
  get waiting() {
    return this.changes.length;
  }

  /** Keep changes and send them. @param {{item: number, label: string|null}[]} labels */
  add(labels) {
    for (const { item, label } of labels) {
      // Times of one page always rise, so that of two changes of one item the second counts.
      this.last = Math.max(Date.now(), this.last + 1);
      const change = { key: newKey(), item, label, at: new Date(this.last).toISOString() };
      this.changes.push(change);
      try {
        localStorage.setItem(this.place + change.key, JSON.stringify(change));
      } catch {
        this.kept = false;
      }
    }
    this.tabs?.postMessage({ labels });
    this.changed();
    this.send();
  }

  /** Send again what was refused. */
  retry() {
    this.refused = "";
    this.changed();
    this.send();
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  async send() {
    if (this.running || this.refused) return;
    this.running = true;
    let wait = FIRST_WAIT;
    while (this.changes.length) {
      const batch = this.changes.slice(0, MOST);
      try {
        const answer = await post(this.path, { annotator: this.annotator, changes: batch });
        const accepted = new Set(answer.accepted);
        this.changes = this.changes.filter((change) => !accepted.has(change.key));
        for (const name of accepted) this.forget(name);
        this.problem = "";
        wait = FIRST_WAIT;
        const { saved, version } = answer;
        this.count({ saved, version });
        this.tabs?.postMessage({ counted: { saved, version } });
        this.changed();
      } catch (error) {
        if (error.status >= 400 && error.status < 500 && !PASSING.has(error.status)) {
          Object.assign(this, { refused: error.message, problem: "" });
          break;
        }
        this.problem = error instanceof Gone ? "" : error.message;
        this.changed();
        await Promise.race([pause(wait), new Promise((resolve) => (this.wake = () => resolve()))]);
        wait = Math.min(2 * wait, LAST_WAIT);
      }
    }
    this.running = false;
    if (this.refused) this.changed();
  }

  /** Take a number of saved labels; the answer to another tab may be older than the last one here. */
  count({ saved, version }) {
    if (version >= this.version) Object.assign(this, { saved, version });
  }

  forget(name) {
    try {
      localStorage.removeItem(this.place + name);
    } catch {
      this.kept = false;
    }
  }

  /** Resolves when nothing waits, or when waiting does not help. */
  async settled() {
    while (this.changes.length && !this.refused)
      await new Promise((resolve) => this.addEventListener("change", resolve, { once: true }));
  }

  close() {
    connection.removeEventListener("change", this.listen);
    this.tabs?.close();
    this.tabs = null;
  }
}

// Unlike crypto.randomUUID, getRandomValues also exists under a plain http address that is not loopback.
const newKey = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16).padStart(8, "0")).join("");
