// What pictures.js and collect.js leave for other files of the extension.
declare var divscorePictures: {
  MOST_BYTES: number;
  base64(blob: Blob): Promise<string>;
  body(answer: Response): Promise<Blob>;
  bytes(text: string): Uint8Array<ArrayBuffer>;
  dimensions(data: Uint8Array): { type: string; width: number; height: number } | null;
  drawn(picture: ImageBitmap | HTMLImageElement): Promise<Blob>;
  prepared(blob: Blob): Promise<string>;
};
declare var divscoreCollector: boolean | undefined;
