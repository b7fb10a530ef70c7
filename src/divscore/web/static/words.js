// Numbers and times as people read them.

/**
 * "1 label", "2 labels", "12,000 items".
 * @param {number} number
 * @param {string} one the word for one of them
 * @param {string} [many] the plural, if it is not the word with an s
 */
export const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

/** "12,000" @param {number} number */
export const whole = (number) => number.toLocaleString("en", { maximumFractionDigits: 0 });

/** A share as "21%" @param {number|null|undefined} share @param {number} [digits] */
export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "unknown" : `${(100 * share).toFixed(digits)}%`;

/** Signed, with a minus sign, as scores are printed: "−0.21" @param {number|null|undefined} value */
export const signed = (value, digits = 2) => {
  if (value === null || value === undefined) return "unknown";
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : `${value < 0 ? "−" : "+"}${text}`;
};

/** A moment: "today, 14:03", "3 May, 14:03", "3 May 2025" @param {string} iso */
export const when = (iso) => {
  const [time, now] = [new Date(iso), new Date()];
  const clock = time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (time.toDateString() === now.toDateString()) return `today, ${clock}`;
  if (time.getFullYear() === now.getFullYear())
    return `${time.toLocaleDateString("en-GB", { day: "numeric", month: "long" })}, ${clock}`;
  return time.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
};

/** How long something takes: "8 s", "3 min", "2 h" @param {number} seconds */
export const duration = (seconds) => {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
};

/** "women, men and others" @param {string[]} names */
export const listed = (names) =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
