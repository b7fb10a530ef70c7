/** Pictures for the server: small files as they are, large ones scaled down. In the page and in the service worker. */
(() => {
  const SIDE = 640; // pixels of the longer side
  const MOST_BYTES = 20 << 20;
  const MOST_PIXELS = 60e6;
  const AS_IS = { bytes: 1 << 20, types: ["image/jpeg", "image/png", "image/webp"] };

  /** Whether EXIF data lays a JPEG on its side: 5 to 8 in its tag for that.
   * @param {DataView} view @param {number} at where the TIFF header is */
  function lying(view, at) {
    try {
      const little = view.getUint16(at) === 0x4949;
      const first = at + view.getUint32(at + 4, little) + 2;
      for (let left = view.getUint16(first - 2, little), entry = first; left; left--, entry += 12) {
        if (view.getUint16(entry, little) === 0x0112) return view.getUint16(entry + 8, little) > 4;
      }
    } catch {
      // The data ends before its tags do.
    }
    return false;
  }

  /** Width and height, as shown, that the header of a JPEG, PNG, GIF or WebP file says, or null.
   * @param {Uint8Array} data */
  function dimensions(data) {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    /** @param {number} at @param {number} length */
    const word = (at, length) => String.fromCharCode(...data.subarray(at, at + length));
    if (data.length < 30) return null;
    if (word(1, 3) === "PNG") return { type: "image/png", width: view.getUint32(16), height: view.getUint32(20) };
    if (word(0, 3) === "GIF") {
      return { type: "image/gif", width: view.getUint16(6, true), height: view.getUint16(8, true) };
    }
    if (word(0, 4) === "RIFF" && word(8, 4) === "WEBP") {
      const type = "image/webp";
      if (word(12, 4) === "VP8X") {
        return { type, width: 1 + (view.getUint32(24, true) & 0xffffff), height: 1 + (view.getUint32(26, true) >>> 8) };
      }
      if (word(12, 4) === "VP8L") {
        const bits = view.getUint32(21, true);
        return { type, width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
      }
      return { type, width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
    }
    if (view.getUint16(0) !== 0xffd8) return null;
    let side = false;
    for (let at = 2; at + 9 < data.length; at += 2 + view.getUint16(at + 2)) {
      const mark = view.getUint16(at);
      if (mark < 0xff00) return null;
      if (mark === 0xffe1 && word(at + 4, 4) === "Exif") side = lying(view, at + 10);
      if (mark >= 0xffc0 && mark <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(mark)) {
        const [height, width] = [view.getUint16(at + 5), view.getUint16(at + 7)];
        return { type: "image/jpeg", width: side ? height : width, height: side ? width : height };
      }
    }
    return null;
  }

  /** Read an answer, but no more than is sensible.
   * @param {Response} answer */
  async function body(answer) {
    if (!answer.ok || !answer.body) throw new Error("not readable");
    if (Number(answer.headers.get("Content-Length") ?? 0) > MOST_BYTES) throw new Error("too large");
    const reader = answer.body.getReader();
    const parts = [];
    for (let size = 0; ; ) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts, { type: answer.headers.get("Content-Type") ?? "" });
      size += value.length;
      if (size > MOST_BYTES) {
        await reader.cancel();
        throw new Error("too large");
      }
      parts.push(value);
    }
  }

  /** The bytes to send, as base64; throws with the reason that is counted.
   * @param {Blob} blob */
  async function prepared(blob) {
    if (blob.size > MOST_BYTES) throw new Error("too large");
    const head = dimensions(new Uint8Array(await blob.slice(0, 1 << 18).arrayBuffer()));
    if (head && head.width * head.height > MOST_PIXELS) throw new Error("too large");
    const small = head && Math.max(head.width, head.height) <= SIDE;
    if (small && blob.size <= AS_IS.bytes && AS_IS.types.includes(head.type)) return base64(blob);
    let bitmap;
    try {
      // Decoded and scaled on another thread.
      const longer = head && head.height > head.width ? "resizeHeight" : "resizeWidth";
      const size = head && !small ? { [longer]: SIDE } : {};
      bitmap = await createImageBitmap(blob, { ...size, resizeQuality: "high" });
    } catch {
      throw new Error("not readable");
    }
    return base64(await drawn(bitmap));
  }

  /** @param {ImageBitmap|HTMLImageElement} picture */
  function drawn(picture) {
    const [width, height] = picture instanceof ImageBitmap
      ? [picture.width, picture.height] : [picture.naturalWidth, picture.naturalHeight];
    const scale = Math.min(1, SIDE / Math.max(width, height, 1));
    const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
    const context = canvas.getContext("2d");
    if (!context) throw new Error("not readable");
    context.fillStyle = "#fff"; // behind what is transparent
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    if (picture instanceof ImageBitmap) picture.close();
    return canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
  }

  /** @param {Blob} blob @returns {Promise<string>} */
  async function base64(blob) {
    const data = new Uint8Array(await blob.arrayBuffer());
    const parts = [];
    for (let at = 0; at < data.length; at += 0x8000) {
      parts.push(String.fromCharCode(...data.subarray(at, at + 0x8000)));
    }
    return btoa(parts.join(""));
  }

  /** @param {string} text */
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  globalThis.divscorePictures = { MOST_BYTES, base64, body, bytes, dimensions, drawn, prepared };
})();
