// A running job as people see it: a bar, what it does, how fast, how long, and a button that stops it.

import { follow, remove } from "./api.js";
import { action, announce, h, toast } from "./element.js";
import { duration, whole } from "./words.js";

/**
 * Show a job until it ends; its warnings become messages.
 * @param {{job: string}} started the answer 202
 * @param {HTMLElement} place filled with the progress, emptied at the end
 * @param {{title: string, signal?: AbortSignal, onwarning?: (text: string) => void}} options
 * @returns {Promise<any>} the job's result
 */
export async function showJob(started, place, { title, signal, onwarning = (text) => toast(text, { kind: "note" }) }) {
  const bar = h("progress", { max: 1, "aria-label": title });
  const [what, speed] = [h("p.what"), h("p.speed")];
  const stop = action("button.quiet", "Stop", () => remove(`/jobs/${started.job}`));
  const element = h("div.job", h("p.title", title), bar, h("div.below", what, speed, stop));
  place.replaceChildren(element);
  announce(title);
  let [step, begun, message] = [0, performance.now(), ""];
  const onprogress = (job) => {
    if (job.message !== message) [message, begun, step] = [job.message, performance.now(), job.done];
    what.textContent = job.state === "queued" ? "Waits for another job" : job.message;
    if (job.total) bar.value = job.done / job.total;
    else bar.removeAttribute("value");
    const seconds = (performance.now() - begun) / 1000;
    const rate = (job.done - step) / seconds;
    const known = rate > 0 && seconds > 1;
    speed.textContent = [
      job.done > 0 && whole(job.done) + (job.total ? ` of ${whole(job.total)}` : ""),
      known && `${whole(Math.max(1, rate))} a second`,
      known && job.total && `${duration((job.total - job.done) / rate)} left`,
    ]
      .filter(Boolean)
      .join(" · ");
  };
  try {
    const job = await follow(started, { onprogress, signal });
    job.warnings.forEach(onwarning);
    return job.result;
  } finally {
    element.remove();
  }
}
