// The page of `gpufetch.view`: one module, loaded by anywidget as it is.
//
// The kernel sends values, not pictures. The page asks for tiles of a pyramid: first the finest
// level that is one tile (the overview), and where the view stays, those of the level whose cells
// are one to two pixels. Two requests at most are unanswered, and what waits is decided anew for
// each drawing, so that nothing is asked for a view that has passed. Colours are made here, by
// WebGL2 or, without it, on the CPU. Over a slow line, tiles travel encoded by gpufetch's codec, and
// are decoded here, by its decoder (decoder.c) as WebAssembly. docs/notebook.md describes the viewer, and
// python/gpufetch/_viewer/messages.py the messages.
//
// A window is [left, right, top, bottom] in fractions of the axes; panels share it.

const IN_FLIGHT_MAX = 2;
const WAITING_MS = 700; // without an answer, after which the viewer says that it waits
const SLOW = 16e3; // bytes a millisecond: where tiles come slower than that, they are encoded
const SMALL_NBYTES = 4096; // answers that take as long as the line delays all
const LARGE_NBYTES = 196608; // those that tell how many bytes come in a millisecond: plain tiles
const LARGE_LEAST = 2; // of them, before the line is judged
const LARGE_MOST = 8;
const ECHOES_LEAST = 3; // small answers, before the line is judged
const ECHOES_MOST = 8; // after which no more are asked for
const ECHO_MS = 2000; // after which one more is
const LOST_MS = 60000; // after which a request is asked again
const SETTLE_MS = 90; // for which a view stays before its details are asked for
const SAVE_MS = 250;
const SAVED_MAX = 8; // states that were sent, and that the kernel may repeat
const PLAY_MS = 400;
const CACHE_NBYTES = 96 << 20; // tiles of one viewer
const TABLES_NBYTES = 40 << 20; // the pixels of tiles that are drawn on the CPU, of a page
const SOFTWARE = /swiftshader|llvmpipe|softpipe|swrast|basic render/i; // WebGL on the CPU
const TEXTURES_MAX = 160; // tiles that the page's WebGL context holds
const PERCENTILES = [0.5, 99.5];
const HEIGHT_MIN = 120;
const HEIGHT_MAX = 460;
const LINE_HEIGHT = 240;
const CHART_HEIGHT = 110;
const FILLS_ABOVE = 8; // an image that is so many times longer than high fills the space
const COLOURS = 255;
const FLOAT32_NORMAL = 2 ** -126; // below that a number has fewer digits
const FLOAT32_LARGE = 1e37; // with room for a few times as much
const ROUNDED = 1e-6; // of a pixel or an element, on either side of an edge that was computed
const TIE = 1e-4; // of a cell: so near to the border of two, a place is in the second, also by float32
const NARROW = 1e-3; // of the offset, below which a range is as good as linear on every scale

// --- Windows ------------------------------------------------------------------------------------

/** The whole of an image of [rows, columns] in a space of [width, height], with square elements. */
export function fitted(shape, size, fills) {
  if (shape.length < 2 || fills) return [0, 1, 0, 1];
  const [rows, columns] = shape;
  const perPixel = Math.max(columns / size[0], rows / size[1]);
  const across = (perPixel * size[0]) / columns / 2;
  const down = (perPixel * size[1]) / rows / 2;
  return [0.5 - across, 0.5 + across, 0.5 - down, 0.5 + down];
}

/** A window made smaller by a factor below 1, or larger, with a point of it left where it is. */
export function zoomed([left, right, top, bottom], x, y, factor) {
  return [
    x + (left - x) * factor, x + (right - x) * factor, y + (top - y) * factor,
    y + (bottom - y) * factor,
  ];
}

export function panned([left, right, top, bottom], x, y) {
  return [left + x, right + x, top + y, bottom + y];
}

/** The window, or the nearest to it that is no smaller than a few elements and not out of sight. */
export function kept(window, shape) {
  const lengths = shape.length < 2 ? [shape[0], 1] : [shape[1], shape[0]];
  const result = [];
  for (const axis of [0, 1]) {
    let [low, high] = window.slice(2 * axis, 2 * axis + 2);
    const least = Math.min(4 / lengths[axis], 1);
    const span = Math.min(Math.max(high - low, least), 64);
    const middle = Math.min(1, Math.max(0, (low + high) / 2));
    low = middle - span / 2;
    high = middle + span / 2;
    result.push(low, high);
  }
  return result;
}

/** Each axis's part of the window, in the order of the axes: rows first. */
function axisWindows(window, ndim) {
  return ndim < 2 ? [window.slice(0, 2)] : [window.slice(2, 4), window.slice(0, 2)];
}

// --- Tiles --------------------------------------------------------------------------------------

/** The level whose cells are a pixel long or up to two: then no cell is left out. */
export function levelFor(elementsPerPixel, levels) {
  const level = Math.ceil(Math.log2(Math.max(1, elementsPerPixel)) - 1e-9);
  return Math.min(levels - 1, Math.max(0, level));
}

/** The levels of a panel's axes for a window in so many pixels along each axis. */
export function levelsFor(panel, window, pixels) {
  const windows = axisWindows(window, panel.shape.length);
  return panel.shape.map((length, axis) =>
    levelFor(((windows[axis][1] - windows[axis][0]) * length) / pixels[axis], panel.levels[axis]));
}

/** How many tiles an axis has at a level. */
function tileCount(length, tile, level) {
  return Math.max(1, Math.ceil(Math.floor(length / 2 ** level) / tile));
}

/** The places of the tiles that a window shows along one axis: the first, and behind the last. */
function placesIn([low, high], length, tile, level) {
  const step = tile * 2 ** level;
  const count = tileCount(length, tile, level);
  const end = Math.min(count, Math.ceil((high * length) / step));
  const first = Math.max(0, Math.min(count - 1, Math.floor((low * length) / step)));
  return low < 1 ? [first, Math.max(first, end)] : [count, count];
}

/** The places of all tiles of some levels that a window shows, those in the middle first. */
export function tilesIn(panel, window, levels) {
  const windows = axisWindows(window, panel.shape.length);
  const ranges = panel.shape.map(
    (length, axis) => placesIn(windows[axis], length, panel.tile, levels[axis])
  );
  let places = [[]];
  for (const [first, end] of ranges) {
    places = places.flatMap(
      (place) => Array.from({ length: end - first }, (_, i) => [...place, first + i])
    );
  }
  const distance = (place) =>
    place.reduce(
      (sum, number, axis) => sum + (number - (ranges[axis][0] + ranges[axis][1] - 1) / 2) ** 2, 0,
    );
  return places.sort((a, b) => distance(a) - distance(b));
}

/** The first index of a tile and the one behind its last, for each axis. */
export function tileBox(panel, levels, place) {
  return panel.shape.map((length, axis) => {
    const step = panel.tile * 2 ** levels[axis];
    const isLast = place[axis] === tileCount(length, panel.tile, levels[axis]) - 1;
    return [place[axis] * step, isLast ? length : (place[axis] + 1) * step];
  });
}

/** A tile's name: what it is of, without when it was read. */
export function tileKey(number, index, levels, place) {
  return [number, index.join(), levels.join(), place.join()].join("/");
}

/** The name of a tile of logarithms, by that of the plain one. */
function logsKey(key) {
  return `${key}/logs`;
}

/** Levels and place of the overview. */
function overviewOf(panel) {
  return [panel.overview, panel.shape.map(() => 0)];
}

/** The tile that has a tile's elements, a level nearer to the overview; null for the overview. */
export function parentOf(panel, levels, place) {
  const up = levels.map((level, axis) => Math.min(panel.overview[axis], level + 1));
  if (up.every((level, axis) => level === levels[axis])) return null;
  const within = (n, axis) => Math.min(n, tileCount(panel.shape[axis], panel.tile, up[axis]) - 1);
  return {
    levels: up, place: place.map((n, axis) => within(up[axis] > levels[axis] ? n >> 1 : n, axis)),
  };
}

/** Tiles by name, those that were not used for longest going first. */
export class Cache {
  constructor(most) {
    this.most = most;
    this.nbytes = 0;
    this.tiles = new Map();
  }

  get(key) {
    const tile = this.tiles.get(key);
    if (tile) {
      this.tiles.delete(key);
      this.tiles.set(key, tile);
    }
    return tile;
  }

  put(key, tile) {
    this.nbytes += tile.values.byteLength - (this.tiles.get(key)?.values.byteLength ?? 0);
    this.tiles.delete(key);
    this.tiles.set(key, tile);
    for (const [oldest, other] of this.tiles) {
      if (this.nbytes <= this.most || oldest === key) break;
      this.tiles.delete(oldest);
      this.nbytes -= other.values.byteLength;
    }
  }
}

/**
 * How fast answers come. Other things delay them, too, among them the answers before on the line:
 * so the fastest count, of small ones for ever, and of large ones the fastest of the last few.
 */
export class Line {
  constructor() {
    this.delay = Infinity; // of the fastest small answer, in milliseconds
    this.echoes = 0;
    this.echoAt = -Infinity; // when the last small answer came
    this.large = []; // bytes and milliseconds
  }

  /** Take note of an answer that came now: its bytes, and its time without the kernel's own. */
  note(nbytes, ms, now) {
    if (nbytes < SMALL_NBYTES) {
      this.delay = Math.min(this.delay, ms);
      this.echoes += 1;
      this.echoAt = now;
    } else if (nbytes >= LARGE_NBYTES) {
      this.large.push([nbytes, ms]);
      if (this.large.length > LARGE_MOST) this.large.shift();
    }
  }

  /** Whether a small answer is to be asked for, to know the line's delay. */
  wantsEcho(now) {
    return this.echoes < ECHOES_LEAST || (
      this.echoes < ECHOES_MOST && now - this.echoAt > ECHO_MS
    );
  }

  /** Bytes a millisecond; Infinity as long as nothing says otherwise. */
  get speed() {
    if (this.echoes < ECHOES_LEAST || this.large.length < LARGE_LEAST) return Infinity;
    return Math.max(...this.large.map(([nbytes, ms]) => nbytes / Math.max(ms - this.delay, 1e-3)));
  }

  get isSlow() {
    return this.speed < SLOW;
  }
}

/** The requests to the kernel: two at most are unanswered, and only the newest wishes wait. */
export class Requests {
  /** `send(content)` sends one; `now()` is in milliseconds. */
  constructor(send, now) {
    this.send = send;
    this.now = now;
    this.prefix = Math.random().toString(36).slice(2);
    this.count = 0;
    this.waiting = [];
    this.unanswered = new Map(); // by id: the wish, and when it was sent
    this.line = new Line();
  }

  /**
   * Let these wait, and no others, in order: { key, content, done(reply, buffers, sentAt) }. What was
   * asked already does not wait once more: its answer lets the page decide anew what it wants.
   */
  want(wishes) {
    const first = new Map([...wishes].reverse().map((wish) => [wish.key, wish]));
    this.waiting = wishes.filter((wish) => first.get(wish.key) === wish && !this.has(wish.key));
    this.sendNext();
  }

  has(key) {
    return [...this.unanswered.values()].some(({ wish }) => wish.key === key);
  }

  sendNext() {
    while (this.unanswered.size < IN_FLIGHT_MAX && this.waiting.length) {
      const wish = this.waiting.shift();
      if (this.has(wish.key)) continue;
      const id = `${this.prefix}-${++this.count}`;
      this.unanswered.set(id, { wish, at: this.now() });
      this.send({ id, ...wish.content });
    }
  }

  /** Take an answer; false if it is not one to these requests. */
  receive(reply, buffers) {
    const found = this.unanswered.get(reply?.id);
    if (!found) return false;
    this.unanswered.delete(reply.id);
    const nbytes = (buffers ?? []).reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.line.note(nbytes, this.now() - found.at - (reply.ms ?? 0), this.now());
    found.wish.done(reply, buffers, found.at);
    this.sendNext();
    return true;
  }

  /** For how long the oldest has waited. */
  age() {
    return Math.max(0, ...[...this.unanswered.values()].map(({ at }) => this.now() - at));
  }

  /** Ask again for what was not answered for a minute: a message may be lost. */
  forgetLost() {
    for (const [id, { at }] of this.unanswered) {
      if (this.now() - at > LOST_MS) this.unanswered.delete(id);
    }
  }
}

// --- Encoded tiles ------------------------------------------------------------------------------

/** gpufetch's codec, as far as it decodes. */
export class Decoder {
  /** Rejects where there is no WebAssembly, or the page may not have it. */
  static async from(bytes) {
    const { instance } = await WebAssembly.instantiate(bytes, {});
    instance.exports._initialize();
    return new Decoder(instance.exports);
  }

  constructor(exports) {
    this.exports = exports;
  }

  /** The bytes of a chunk's elements, which are `nbytes`. Throws what is wrong with the chunk. */
  decode(chunk, nbytes) {
    const { memory, reserve, release, decode } = this.exports;
    const offset = Math.ceil(chunk.length / 16) * 16;
    const at = reserve(offset + nbytes) >>> 0;
    if (!at) throw new Error(`no memory to decode ${nbytes} bytes`);
    try {
      // The memory may move whenever it grows.
      new Uint8Array(memory.buffer).set(chunk, at);
      const message = decode(at, chunk.length, at + offset, nbytes) >>> 0;
      const bytes = new Uint8Array(memory.buffer);
      if (!message) return bytes.slice(at + offset, at + offset + nbytes);
      const end = bytes.indexOf(0, message);
      throw new Error(new TextDecoder().decode(bytes.subarray(message, end)));
    } finally {
      release(at);
    }
  }
}

/** How many bytes a tile's values take; throws for cells that no tile of the panel has. */
export function tileNbytes({ kind, shape, tile }, cells) {
  const fits = Array.isArray(cells) && cells.length === shape.length && cells.every(
    (count) => Number.isInteger(count) && count > 0 && count <= tile
  );
  if (!fits) throw new Error(`no tile has the cells ${JSON.stringify(cells)}`);
  return cells.reduce((product, count) => product * count, kind === "line" ? 8 : 4);
}

/** The page's decoders by their digests: those of viewers whose kernels have the same one. */
function sharedDecoders() {
  return (globalThis[Symbol.for("gpufetch.viewer.decoders")] ??= new Map());
}

// --- Values and colours -------------------------------------------------------------------------

/** Percentiles of the finite values, between neighbours as NumPy has them; null without any. */
export function percentiles(values, percents) {
  const sorted = Float64Array.from(values).filter(Number.isFinite).sort();
  if (!sorted.length) return null;
  return percents.map((percent) => {
    const place = (percent / 100) * (sorted.length - 1);
    const below = sorted[Math.floor(place)];
    return below + (sorted[Math.ceil(place)] - below) * (place % 1);
  });
}

/** Limits for values on a scale: percentiles, or the extremes where these are equal. */
export function automaticLimits(values, scale, percents = PERCENTILES) {
  const shown = scale === "log" ? values.filter((value) => value > 0) : values;
  const found = percentiles(shown, percents);
  if (!found) return scale === "log" ? [1, 10] : [0, 1];
  return found[0] < found[1] ? found : percentiles(shown, [0, 100]);
}

/** Limits of a person's choice, and those that were found where none is chosen. */
export function chosenLimits(chosen, found, scale) {
  // A logarithm has no limit at 0 or below.
  const isUsable = (limit) => limit !== null && (scale !== "log" || limit > 0);
  const [low, high] = chosen.map((limit, side) => (isUsable(limit) ? limit : found[side]));
  if (low <= high) return [low, high];
  // All values are beyond the one that was chosen.
  const one = isUsable(chosen[1]) ? high : low;
  return [one, one];
}

/**
 * A value of a tile as it is in the tensor. A tile of logarithms has a plain one, whose numbers are
 * taken where it holds them.
 */
export function valueAt(tile, i) {
  const { plain } = tile;
  const value = tile.values[i] * tile.unit + tile.offset;
  if (!plain) return value;
  const isSmall = value > -Infinity && Math.exp(value) < plain.held_from;
  return isSmall ? Math.exp(value) : valueAt(plain, i);
}

/** A tile's values as they are in the tensor. */
export function trueValues(tile) {
  return Float64Array.from(tile.values, (_, i) => valueAt(tile, i));
}

function logarithm(limit) {
  return Math.log(Math.max(limit, Number.MIN_VALUE));
}

/** From limit to limit; numbers are made smaller where float32 does not hold limits in their unit. */
function linearColouring(tile, limits) {
  const ends = limits.map((limit) => limit - tile.offset);
  const most = Math.max(...ends.map(Math.abs));
  const linear = Math.min(1, FLOAT32_LARGE / (most / tile.unit));
  const [low, high] = ends.map(
    (end) => (linear < 1 ? (end / most) * FLOAT32_LARGE : end / tile.unit)
  );
  return { scale: 0, low, high, shift: 0, linear };
}

/**
 * What makes positions of a tile's numbers: shared by the shader and the loop on the CPU. `least` is
 * the smallest number of which these compute.
 */
export function colouring(tile, limits, scale, least = FLOAT32_NORMAL) {
  const [low, high] = limits;
  if (tile.plain) return linearColouring(tile, limits.map(logarithm));
  // In so narrow a range a logarithm is linear, and float32 does not hold a number plus its offset.
  const isNarrow = high - low < NARROW * Math.min(Math.abs(low), Math.abs(high));
  if (scale === "linear" || isNarrow) return linearColouring(tile, limits);
  const shift = tile.offset / tile.unit;
  if (scale === "log") {
    // Their quotients may be too small for a number.
    const [from, to] = limits.map((limit) => logarithm(limit) - Math.log(tile.unit));
    return { scale: 1, low: from, high: Math.max(from, to), shift, linear: 1 };
  }
  const widest = Math.max(Math.abs(low), Math.abs(high), 1e-300) / 100;
  const linear = Math.max(widest / tile.unit, least);
  return {
    scale: 2,
    low: Math.asinh(low / tile.unit / linear),
    high: Math.asinh(high / tile.unit / linear),
    shift,
    linear,
  };
}

/** A value on the scale of a colouring. */
export function onScale(value, { scale, shift, linear }) {
  if (scale === 0) return value * linear;
  const moved = value + shift;
  if (scale === 1) return moved > 0 ? Math.log(moved) : -Infinity;
  return Math.asinh(moved / linear);
}

/** The index in a palette: 0 for NaN, 1 to 255 from the lower limit to the upper one. */
export function paletteIndex(value, how) {
  if (!Number.isFinite(value)) return value > 0 ? COLOURS : value < 0 ? 1 : 0;
  const place = onScale(value, how);
  if (how.high > how.low) {
    const position = Math.min(1, Math.max(0, (place - how.low) / (how.high - how.low)));
    return 1 + Math.floor((COLOURS - 1) * position + 0.5);
  }
  return place > how.high ? COLOURS : place < how.low ? 1 : 128;
}

// --- Drawing tiles ------------------------------------------------------------------------------

/** The first pixel whose middle is behind an edge, or on it, which may be rounded. */
function pixelAt(edge) {
  return Math.ceil(edge - 0.5 - ROUNDED);
}

/** The cell of a place that is counted in cells: of a border, which may be rounded, the second. */
function cellIn(place) {
  return Math.floor(place + TIE);
}

/**
 * Where a tile lies on a canvas: `clip` are the pixels [left, right, top, bottom] whose middles are
 * in it, and in `within`; `first` and `step` are the cell of the first pixel's middle, and cells
 * from one pixel to the next, for columns and rows. Where there is no such pixel: null, or, if
 * `isKept`, an empty clip.
 */
export function placed(tile, edges, within, isKept = false) {
  const [left, right, top, bottom] = edges;
  const ends = edges.map(pixelAt);
  const clip = [
    Math.max(ends[0], within[0]), Math.min(ends[1], within[1]), Math.max(ends[2], within[2]),
    Math.min(ends[3], within[3]),
  ];
  if (!isKept && (clip[0] >= clip[1] || clip[2] >= clip[3])) return null;
  clip[1] = Math.max(clip[0], clip[1]);
  const [rows, columns] = tile.cells;
  const step = [columns / (right - left), rows / (bottom - top)];
  const first = [(clip[0] + 0.5 - left) * step[0], (clip[2] + 0.5 - top) * step[1]];
  return { tile, clip, first, step };
}

/** The cell of a pixel, counted from the clip's first one. */
function cellOf(first, step, pixel, count) {
  return Math.min(count - 1, Math.max(0, cellIn(first + step * pixel)));
}

/** The tile that is drawn at a pixel and the number of its cell there; null where there is none. */
function cellAt(placements, x, y) {
  for (let i = placements.length - 1; i >= 0; i--) {
    const { tile, clip, first, step } = placements[i];
    if (x < clip[0] || x >= clip[1] || y < clip[2] || y >= clip[3]) continue;
    const [rows, columns] = tile.cells;
    const row = cellOf(first[1], step[1], Math.floor(y - clip[2]), rows);
    return { tile, cell: row * columns + cellOf(first[0], step[0], Math.floor(x - clip[0]), columns) };
  }
  return null;
}

/** The lowest and the highest value of a line's cells in each column of pixels. */
function shownPairs(placements, width) {
  const values = new Float64Array(2 * width).fill(NaN);
  for (const { tile, edges, clip, first: [first], step: [step] } of placements) {
    // A tile's own end may be in a column that a neighbour's clip has.
    const isOwn = (side) => pixelAt(edges[side]) === clip[side];
    const from = isOwn(0) ? Math.floor(edges[0]) : clip[0];
    const to = isOwn(1) ? Math.ceil(edges[1]) : clip[1];
    for (let x = Math.max(0, from); x < Math.min(width, to); x++) {
      const left = first + step * (x - clip[0] - 0.5);
      const end = Math.min(tile.cells[0], Math.ceil(left + step - 1e-9));
      for (let i = Math.max(0, Math.floor(left + 1e-9)); i < end; i++) {
        const [low, high] = [valueAt(tile, 2 * i), valueAt(tile, 2 * i + 1)];
        if (Number.isNaN(low)) continue;
        // Nothing is above or below the NaN that was there.
        if (!(values[2 * x] <= low)) values[2 * x] = low;
        if (!(values[2 * x + 1] >= high)) values[2 * x + 1] = high;
      }
    }
  }
  return values;
}

/**
 * What a canvas shows, and its shape: a value for each pixel, a line's lowest and highest for each
 * column, a picture's red, green, blue and opacity. NaN, or no opacity, where nothing is.
 */
export function shownCells(kind, placements, { width, height }) {
  if (kind === "line") return { values: shownPairs(placements, width), shape: [width, 2] };
  const each = kind === "colour" ? 4 : 1;
  const length = height * width * each;
  const values = kind === "colour" ? new Uint8Array(length) : new Float64Array(length).fill(NaN);
  for (let pixel = 0; pixel < height * width; pixel++) {
    const found = cellAt(placements, pixel % width, Math.floor(pixel / width));
    if (!found) continue;
    const { tile, cell } = found;
    for (let i = 0; i < each; i++) {
      values[each * pixel + i] = valueAt(tile, each * cell + i);
    }
  }
  return { values, shape: [height, width, ...(each > 1 ? [each] : [])] };
}

/**
 * How the cells that are shown were reduced, and what of their tiles' elements is in none of them.
 * That is counted when all tiles are of one level, so that no element counts twice.
 */
export function noteOf(placements) {
  const tiles = [...new Set(placements.map(({ tile }) => tile))];
  const isFine = ({ levels }) => levels.join() === tiles.at(-1).levels.join();
  const counts = {};
  if (tiles.every(isFine)) {
    for (const tile of tiles) {
      for (const [name, count] of Object.entries(tile.left_out ?? {})) {
        counts[name] = (counts[name] ?? 0) + count;
      }
    }
  }
  const texts = Object.entries(counts).map(([name, n]) => `${n.toLocaleString("en")} ${name}`);
  return [tiles.find(isFine)?.note, ...texts].filter(Boolean).join(", ");
}

/** Draws tiles on the CPU. The pixels of their cells are kept, so that panning copies them alone. */
export class Canvas2dRenderer {
  constructor() {
    this.tables = new Cache(TABLES_NBYTES); // by tile
  }

  draw(context, placements, colours) {
    const { width, height } = context.canvas;
    context.clearRect(0, 0, width, height);
    for (const placement of placements) this.drawTile(context, placement, colours);
  }

  drawTile(context, { tile, clip, first, step }, colours) {
    const [left, right, top, bottom] = clip;
    const image = context.createImageData(right - left, bottom - top);
    const pixels = new Uint32Array(image.data.buffer);
    const table = this.tableOf(tile, colours);
    const [rows, columns] = tile.cells;
    const across = Int32Array.from(
      { length: right - left }, (_, x) => cellOf(first[0], step[0], x, columns),
    );
    for (let y = 0, at = 0; y < bottom - top; y++) {
      const row = cellOf(first[1], step[1], y, rows) * columns;
      for (let x = 0; x < across.length; x++) pixels[at++] = table[row + across[x]];
    }
    context.putImageData(image, left, top);
  }

  /** The pixel of each cell, as RGBA in the machine's order of bytes. */
  tableOf(tile, { limits, scale, palette }) {
    const colours = tile.isPicture ? "" : [scale, ...limits].join();
    const kept = this.tables.get(tile);
    if (kept && kept.colours === colours && kept.palette === palette) return kept.values;
    const values = tile.isPicture ? this.pictureTable(tile) : this.valueTable(
      tile, limits, scale, palette,
    );
    this.tables.put(tile, { values, colours, palette });
    return values;
  }

  valueTable(tile, limits, scale, palette) {
    const how = colouring(tile, limits, scale);
    const colours = new Uint32Array(palette.buffer);
    return Uint32Array.from(tile.values, (value) => colours[paletteIndex(value, how)]);
  }

  pictureTable(tile) {
    const bytes = new Uint8ClampedArray(tile.values.length);
    for (let i = 0; i < bytes.length; i++) {
      const alpha = tile.values[i | 3] / 255;
      bytes[i] = (i & 3) === 3 ? 255 : tile.values[i] * alpha + 255 * (1 - alpha);
    }
    return new Uint32Array(bytes.buffer);
  }
}

const VERTICES = `#version 300 es
void main() { gl_Position = vec4(vec2(gl_VertexID & 1, gl_VertexID >> 1) * 4.0 - 1.0, 0.0, 1.0); }`;

// Pixels are counted from the clip's upper left one. NaN and infinities are told by their bits,
// since GLSL leaves arithmetic with them open.
const FRAGMENTS = `#version 300 es
precision highp float;
precision highp sampler2D;
uniform sampler2D values, palette;
uniform vec2 first, step_;
uniform vec2 corner; // of the clip, from the lower left of the canvas
uniform vec2 limits;
uniform float shift, linear;
uniform int scale, isPicture;
out vec4 colour;
float onScale(float value) {
  if (scale == 0) return value * linear;
  float moved = value + shift;
  if (scale == 1) return moved > 0.0 ? log(moved) : -3.4e38;
  float x = abs(moved) / linear;
  return sign(moved) * log(x + sqrt(x * x + 1.0));
}
int paletteIndex(float value) {
  uint bits = floatBitsToUint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0;
  if (bits == 0x7f800000u) return ${COLOURS};
  if (bits == 0xff800000u) return 1;
  float place = onScale(value);
  if (limits.y > limits.x) {
    float position = clamp((place - limits.x) / (limits.y - limits.x), 0.0, 1.0);
    return 1 + int(floor(${COLOURS - 1}.0 * position + 0.5));
  }
  return place > limits.y ? ${COLOURS} : place < limits.x ? 1 : 128;
}
void main() {
  vec2 pixel = vec2(gl_FragCoord.x - corner.x, corner.y - gl_FragCoord.y) - 0.5;
  ivec2 cell = clamp(ivec2(floor(first + step_ * pixel + ${TIE})), ivec2(0), textureSize(values, 0) - 1);
  vec4 found = texelFetch(values, cell, 0);
  if (isPicture == 1) colour = vec4(found.rgb * found.a + (1.0 - found.a), 1.0);
  else colour = vec4(texelFetch(palette, ivec2(paletteIndex(found.r), 0), 0).rgb, 1.0);
}`;

/** Draws tiles with WebGL2. One is enough for all viewers of a page, which have 16 contexts. */
export class WebGlRenderer {
  /** Throws where there is no WebGL2. */
  constructor() {
    this.canvas = document.createElement("canvas");
    this.gl = this.canvas.getContext(
      "webgl2", { antialias: false, depth: false, premultipliedAlpha: false },
    );
    if (!this.gl) throw new Error("no WebGL2");
    this.textures = new Map(); // of tiles, in the order of their last use
    this.program = this.linked();
    this.places = {};
    for (
      const name of [
        "values", "palette", "first", "step_", "corner", "limits", "shift", "linear", "scale",
        "isPicture",
      ]
    ) {
      this.places[name] = this.gl.getUniformLocation(this.program, name);
    }
    this.paletteTexture = this.texture();
  }

  get isLost() {
    return this.gl.isContextLost();
  }

  /** Whether the CPU does what is asked of WebGL, as far as the browser says. */
  get isSoftware() {
    const { gl } = this;
    const unmasked = gl.getExtension("WEBGL_debug_renderer_info")?.UNMASKED_RENDERER_WEBGL;
    return SOFTWARE.test(gl.getParameter(unmasked ?? gl.RENDERER));
  }

  linked() {
    const { gl } = this;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTICES], [gl.FRAGMENT_SHADER, FRAGMENTS]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
      throw new Error(gl.getProgramInfoLog(program) || "lost");
    }
    return program;
  }

  texture() {
    const { gl } = this;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    for (const side of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) {
      gl.texParameteri(gl.TEXTURE_2D, side, gl.NEAREST);
    }
    return texture;
  }

  /** The texture of a tile, which is uploaded when it is drawn first. */
  textureOf(tile) {
    const { gl } = this;
    let texture = this.textures.get(tile);
    if (texture) {
      this.textures.delete(tile);
    } else {
      texture = this.texture();
      const [rows, columns] = tile.cells;
      const [inside, format, type] = tile.isPicture ? [
        gl.RGBA8, gl.RGBA, gl.UNSIGNED_BYTE,
      ] : [gl.R32F, gl.RED, gl.FLOAT];
      gl.texImage2D(gl.TEXTURE_2D, 0, inside, columns, rows, 0, format, type, tile.values);
    }
    this.textures.set(tile, texture);
    for (const [oldest, other] of this.textures) {
      if (this.textures.size <= TEXTURES_MAX) break;
      gl.deleteTexture(other);
      this.textures.delete(oldest);
    }
    return texture;
  }

  /** Draw on the shared canvas, in its lower left corner, and copy that to a viewer's. */
  draw(context, placements, { limits, scale, palette }) {
    const { gl, places } = this;
    const { width, height } = context.canvas;
    this.canvas.width = Math.max(this.canvas.width, width);
    this.canvas.height = Math.max(this.canvas.height, height);
    gl.viewport(0, 0, width, height);
    gl.useProgram(this.program);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform1i(places.palette, 1);
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, this.paletteTexture);
    gl.texImage2D(
      gl.TEXTURE_2D, 0, gl.RGBA8, palette.length / 4, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette,
    );
    gl.activeTexture(gl.TEXTURE0);
    for (const placement of placements) this.drawTile(placement, height, limits, scale);
    // Once, since the browser brings the pixels anew for each of these calls.
    context.clearRect(0, 0, width, height);
    context.drawImage(
      this.canvas, 0, this.canvas.height - height, width, height, 0, 0, width, height,
    );
  }

  drawTile({ tile, clip, first, step }, height, limits, scale) {
    const { gl, places } = this;
    const how = tile.isPicture ? {
      scale: 0, low: 0, high: 1, shift: 0, linear: 1,
    } : colouring(tile, limits, scale);
    gl.scissor(clip[0], height - clip[3], clip[1] - clip[0], clip[3] - clip[2]);
    gl.bindTexture(gl.TEXTURE_2D, this.textureOf(tile));
    gl.uniform1i(places.values, 0);
    gl.uniform2f(places.first, ...first);
    gl.uniform2f(places.step_, ...step);
    gl.uniform2f(places.corner, clip[0], height - clip[2]);
    gl.uniform2f(places.limits, how.low, how.high);
    gl.uniform1f(places.shift, how.shift);
    gl.uniform1f(places.linear, how.linear);
    gl.uniform1i(places.scale, how.scale);
    gl.uniform1i(places.isPicture, tile.isPicture ? 1 : 0);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }
}

/**
 * The page's renderer, which all viewers share though each has loaded this module for itself. Where
 * the CPU does what WebGL asks for, a frame takes several times as long as on the CPU alone.
 */
function sharedRenderer() {
  const name = Symbol.for("gpufetch.viewer.renderer");
  const shared = globalThis[name];
  if (shared && !shared.isLost) return shared;
  try {
    const renderer = new WebGlRenderer();
    globalThis[name] = renderer.isSoftware ? new Canvas2dRenderer() : renderer;
  } catch {
    globalThis[name] = new Canvas2dRenderer();
  }
  return globalThis[name];
}

// --- Export -------------------------------------------------------------------------------------

/** An .npy file of float64, or of bytes. */
export function npyFile(values, shape) {
  const lengths = shape.map((length) => `${length},`).join(" ");
  const isBytes = values instanceof Uint8Array;
  const head = `{'descr': '${isBytes ? "|u1" : "<f8"}', 'fortran_order': False, 'shape': (${lengths}), }`;
  const length = Math.ceil((head.length + 11) / 64) * 64;
  const bytes = new Uint8Array(length + values.byteLength);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, (length - 10) & 255, (length - 10) >> 8]);
  bytes.set(new TextEncoder().encode(head.padEnd(length - 11) + "\n"), 10);
  if (isBytes) {
    bytes.set(values, length);
    return bytes;
  }
  const view = new DataView(bytes.buffer, length);
  values.forEach((value, i) => view.setFloat64(8 * i, value, true));
  return bytes;
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- Elements -----------------------------------------------------------------------------------

const STYLE = `
.gpufetch-viewer {
  color: var(--jp-ui-font-color1, CanvasText);
  font: 12px var(--jp-ui-font-family, system-ui, sans-serif);
}
.gpufetch-viewer .gf-bar {
  display: flex;
  flex-wrap: wrap;
  gap: 4px 6px;
  align-items: center;
  margin-bottom: 4px;
}
.gpufetch-viewer button, .gpufetch-viewer select, .gpufetch-viewer input[type=text] {
  color: inherit; background: var(--jp-layout-color1, Canvas); font: inherit; padding: 1px 6px;
  border: 1px solid var(--jp-border-color1, GrayText); border-radius: 2px; }
.gpufetch-viewer input[type=text] { width: 8.5em; }
.gpufetch-viewer button[aria-pressed=true] {
  background: var(--jp-brand-color1, Highlight);
  color: var(--jp-ui-inverse-font-color1, HighlightText);
}
.gpufetch-viewer :focus-visible {
  outline: 2px solid var(--jp-brand-color1, Highlight);
  outline-offset: 1px;
}
.gpufetch-viewer .gf-panels { display: flex; gap: 6px; }
.gpufetch-viewer figure { margin: 0; flex: 1 1 0; min-width: 0; }
.gpufetch-viewer figcaption, .gpufetch-viewer .gf-note {
  color: var(--jp-ui-font-color2, GrayText);
}
.gpufetch-viewer figcaption {
  margin-bottom: 3px;
  overflow: hidden;
  white-space: nowrap;
  text-overflow: ellipsis;
}
.gpufetch-viewer canvas {
  display: block;
  width: 100%;
  box-sizing: border-box;
  border: 1px solid var(--jp-border-color2, GrayText);
}
.gpufetch-viewer [hidden] { display: none; }
.gpufetch-viewer .gf-view {
  touch-action: none;
  cursor: crosshair;
  background: var(--jp-layout-color2, Canvas);
}
.gpufetch-viewer .gf-range { width: 110px; height: 12px; }
.gpufetch-viewer .gf-status { min-height: 1.4em; font-variant-numeric: tabular-nums; }
.gpufetch-viewer .gf-alert:not(:empty) {
  border: 1px solid;
  border-left-width: 4px;
  padding: 0 6px;
  margin: 2px 0;
  font-weight: 600;
}
@media (forced-colors: active) {
  .gpufetch-viewer canvas { forced-color-adjust: none; border-color: CanvasText; }
  .gpufetch-viewer canvas.gf-view { background: Canvas; }
  .gpufetch-viewer button[aria-pressed=true] {
    forced-color-adjust: none;
    background: Highlight;
    color: HighlightText;
  }
}
@media (prefers-contrast: more) {
  .gpufetch-viewer figcaption, .gpufetch-viewer .gf-note { color: inherit; }
  .gpufetch-viewer canvas, .gpufetch-viewer button, .gpufetch-viewer select {
    border-color: currentColor;
  }
}`;

const DEAD =
  "The kernel has ended or was restarted, and does not know this viewer: run the cell again.";
const WAITING =
  "Waiting for the kernel, which is busy or far away: what is missing here comes when it answers.";
const NPY_TITLE =
  "save the cells shown, as exact as they are drawn, a NumPy file a tensor (elements: viewer.fetch())";
const KEYS = [
  ["arrows", "pan"],
  ["+ −", "zoom"],
  ["0", "show all"],
  ["1", "an element a pixel"],
  ["f", "fill the space"],
  ["[ ]", "previous or next index of the last slider"],
  ["c", "next colour map"],
  ["l", "next scale"],
  ["a", "limits from percentiles"],
  ["h", "histogram"],
  ["p", "profile"],
  ["space", "play or pause"],
  ["s", "save a PNG"],
  ["?", "these keys"],
];

/** An element with properties and children; properties with a dash are attributes. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

/** Where a canvas's pixels are on the page, within its border: browsers draw whole pixels. */
function contentBox(canvas) {
  const { left, right, top, bottom } = canvas.getBoundingClientRect();
  const { clientLeft: across, clientTop: down } = canvas;
  const [x0, x1, y0, y1] = [left + across, right - across, top + down, bottom - down].map(
    (edge) => Math.round(edge * devicePixelRatio) / devicePixelRatio
  );
  return { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
}

/** A number in few digits, as a person would write it: enough to see a thousandth of a range. */
export function numberText(value, range = 0) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "+inf" : "-inf";
  if (Number.isSafeInteger(value)) return String(value);
  const digits = range > 0 ? Math.ceil(Math.log10(Math.abs(value) / range)) + 4 : 0;
  const short = Number(value.toPrecision(Math.min(17, Math.max(8, digits))));
  return short !== 0 && Math.abs(short) < 1e-4 ? short.toExponential() : String(short);
}

/** The two ends of a range. */
export function rangeTexts([low, high]) {
  return [low, high].map((end) => numberText(end, high - low));
}

const DASHES = [[], [6, 3], [2, 3]]; // of a profile's lines

// --- Charts -------------------------------------------------------------------------------------

/** The place of a value between two ends, on a scale; 0 to 1. */
function place(value, [low, high], how) {
  const [from, to] = [onScale(low, how), onScale(high, how)];
  return (onScale(value, how) - from) / (to - from || 1);
}

/** What a histogram shows, or why there is none; "" before it was counted. */
export function histogramText(counted) {
  if (!counted) return "";
  const { counts, range } = counted;
  if (!range) return "no histogram: no element is finite";
  const [low, high] = rangeTexts(range);
  if (counts) return `histogram from ${low} to ${high}`;
  const what = range[0] === range[1] ? `one value: ${low}` : `values from ${low} to ${high}`;
  return `no histogram: ${what}`;
}

/** Draw bars of counts, and where the limits of colours are; only the text where none are. */
function drawHistogram(context, counted, text, limits, ink) {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  context.fillStyle = ink;
  if (!counted?.counts) {
    context.font = "12px sans-serif";
    context.fillText(text, 2, height / 2);
    return;
  }
  const { counts, range } = counted;
  const top = Math.log1p(Math.max(...counts));
  counts.forEach((count, i) => {
    const tall = count ? Math.max(1, (Math.log1p(count) / top) * (height - 14)) : 0;
    context.fillRect(
      (i * width) / counts.length,
      height - 12 - tall,
      Math.max(1, width / counts.length - 0.5),
      tall,
    );
  });
  context.font = "10px sans-serif";
  const [from, to] = rangeTexts(range);
  context.fillText(from, 2, height - 2);
  context.textAlign = "right";
  context.fillText(`${to}, log counts`, width - 2, height - 2);
  context.textAlign = "left";
  context.strokeStyle = "#d03030";
  for (const limit of limits) {
    const x = ((limit - range[0]) / (range[1] - range[0])) * width;
    context.strokeRect(x, 0, 0, height - 12);
  }
}

/** Draw a point of a line that has gaps on both sides, of which a line alone has no length. */
function markPoint(context, x, y) {
  context.moveTo(x - context.lineWidth, y);
  context.lineTo(x + context.lineWidth, y);
}

/** Draw lines of values, one for each panel, with names and extremes below; NaN is a gap. */
function drawProfile(context, lines, names, ink) {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  const finite = lines.flat().filter(Number.isFinite);
  if (!finite.length) return;
  const [low, high] = [
    finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b)),
  ];
  context.strokeStyle = context.fillStyle = ink;
  lines.forEach((values, number) => {
    context.setLineDash(DASHES[number % DASHES.length]);
    context.beginPath();
    let isDown = false;
    values.forEach((value, i) => {
      const at = [
        (i / (values.length - 1)) * width,
        height - 17 - ((value - low) / (high - low || 1)) * (height - 20),
      ];
      if (Number.isFinite(value)) {
        if (isDown) context.lineTo(...at);
        else if (Number.isFinite(values[i + 1])) context.moveTo(...at);
        else markPoint(context, ...at);
      }
      isDown = Number.isFinite(value);
    });
    context.stroke();
  });
  context.font = "10px sans-serif";
  context.fillText(rangeTexts([low, high]).join(" to "), 2, height - 2);
  if (lines.length > 1) drawNames(context, names);
}

/** Write the names of a profile's lines at the lower right, each behind a piece of its line. */
function drawNames(context, names) {
  const { width, height } = context.canvas;
  let right = width - 2;
  for (let number = names.length - 1; number >= 0; number--) {
    right -= context.measureText(names[number]).width;
    context.fillText(names[number], right, height - 2);
    right -= 28;
    context.setLineDash(DASHES[number % DASHES.length]);
    context.beginPath();
    context.moveTo(right, height - 5);
    context.lineTo(right + 24, height - 5);
    context.stroke();
    right -= 10;
  }
}

/** Placements of one axis from left to right, those beside each other of one tile as one. */
function runsOf(placements) {
  const runs = [];
  const inOrder = [...placements].sort((a, b) => a.span[0] - b.span[0]);
  for (const { tile, edges, span, clip } of inOrder) {
    const before = runs.at(-1);
    const isBeside = before?.span[1] === span[0];
    if (isBeside && before.tile === tile) {
      before.span[1] = span[1];
      before.clip[1] = clip[1];
    } else {
      if (isBeside) before.isJoined[1] = true;
      runs.push({
        tile, edges, span: span.slice(0, 2), clip: clip.slice(0, 2), isJoined: [isBeside, false],
      });
    }
  }
  return runs;
}

/**
 * The points of a line: x, the lowest and the highest value of each cell; null for NaN, and where a
 * tile is missing. `width` is that of the line, of which points out of sight may show a part.
 */
function linePoints(runs, width) {
  const points = [];
  for (const { tile, edges: [left, right], span, clip, isJoined } of runs) {
    const count = tile.cells[0];
    const step = (right - left) / count;
    const more = 1 + Math.ceil(width / step);
    // A cell that reaches into a neighbour is drawn on this side of the border.
    const first = isJoined[0] ? Math.floor((span[0] - left) / step + 1e-6)
      : Math.floor((clip[0] - left) / step) - more;
    const end = isJoined[1] ? Math.ceil((span[1] - left) / step - 1e-6)
      : Math.ceil((clip[1] - left) / step) + more;
    const from = isJoined[0] ? span[0] : -Infinity;
    const to = isJoined[1] ? span[1] : Infinity;
    if (!isJoined[0]) points.push(null);
    for (let i = Math.max(0, first); i < Math.min(count, end); i++) {
      const [low, high] = [valueAt(tile, 2 * i), valueAt(tile, 2 * i + 1)];
      const x = Math.min(to, Math.max(from, left + (i + 0.5) * step));
      points.push(Number.isNaN(low) ? null : [x, low, high]);
    }
  }
  return points;
}

/** Draw the lowest and highest values of tiles of one axis, between the limits. */
function drawLine(context, placements, limits, scale, ink) {
  const { width, height } = context.canvas;
  const how = colouring({ offset: 0, unit: 1 }, limits, scale, Number.MIN_VALUE);
  const thick = Math.max(1, devicePixelRatio);
  context.clearRect(0, 0, width, height);
  context.strokeStyle = ink;
  context.lineWidth = thick;
  const y = (value) => Math.min(
    2 * height, Math.max(-height, height * (0.96 - 0.92 * place(value, limits, how))),
  );
  context.save();
  context.beginPath();
  for (const { clip } of placements) context.rect(clip[0], 0, clip[1] - clip[0], height);
  context.clip();
  context.beginPath();
  linePoints(runsOf(placements), thick).forEach((point, i, points) => {
    if (!point) return;
    const [x, low, high] = point;
    if (points[i - 1]) context.lineTo(x, y(low));
    else context.moveTo(x, y(low));
    context.lineTo(x, y(high) - (low === high ? 0 : 0.5));
    if (!points[i - 1] && !points[i + 1]) markPoint(context, x, y(high));
  });
  context.stroke();
  context.restore();
}

// --- The viewer ---------------------------------------------------------------------------------

/** One output area that shows a viewer: several may show the same one. */
export class Output {
  constructor(model, root) {
    this.model = model;
    this.root = root;
    this.infos = model.get("_panels");
    this.state = { ...model.get("state") };
    this.palettes = {};
    for (const [name, bytes] of Object.entries(model.get("_palettes"))) {
      this.palettes[name] = rgba(bytes);
    }
    this.cache = new Cache(CACHE_NBYTES);
    this.requests = new Requests((content) => model.send(content), () => performance.now());
    this.mustBePlain = ""; // why tiles must not be encoded
    this.isVisible = false;
    this.isSettled = true;
    this.automatic = null; // limits from percentiles, when they were found
    this.pointer = null;
    this.refusal = ""; // of limits that were given
    this.saved = []; // states that were sent to the kernel last
    this.undo = [];
    this.build();
    this.listen();
  }

  get isLine() {
    return this.infos[0].kind === "line";
  }

  // --- What there is on the page ---

  build() {
    this.panels = this.infos.map((info, number) => this.panelElements(info, number));
    this.status = element("div", { className: "gf-status" });
    this.alert = element("div", { className: "gf-alert", role: "status" });
    this.note = element("div", { className: "gf-note" });
    this.chart = element("canvas", { hidden: true, role: "img" });
    this.profileChart = element(
      "canvas", { hidden: true, role: "img", "aria-label": "values along the profile" },
    );
    this.help = element(
      "div",
      { className: "gf-note", hidden: true },
      KEYS.map(([key, what]) => `${key}: ${what}`).join(" · "),
    );
    this.root.classList.add("gpufetch-viewer");
    this.root.append(
      element("style", { textContent: STYLE }), this.toolbar(), ...this.sliders(),
      element("div", { className: "gf-panels" }, ...this.panels.map((panel) => panel.figure)),
      this.status, this.note, this.alert, this.chart, this.profileChart, this.help);
  }

  panelElements(info, number) {
    const canvas = element("canvas", { className: "gf-view", tabIndex: 0, role: "img" });
    canvas.setAttribute(
      "aria-label", `${info.name || "tensor"}, ${info.dtype}, shape ${info.shape.join(" by ")}`,
    );
    const title = [
      info.name, info.dtype, `(${[...info.leading, ...info.shape].join(", ")})`, info.device,
    ];
    const caption = element("figcaption", {}, title.filter(Boolean).join("  "));
    const context = canvas.getContext("2d", { willReadFrequently: false });
    return {
      info, number, canvas, context, placements: [], levels: [],
      revision: 0, // of the contents; tiles of an older one are shown until newer ones come
      failed: new Map(), // by the key of a wish: the revision at which it was refused, and the reason
      error: "", // why something that is wanted now is not here
      stepError: "", // why the step was not told
      step: undefined, // the program's last
      askedAt: -Infinity, // when that was told
      figure: element("figure", {}, caption, canvas),
    };
  }

  button(text, title, act) {
    const made = element("button", { type: "button", textContent: text, title, onclick: act });
    made.setAttribute("aria-label", title);
    return made;
  }

  choice(title, options, name) {
    const made = element("select", { title, onchange: () => this.update({ [name]: made.value }) });
    made.append(
      ...options.map((option) => element("option", { value: option, textContent: option }))
    );
    made.setAttribute("aria-label", title);
    return made;
  }

  limitInput(side, title) {
    const made = element(
      "input", { type: "text", title, onchange: () => this.setLimit(side, made.value) },
    );
    made.setAttribute("aria-label", title);
    return made;
  }

  toolbar() {
    this.cmap = this.choice("colour map", Object.keys(this.palettes), "cmap");
    this.scale = this.choice("scale", ["linear", "log", "symlog"], "scale");
    this.low = this.limitInput(0, "lower limit");
    this.high = this.limitInput(1, "upper limit");
    this.range = element(
      "canvas",
      { className: "gf-range", width: COLOURS, height: 1, role: "img", "aria-label": "colours" },
    );
    this.automaticButton = this.button(
      "auto", "limits from percentiles (a)", () => this.automateLimits(),
    );
    this.histogramButton = this.button(
      "histogram", "histogram (h)", () => this.update({ histogram: !this.state.histogram }),
    );
    this.profileButton = this.button(
      "profile", "line profile: drag with Shift (p)", () => this.toggleProfile(),
    );
    this.playButton = this.button(
      "play", "follow changes (space)", () => this.update({ playing: !this.state.playing }),
    );
    const bar = [
      this.button("all", "show all (0)", () => this.showAll()),
      this.button("1:1", "an element a pixel (1)", () => this.showElements()),
      this.button("−", "zoom out (-)", () => this.zoom(1.5)),
      this.button("+", "zoom in (+)", () => this.zoom(1 / 1.5)),
      this.cmap, this.scale, this.low, this.range, this.high,
      this.automaticButton, this.histogramButton, this.profileButton,
      this.playButton,
      this.button("PNG", "save what is shown as PNG (s)", () => this.savePng()),
      this.button("NPY", NPY_TITLE, () => this.saveNpy()),
      this.button("?", "keys (?)", () => this.toggleHelp()),
    ];
    const ofColours = [this.cmap, this.range];
    const ofValues = [this.scale, this.low, this.high, this.automaticButton, this.histogramButton];
    const isPicture = this.infos.every(({ kind }) => kind === "colour");
    for (const control of [...ofColours, this.profileButton]) {
      control.hidden = this.isLine || isPicture;
    }
    for (const control of ofValues) control.hidden = isPicture;
    return element("div", { className: "gf-bar", role: "toolbar", "aria-label": "viewer" }, ...bar);
  }

  sliders() {
    this.sliderInputs = this.infos[0].leading.map((length, axis) => {
      const input = element(
        "input", { type: "range", min: 0, max: length - 1, value: this.state.index[axis] },
      );
      input.setAttribute("aria-label", `index of ${this.infos[0].labels[axis]}`);
      input.oninput = () => this.setIndex(axis, Number(input.value));
      return { input, text: element("output") };
    });
    return this.sliderInputs.map(({ input, text }, axis) =>
      element("label", { className: "gf-bar" }, this.infos[0].labels[axis], input, text));
  }

  // --- Events ---

  on(target, name, act, options) {
    target.addEventListener(name, act, options);
    this.undo.push(() => target.removeEventListener(name, act, options));
  }

  listen() {
    for (const panel of this.panels) this.listenTo(panel);
    this.on(document, "visibilitychange", () => this.changedVisibility());
    this.on(window, "pagehide", () => this.save());
    this.on(this.root, "keydown", (event) => this.pressed(event));
    const seen = new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1).isIntersecting;
      this.changedVisibility();
    });
    seen.observe(this.root);
    const sized = new ResizeObserver(() => this.resized());
    sized.observe(this.root);
    const timer = setInterval(() => this.tick(), 200);
    this.undo.push(() => seen.disconnect(), () => sized.disconnect(), () => clearInterval(timer));
    this.model.on("msg:custom", (reply, buffers) => this.requests.receive(reply, buffers));
    this.model.on("change:state", () => this.stateChanged());
    this.model.on("change:_revision", () => this.renew());
    this.model.on("comm_live_update", () => this.lostKernel());
  }

  listenTo({ canvas, number }) {
    this.on(canvas, "wheel", (event) => this.wheeled(event), { passive: false });
    this.on(canvas, "pointerdown", (event) => this.grabbed(event));
    this.on(canvas, "pointermove", (event) => this.moved(event, number));
    this.on(canvas, "pointerup", () => (this.drag = null));
    this.on(canvas, "pointercancel", () => (this.drag = null));
    this.on(canvas, "pointerleave", () => this.point(null));
    this.on(canvas, "dblclick", (event) => this.zoom(0.5, this.fraction(event)));
  }

  /** Stop everything, when the output is removed. */
  dispose() {
    for (const undo of this.undo) undo();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.settling);
    this.save();
  }

  changedVisibility() {
    const isVisible = Boolean(this.isSeen) && document.visibilityState === "visible";
    if (isVisible === this.isVisible) return;
    this.isVisible = isVisible;
    if (isVisible) this.resized();
    else this.requests.want([]);
  }

  /** The middle of the pixel under an event, in fractions of the axes. */
  fraction(event) {
    const { width, height } = event.target;
    const box = contentBox(event.target);
    // A little more, since an event may lie on the edge of a pixel.
    const x = Math.floor(((event.clientX - box.left) / box.width) * width + 1e-3) + 0.5;
    const y = Math.floor(((event.clientY - box.top) / box.height) * height + 1e-3) + 0.5;
    const [left, right, top, bottom] = this.window;
    return [left + (x / width) * (right - left), top + (y / height) * (bottom - top)];
  }

  /** The wheel zooms if the viewer has the focus or Ctrl is pressed; else it scrolls the page. */
  wheeled(event) {
    if (!event.ctrlKey && !this.root.contains(document.activeElement)) return;
    event.preventDefault();
    this.zoom(
      Math.exp(Math.sign(event.deltaY) * Math.min(0.2, Math.abs(event.deltaY) / 400)),
      this.fraction(event),
    );
  }

  grabbed(event) {
    if (event.button !== 0) return;
    event.target.focus();
    event.target.setPointerCapture(event.pointerId);
    const from = this.fraction(event);
    const isProfile = event.shiftKey && !this.isLine;
    this.drag = { isProfile, from, x: event.clientX, y: event.clientY };
  }

  moved(event, number) {
    if (this.drag?.isProfile) {
      this.update({ profile: [...this.drag.from, ...this.fraction(event)] });
    } else if (this.drag) {
      const box = contentBox(event.target);
      const [left, right, top, bottom] = this.window;
      this.look(
        panned(
          this.window,
          ((this.drag.x - event.clientX) / box.width) * (right - left),
          ((this.drag.y - event.clientY) / box.height) * (bottom - top),
        )
      );
      [this.drag.x, this.drag.y] = [event.clientX, event.clientY];
    }
    this.point({ number, at: this.fraction(event) });
  }

  pressed(event) {
    if (event.target.matches("select, input, button") && !["[", "]"].includes(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.keyAction(event.key);
    if (!act) return;
    act();
    // Notebooks have keys of their own.
    event.preventDefault();
    event.stopPropagation();
  }

  keyAction(key) {
    const pan = (x, y) => () => this.look(
      panned(
        this.window,
        (x * (this.window[1] - this.window[0])) / 8,
        (y * (this.window[3] - this.window[2])) / 8,
      )
    );
    const last = this.state.index.length - 1;
    const along = (by) => () => last >= 0 && this.setIndex(last, this.state.index[last] + by);
    const next = (name, options) => () => this.update(
      { [name]: options[(options.indexOf(this.state[name]) + 1) % options.length] }
    );
    return {
      ArrowLeft: pan(-1, 0),
      ArrowRight: pan(1, 0),
      ArrowUp: pan(0, -1),
      ArrowDown: pan(0, 1),
      "+": () => this.zoom(1 / 1.5),
      "=": () => this.zoom(1 / 1.5),
      "-": () => this.zoom(1.5),
      0: () => this.showAll(),
      1: () => this.showElements(),
      f: () => this.update({ fills: !this.state.fills, window: null }),
      "[": along(-1),
      "]": along(1),
      c: next("cmap", Object.keys(this.palettes)),
      l: next("scale", ["linear", "log", "symlog"]),
      a: () => this.automateLimits(),
      h: () => this.update({ histogram: !this.state.histogram }),
      p: () => this.toggleProfile(),
      " ": () => this.update({ playing: !this.state.playing }),
      s: () => this.savePng(),
      "?": () => this.toggleHelp(),
    }[key];
  }

  // --- The state ---

  /** Change what is shown, here and, a little later, in the kernel. */
  update(changes) {
    if ("scale" in changes) this.automatic = null;
    this.refusal = "";
    this.state = { ...this.state, ...changes };
    this.model.set("state", this.state);
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.save(), SAVE_MS);
    this.render();
  }

  save() {
    clearTimeout(this.saving);
    if (this.saving && !this.isDead) {
      this.saved = [...this.saved, JSON.stringify(this.state)].slice(-SAVED_MAX);
      this.model.save_changes();
    }
    this.saving = 0;
  }

  /** The kernel, or another output of this viewer, has changed the state. */
  stateChanged() {
    const changed = this.model.get("state");
    if (changed === this.state) return;
    if (this.saving && this.saved.includes(JSON.stringify({ ...this.state, ...changed }))) {
      // The kernel repeats what it was sent; the viewer was used since.
      this.model.set("state", this.state);
      return;
    }
    if (String(changed.limits) !== String(this.state.limits)) this.refusal = "";
    if (changed.scale !== this.state.scale) this.automatic = null;
    this.state = { ...changed };
    this.render();
  }

  get window() {
    const { info, canvas } = this.panels[0];
    const size = [canvas.width || 1, canvas.height || 1];
    const [rows, columns] = info.shape;
    const isLong = this.isLine || Math.max(rows / columns, columns / rows) > FILLS_ABOVE;
    return this.state.window ?? fitted(info.shape, size, this.state.fills || isLong);
  }

  look(window) {
    clearTimeout(this.settling);
    this.isSettled = false;
    delete this.root.dataset.missing;
    this.settling = setTimeout(() => {
      this.isSettled = true;
      this.plan();
    }, SETTLE_MS);
    const shown = this.isLine ? [...window.slice(0, 2), 0, 1] : window;
    this.update({ window: kept(shown, this.infos[0].shape) });
  }

  zoom(factor, at) {
    const [left, right, top, bottom] = this.window;
    this.look(zoomed(this.window, ...(at ?? [(left + right) / 2, (top + bottom) / 2]), factor));
  }

  showAll() {
    this.update({ window: null });
  }

  showElements() {
    const { canvas, info } = this.panels[0];
    const [left, right, top, bottom] = this.window;
    const lengths = this.isLine ? [info.shape[0], 1] : [info.shape[1], info.shape[0]];
    // From an edge of an element on, so that none ends in the middle of a pixel.
    const ends = [
      [(left + right) / 2, lengths[0], canvas.width], [(top + bottom) / 2, lengths[1], canvas.height],
    ].map(([middle, length, count]) => {
      const first = Math.round(middle * length - count / 2);
      return [first / length, (first + count) / length];
    });
    this.look(ends.flat());
  }

  setIndex(axis, number) {
    const index = [...this.state.index];
    index[axis] = Math.min(this.infos[0].leading[axis] - 1, Math.max(0, number));
    this.update({ index });
  }

  setLimit(side, text) {
    const limits = [...this.state.limits];
    const number = text.trim() === "" ? null : Number(text);
    limits[side] = number;
    const [low, high] = limits;
    if (number !== null && !Number.isFinite(number)) {
      this.refusal = `The limit "${text}" is no finite number: write it as 0.5 or 1e-3.`;
    } else if (low !== null && high !== null && low > high) {
      this.refusal = `The lower limit, ${low}, is above the upper one, ${high}.`;
    } else {
      this.update({ limits });
      return;
    }
    this.render();
  }

  automateLimits() {
    this.automatic = null;
    this.update({ limits: [null, null] });
  }

  toggleHelp() {
    this.help.hidden = !this.help.hidden;
  }

  toggleProfile() {
    const [left, right, top, bottom] = this.window;
    const middle = (top + bottom) / 2;
    const across = [Math.max(0, left), middle, Math.min(1, right), middle];
    this.update({ profile: this.state.profile ? null : across });
  }

  /** Limits of colours: those that were set, else percentiles of the overviews. */
  get limits() {
    const overviews = this.panels.map(
      (panel) => this.tileOf(this.overviewKey(panel))
    ).filter((tile) => tile && !tile.isPicture);
    const logs = overviews.filter(({ plain }) => plain).length;
    const found = this.automatic;
    // Of the first index and contents, as more of them come; of later ones for panels without any before.
    const at = [this.state.index, ...overviews.map(({ revision }) => revision)].join();
    // Those that lack logarithms stay until the index changes, whether or not these have come.
    const isBetter = found?.at === at ? found.logs < logs : found?.lacksLogs;
    if (overviews.length && (!found || found.panels < overviews.length || isBetter)) {
      const values = overviews.flatMap((tile) => Array.from(trueValues(tile)));
      const limits = automaticLimits(
        values, this.state.scale, this.isLine ? [0, 100] : PERCENTILES,
      );
      const lacksLogs = overviews.some((tile) => this.needsLogs(tile) && !tile.plain);
      this.automatic = { panels: overviews.length, logs, lacksLogs, at, limits };
    }
    return chosenLimits(this.state.limits, this.automatic?.limits ?? [0, 1], this.state.scale);
  }

  // --- What is asked of the kernel ---

  overviewKey({ info, number }) {
    return tileKey(number, this.state.index, ...overviewOf(info));
  }

  /** Whether a tile is to be drawn from its logarithms. */
  needsLogs(tile) {
    return Boolean(tile?.held_from) && this.state.scale === "log";
  }

  /** The tile to draw by a key: that of logarithms where those are needed, and are here. */
  tileOf(key) {
    const plain = this.cache.get(key);
    return (this.needsLogs(plain) && this.cache.get(logsKey(key))) || plain;
  }

  /** The tile that stands at a place: an older one until a newer one is here, or was refused. */
  shownTile(panel, levels, place) {
    const key = tileKey(panel.number, this.state.index, levels, place);
    return this.failure(panel, key) ? undefined : this.tileOf(key);
  }

  tileWish(panel, levels, place) {
    let key = tileKey(panel.number, this.state.index, levels, place);
    const { revision } = panel;
    const isKnown = () =>
      this.hasFailed(panel, key) || this.cache.tiles.get(key)?.revision === revision;
    const content = { op: "tile", panel: panel.number, index: this.state.index, levels, place };
    let plain;
    if (isKnown()) {
      plain = this.cache.tiles.get(key);
      if (!this.needsLogs(plain)) return [];
      key = logsKey(key);
      if (isKnown()) return [];
      content.logs = true;
    }
    if (this.takesEncoded) content.encoded = true;
    const done = (reply, buffers, sentAt) => {
      if (this.refused(panel, key, reply, revision)) return;
      this.takeTile(key, panel, { ...reply, levels, revision, plain }, buffers);
      this.tellTile(performance.now() - sentAt, buffers[0].byteLength);
    };
    return [{ key, content, done }];
  }

  /** Tell who measures how long a tile took from its request until it was here. */
  tellTile(ms, nbytes) {
    const detail = { ms, nbytes };
    this.root.dispatchEvent(new CustomEvent("gpufetch:tile", { bubbles: true, detail }));
  }

  takeTile(key, panel, reply, buffers) {
    const isPicture = panel.info.kind === "colour";
    const bytes = this.tileBytes(panel, reply, buffers[0]);
    if (!bytes) return;
    const values = isPicture ? bytes : new Float32Array(bytes.buffer);
    this.cache.put(key, { ...reply, values, isPicture });
    this.root.dataset.tiles = reply.encoded ? "encoded" : "plain";
    this.render();
  }

  /** A copy of the bytes of a tile's values; null if they cannot be decoded. */
  tileBytes(panel, reply, { buffer, byteOffset, byteLength }) {
    const bytes = new Uint8Array(buffer, byteOffset, byteLength);
    if (!reply.encoded) return bytes.slice();
    try {
      return this.decoder.decode(bytes, tileNbytes(panel.info, reply.cells));
    } catch (error) {
      this.refuseEncoded(error);
      return null;
    }
  }

  get decoder() {
    return sharedDecoders().get(this.model.get("_decoder"));
  }

  /** Whether tiles are to be encoded: the line is slow, and there is a decoder. */
  get takesEncoded() {
    return this.requests.line.isSlow && Boolean(this.decoder) && !this.mustBePlain;
  }

  /** Tiles are plain from now on, and so is what could not be decoded when it is asked for again. */
  refuseEncoded(reason) {
    this.mustBePlain = String(reason);
    this.render();
  }

  /** What it takes to find out how fast the line is, and the decoder if it is slow. */
  lineWish() {
    if (this.requests.line.wantsEcho(performance.now())) {
      return [{ key: "echo", content: { op: "echo", panel: 0 }, done() {} }];
    }
    const isHere = sharedDecoders().has(this.model.get("_decoder"));
    if (!this.requests.line.isSlow || isHere || this.mustBePlain) return [];
    const done = (reply, buffers) => this.takeDecoder(reply, buffers);
    return [{ key: "decoder", content: { op: "decoder", panel: 0 }, done }];
  }

  async takeDecoder(reply, buffers) {
    const name = this.model.get("_decoder");
    const shared = sharedDecoders();
    try {
      if (reply.error) throw new Error(reply.error);
      // A request of this viewer that waited, or another viewer's, may be answered later.
      if (shared.has(name)) return;
      // Until it works there is none, and it is not asked for again.
      shared.set(name, null);
      // Not every browser takes a DataView.
      const { buffer, byteOffset, byteLength } = buffers[0];
      shared.set(name, await Decoder.from(new Uint8Array(buffer, byteOffset, byteLength)));
    } catch (error) {
      this.refuseEncoded(error);
    }
    this.render();
  }

  /** Whether a reply is an error. It is asked again when the index or the contents change. */
  refused(panel, key, reply, revision = panel.revision) {
    if (!reply.error) return false;
    panel.failed.set(key, { revision, error: reply.error });
    this.render();
    return true;
  }

  /** Why a wish was refused; "" if it was not, or the contents have changed since. */
  failure(panel, key) {
    const found = panel.failed.get(key);
    return found?.revision === panel.revision ? found.error : "";
  }

  /** Whether what is wanted now was refused, which is shown then. */
  hasFailed(panel, key) {
    const error = this.failure(panel, key);
    panel.error ||= error;
    return Boolean(error);
  }

  /** Ask for what is seen and not here, the most urgent first; for nothing while it is hidden. */
  plan() {
    if (!this.isVisible || this.isDead) return;
    const index = this.state.index.join();
    for (const panel of this.panels) {
      panel.error = "";
      if (index !== this.plannedIndex) panel.failed.clear();
    }
    this.plannedIndex = index;
    const wishes = this.valueWish();
    for (const panel of this.panels) {
      wishes.push(...this.tileWish(panel, ...overviewOf(panel.info)));
    }
    if (this.isSettled) {
      const others = wishes.length;
      for (const panel of this.panels) {
        for (const place of this.shownTiles(panel)) {
          wishes.push(...this.tileWish(panel, panel.levels, place));
        }
      }
      this.root.dataset.missing = wishes.length - others; // tiles of this view
      wishes.push(...this.histogramWish());
    }
    if (wishes.length) wishes.unshift(...this.lineWish());
    if (!wishes.length) wishes.push(...this.stepWishes());
    this.requests.want(wishes);
  }

  valueWish() {
    const pointed = this.drag ? null : this.pointed();
    if (!pointed || this.exact?.key === pointed.key) return [];
    const { key, number, at } = pointed;
    const panel = this.panels[number];
    if (this.hasFailed(panel, key)) return [];
    const done = (reply) => {
      if (this.refused(panel, key, reply)) return;
      this.exact = { key, text: reply.text };
      this.render();
    };
    return [{ key, content: { op: "value", panel: number, index: this.state.index, at }, done }];
  }

  get histogramKey() {
    return ["histogram", this.state.index.join(), this.panels[0].revision].join("/");
  }

  /** The histogram of this index; one of older contents until a newer one is here, or was refused. */
  get histogram() {
    const isOther = this.counted?.index !== this.state.index.join();
    return isOther || this.failure(this.panels[0], this.histogramKey) ? null : this.counted;
  }

  histogramWish() {
    const [panel] = this.panels;
    const key = this.histogramKey;
    const index = this.state.index.join();
    if (!this.state.histogram || this.counted?.key === key) return [];
    if (this.hasFailed(panel, key)) return [];
    const done = (reply) => {
      if (this.refused(panel, key, reply)) return;
      this.counted = { key, index, ...reply };
      this.render();
    };
    return [{ key, content: { op: "histogram", panel: 0, index: this.state.index }, done }];
  }

  /** While it plays, and everything is here: whether each panel's contents have changed. */
  stepWishes() {
    const isDue = ({ askedAt }) => performance.now() - askedAt >= PLAY_MS;
    if (!this.state.playing) return [];
    const due = this.panels.filter(isDue).sort((a, b) => a.askedAt - b.askedAt);
    return due.map((panel) => {
      const done = (reply) => {
        panel.askedAt = performance.now();
        panel.stepError = reply.error ?? "";
        if (!reply.error && (reply.step === null || reply.step !== panel.step)) this.renew([panel]);
        panel.step = reply.step ?? undefined;
        this.render();
      };
      return { key: `step/${panel.number}`, content: { op: "step", panel: panel.number }, done };
    });
  }

  /** The contents may have changed: read what is shown anew, and show what is here until then. */
  renew(panels = this.panels) {
    for (const panel of panels) {
      panel.revision += 1;
      panel.failed.clear();
    }
    this.exact = null;
    this.plan();
  }

  tick() {
    if (!this.isVisible || this.isDead) return;
    this.requests.forgetLost();
    this.plan();
    this.tell();
    if (this.ink() !== this.drawnInk) this.render(); // the page has another theme now
  }

  /** The kernel has no such viewer any more. */
  lostKernel() {
    this.isDead = true;
    this.requests.want([]);
    this.tell();
  }

  // --- The pointer ---

  point(pointer) {
    this.pointer = pointer;
    this.render();
  }

  /** The element under the pointer: its panel and place, and a key of both. */
  pointed() {
    if (!this.pointer) return null;
    const { number, at } = this.pointer;
    const { shape } = this.infos[number];
    const exact = (shape.length < 2 ? at.slice(0, 1) : [at[1], at[0]]).map(
      (fraction, axis) => fraction * shape[axis] + ROUNDED
    );
    if (exact.some((n, axis) => n < 0 || n >= shape[axis])) return null;
    const place = exact.map((n, axis) => Math.min(shape[axis] - 1, cellIn(n)));
    const { revision } = this.panels[number];
    return {
      number,
      at: place,
      key: ["value", number, this.state.index.join(), place.join(), revision].join("/"),
    };
  }

  // --- Drawing ---

  /** Take in another size: as wide as the output, and high enough for all of the first panel. */
  resized() {
    for (const { canvas, info } of this.panels) {
      const width = Math.round(canvas.clientWidth * devicePixelRatio);
      if (!width) return;
      const [rows, columns] = this.infos[0].shape;
      const wanted = this.isLine ? LINE_HEIGHT : (canvas.clientWidth * rows) / columns;
      const height = Math.round(
        Math.min(HEIGHT_MAX, Math.max(HEIGHT_MIN, wanted)) * devicePixelRatio
      );
      if (canvas.width !== width || canvas.height !== height) {
        [canvas.width, canvas.height] = [width, height];
      }
      canvas.style.height = `${height / devicePixelRatio + 2 * canvas.clientTop}px`;
      canvas.style.aspectRatio = info.shape.length < 2 ? "" : "auto";
    }
    this.render();
  }

  /** Draw before the next frame, and ask for what is missing. */
  render() {
    if (!this.isVisible || this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.drawnInk = this.ink();
      for (const panel of this.panels) this.drawPanel(panel);
      this.drawCharts();
      this.plan();
      this.tell();
    });
  }

  drawPanel(panel) {
    const { canvas, context, info } = panel;
    panel.levels = levelsFor(
      info, this.window, this.isLine ? [canvas.width] : [canvas.height, canvas.width],
    );
    const placements = this.placements(panel);
    const overview = this.overviewKey(panel);
    // Nothing of another index is here yet: what was shown stays for a moment.
    const isHere = placements.length || this.cache.get(overview) || this.failure(panel, overview);
    if (!isHere && panel.placements.length) return;
    panel.placements = placements;
    const colours = {
      limits: this.limits, scale: this.state.scale, palette: this.palettes[this.state.cmap],
    };
    if (this.isLine) drawLine(context, placements, this.limits, this.state.scale, this.ink());
    else sharedRenderer().draw(context, placements, colours);
    this.drawMarks(panel);
  }

  ink() {
    return getComputedStyle(this.root).color;
  }

  /** Where a point of the axes, in fractions of them, lies on a canvas. */
  pixel({ width, height }, x, y) {
    const [left, right, top, bottom] = this.window;
    return [((x - left) / (right - left)) * width, ((y - top) / (bottom - top)) * height];
  }

  /** Where a tile lies on a panel's canvas, in pixels: left, right, top, bottom. */
  edges({ canvas, info }, levels, place) {
    const [left, right, top, bottom] = this.window;
    const box = tileBox(info, levels, place);
    const [rows, columns] = this.isLine ? [null, box[0]] : box;
    const lengths = this.isLine ? [1, info.shape[0]] : info.shape;
    const x = columns.map((index) => ((index / lengths[1] - left) / (right - left)) * canvas.width);
    const y = rows ? rows.map(
      (index) => ((index / lengths[0] - top) / (bottom - top)) * canvas.height
    ) : [0, canvas.height];
    return [...x, ...y];
  }

  /** Places of the tiles that the window shows, and of a line's next points, to which it goes on. */
  shownTiles({ info, levels }) {
    const more = this.isLine ? 2 ** levels[0] / 2 / info.shape[0] : 0;
    const [left, right, ...others] = this.window;
    return tilesIn(info, [left - more, right + more, ...others], levels);
  }

  /**
   * The tiles to draw, coarse ones first: those stand for finer ones that are not here yet. `edges`
   * are a tile's own, and `span` those of the part that it is drawn for.
   */
  placements(panel) {
    const { info, canvas } = panel;
    if (this.failure(panel, this.overviewKey(panel))) return [];
    const whole = [0, canvas.width, 0, canvas.height];
    const fine = [];
    const coarse = [];
    for (const wanted of this.shownTiles(panel)) {
      const span = this.edges(panel, panel.levels, wanted);
      const within = span.map(
        (edge, i) => Math[i % 2 ? "min" : "max"](whole[i], pixelAt(edge))
      );
      const put = (list, tile, levels, place) => {
        const edges = this.edges(panel, levels, place);
        const found = placed(
          this.isLine ? { ...tile, cells: [1, tile.cells[0]] } : tile, edges, within, this.isLine,
        );
        if (found) list.push({ ...found, tile, edges, span });
      };
      const tile = this.shownTile(panel, panel.levels, wanted);
      if (tile) {
        put(fine, tile, panel.levels, wanted);
        continue;
      }
      for (
        let up = parentOf(info, panel.levels, wanted); up; up = parentOf(info, up.levels, up.place)
      ) {
        const parent = this.shownTile(panel, up.levels, up.place);
        if (!parent) continue;
        put(coarse, parent, up.levels, up.place);
        break;
      }
    }
    return [...coarse, ...fine];
  }

  /** Draw the profile's line, and where the pointer is in the other panels. */
  drawMarks({ canvas, context, number }) {
    context.beginPath();
    if (this.state.profile && !this.isLine) {
      const [x0, y0, x1, y1] = this.state.profile;
      context.moveTo(...this.pixel(canvas, x0, y0));
      context.lineTo(...this.pixel(canvas, x1, y1));
    }
    if (this.pointer && this.pointer.number !== number) {
      const [x, y] = this.pixel(canvas, ...this.pointer.at);
      context.moveTo(x, 0);
      context.lineTo(x, canvas.height);
      if (!this.isLine) {
        context.moveTo(0, y);
        context.lineTo(canvas.width, y);
      }
    }
    // White within black is seen on every colour.
    for (const [colour, width] of [["#000", 3], ["#fff", 1]]) {
      context.strokeStyle = colour;
      context.lineWidth = width * Math.max(1, devicePixelRatio);
      context.stroke();
    }
  }

  /** The value of the cell that is drawn at a pixel; NaN where there is none, and for colours. */
  shownAt({ placements }, x, y) {
    const found = cellAt(placements, x, y);
    if (!found || found.tile.isPicture) return NaN;
    return valueAt(found.tile, found.cell);
  }

  drawCharts() {
    this.sizeChart(this.chart, this.state.histogram);
    if (this.state.histogram) {
      const { histogram } = this;
      const text = histogramText(histogram);
      drawHistogram(this.chart.getContext("2d"), histogram, text, this.limits, this.ink());
      this.chart.setAttribute("aria-label", text);
    }
    const hasProfile = this.state.profile && !this.isLine;
    this.sizeChart(this.profileChart, hasProfile);
    if (hasProfile) {
      const lines = this.panels.map((panel) => this.profileOf(panel));
      const names = this.infos.map((_, number) => this.nameOf(number));
      drawProfile(this.profileChart.getContext("2d"), lines, names, this.ink());
    }
  }

  sizeChart(chart, isShown) {
    chart.hidden = !isShown;
    if (isShown && chart.width !== chart.clientWidth) {
      [chart.width, chart.height] = [chart.clientWidth || 1, CHART_HEIGHT];
    }
  }

  /** The values that are shown along the profile, one for each pixel of it. */
  profileOf(panel) {
    const { canvas } = panel;
    const [x0, y0, x1, y1] = this.state.profile;
    const from = this.pixel(canvas, x0, y0);
    const to = this.pixel(canvas, x1, y1);
    const lengths = to.map((end, axis) => end - from[axis]);
    const count = Math.max(2, Math.min(4096, Math.ceil(Math.hypot(...lengths))));
    // From middle to middle of the pixels at its ends: an end on the image's edge is in none of it.
    const insets = lengths.map((length) => Math.max(-0.4999, Math.min(0.4999, length / 2)));
    return Array.from({ length: count }, (_, i) => {
      const at = from.map((begin, axis) => (
        begin + insets[axis] + ((lengths[axis] - 2 * insets[axis]) * i) / (count - 1)
      ));
      return this.shownAt(panel, ...at);
    });
  }

  // --- Words ---

  tell() {
    this.tellPointer();
    const steps = new Set(this.panels.map(({ step }) => step).filter((step) => step !== undefined));
    const step = steps.size ? `step ${[...steps].join(", ")}` : "";
    const plain = this.mustBePlain && `tiles are not encoded (${this.mustBePlain})`;
    const words = [...this.noteTexts(), step, this.sampleText(), plain];
    this.note.textContent = words.filter(Boolean).join(" · ");
    this.alert.textContent = this.alertText();
    this.tellControls();
  }

  /** How each panel's cells were reduced; once where that is the same for all. */
  noteTexts() {
    return this.named(this.panels.map(({ placements }) => noteOf(placements)));
  }

  /** Each panel's text, with its name; one text where that is the same for all. */
  named(texts) {
    if (texts.every((text) => text === texts[0])) return [texts[0]];
    return texts.map((text, number) => text && `${this.nameOf(number)}: ${text}`);
  }

  sampleText() {
    if (!this.state.histogram || !(this.histogram?.sample > 1)) return "";
    return `histogram of a sample of 1/${this.histogram.sample}`;
  }

  tellPointer() {
    const pointed = this.pointed();
    if (!pointed) {
      this.status.textContent = "";
      return;
    }
    const index = [...this.state.index, ...pointed.at].join(", ");
    const text = this.exact?.key === pointed.key ? `= ${this.exact.text}` : "…";
    this.status.textContent = `${this.infos[pointed.number].name}[${index}] ${text}`;
  }

  alertText() {
    if (this.isDead) return DEAD;
    if (this.requests.age() > WAITING_MS) return WAITING;
    const errors = this.panels.map(
      ({ error, stepError }) => error || (this.state.playing ? stepError : "")
    );
    return [...this.named(errors), this.refusal].filter(Boolean).join(" · ");
  }

  tellControls() {
    this.cmap.value = this.state.cmap;
    this.scale.value = this.state.scale;
    const texts = rangeTexts(this.limits);
    for (const [side, input] of [this.low, this.high].entries()) {
      if (document.activeElement !== input) input.value = texts[side];
    }
    const pixels = new Uint8ClampedArray(this.palettes[this.state.cmap].buffer, 4, 4 * COLOURS);
    this.range.getContext("2d").putImageData(new ImageData(pixels, COLOURS, 1), 0, 0);
    this.histogramButton.setAttribute("aria-pressed", this.state.histogram);
    this.profileButton.setAttribute("aria-pressed", Boolean(this.state.profile));
    this.playButton.setAttribute("aria-pressed", this.state.playing);
    this.playButton.textContent = this.state.playing ? "pause" : "play";
    this.sliderInputs.forEach(({ input, text }, axis) => {
      if (Number(input.value) !== this.state.index[axis]) input.value = this.state.index[axis];
      text.textContent = this.state.index[axis];
    });
  }

  // --- Files ---

  nameOf(number) {
    return this.infos[number].name || (this.infos.length > 1 ? `tensor ${number}` : "tensor");
  }

  /** All panels beside each other, as they are drawn but for the pointer. */
  savePng() {
    const { pointer } = this;
    this.pointer = null;
    for (const panel of this.panels) this.drawPanel(panel);
    this.pointer = pointer;
    const widths = this.panels.map(({ canvas }) => canvas.width);
    const all = element(
      "canvas", { width: widths.reduce((a, b) => a + b), height: this.panels[0].canvas.height },
    );
    this.panels.forEach(
      ({ canvas }, i) => all.getContext("2d").drawImage(
        canvas, widths.slice(0, i).reduce((a, b) => a + b, 0), 0,
      )
    );
    this.render();
    all.toBlob((blob) => download(blob, `${this.infos[0].name || "tensor"}.png`));
  }

  /** What each panel shows, a cell for each pixel: a file for each. */
  saveNpy() {
    for (const { canvas, info, number, placements } of this.panels) {
      const { values, shape } = shownCells(info.kind, placements, canvas);
      download(new Blob([npyFile(values, shape)]), `${this.nameOf(number)}.npy`);
    }
  }
}

/** A palette's RGB as RGBA. */
function rgba(view) {
  const rgb = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  const result = new Uint8Array((rgb.length / 3) * 4).fill(255);
  for (let i = 0; i < rgb.length; i++) result[Math.floor(i / 3) * 4 + (i % 3)] = rgb[i];
  return result;
}

export default {
  render({ model, el }) {
    const output = new Output(model, el);
    return () => output.dispose();
  },
};
