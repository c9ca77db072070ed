// Chunks through the viewer's decoder: decoder.mjs MODULE DECODER CASES
//
// MODULE is a copy of viewer.js whose name ends in .mjs, DECODER is decoder.wasm. CASES is JSON: for
// each chunk its bytes as base64, and the bytes that it is to be decoded to. Prints as JSON what
// the decoder imports, and for each case the SHA-256 of the bytes, or what is wrong with the chunk.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [module, decoderFile, casesFile] = process.argv.slice(2);
const { Decoder } = await import(pathToFileURL(module));
const wasm = readFileSync(decoderFile);
const decoder = await Decoder.from(wasm);

/** The SHA-256 of what a chunk is decoded to, or an error's text. A trap has the text "trap: ...". */
function verdict(chunk, nbytes) {
  try {
    return createHash("sha256").update(decoder.decode(chunk, nbytes)).digest("hex");
  } catch (error) {
    return error instanceof WebAssembly.RuntimeError ? `trap: ${error.message}` : error.message;
  }
}

const cases = JSON.parse(readFileSync(casesFile, "utf8"));
const verdicts = cases.map(([chunk, nbytes]) => verdict(Buffer.from(chunk, "base64"), nbytes));
const { byteLength } = decoder.exports.memory.buffer;
const imports = WebAssembly.Module.imports(new WebAssembly.Module(wasm));
console.log(JSON.stringify({ imports, verdicts, memory: byteLength }));
