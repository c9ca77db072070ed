// Functions of the viewer's module that need no page: viewer_functions.mjs MODULE
//
// MODULE is a copy of viewer.js whose name ends in .mjs. Prints the name of each test that passed.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const viewer = await import(pathToFileURL(process.argv[2]));
const IMAGE = { shape: [1000, 3000], levels: [10, 12], overview: [2, 4], tile: 256 };
const LINE = { shape: [3_000_000], levels: [11], overview: [10], tile: 4096 };

/** Requests whose messages are kept, and a clock. */
function requestsOf() {
  const sent = [];
  const clock = { now: 0 };
  const requests = new viewer.Requests((content) => sent.push(content), () => clock.now);
  const wish = (key, taken = []) => (
    { key, content: { op: key }, done: (reply) => taken.push([key, reply.value]) }
  );
  return { sent, clock, requests, wish };
}

/** An output without elements, whose panels have a tile each: the overview. */
function outputOf(panels, state = {}) {
  const output = Object.create(viewer.Output.prototype);
  const first = { leading: [], tile: 256, name: "" };
  output.infos = panels.map(({ info }) => {
    const [levels, overview] = [1, 0].map((level) => info.shape.map(() => level));
    return { ...first, levels, overview, ...info };
  });
  output.state = { index: [], window: null, limits: [null, null], scale: "linear", ...state };
  output.cache = new viewer.Cache(1e9);
  output.model = { get: () => "" };
  output.saved = [];
  output.panels = output.infos.map((info, number) => ({
    info, number, canvas: { width: 8, height: 4 }, placements: [], levels: [], revision: 0,
    failed: new Map(), error: "", stepError: "", step: undefined, askedAt: -Infinity,
  }));
  for (const [number, { tile }] of panels.entries()) {
    const panel = output.panels[number];
    panel.levels = panel.info.shape.map(() => 0);
    if (!tile) continue;
    output.cache.put(output.overviewKey(panel), { offset: 0, unit: 1, revision: 0, ...tile });
    panel.placements = output.placements(panel);
  }
  return output;
}

/** A canvas's context that keeps the names of what was called, and the texts. */
function contextOf(width, height) {
  const calls = [];
  const of = (_, name) => name === "canvas" ? { width, height } : (...values) => {
    calls.push(name === "fillText" ? values[0] : name);
    return { width: 1 };
  };
  return { calls, context: new Proxy({}, { get: of, set: () => true }) };
}

/** A canvas's context that keeps the pieces of its lines that are longer than nothing. */
function penOf(width, height) {
  const pieces = [];
  let at;
  const acts = {
    moveTo: (x, y) => (at = [x, y]),
    lineTo: (x, y) => {
      if (x !== at[0] || y !== at[1]) pieces.push([...at, x, y]);
      at = [x, y];
    },
  };
  const of = (_, name) => ({ ...acts, canvas: { width, height }, lineWidth: 1 })[name] ?? (
    () => ({ width: 1 })
  );
  return { pieces, context: new Proxy({}, { get: of, set: () => true }) };
}

const TESTS = {
  a_zoom_leaves_the_point_under_the_pointer_where_it_is() {
    const window = viewer.zoomed([0, 1, 0, 1], 0.25, 0.5, 0.5);
    assert.deepEqual(window, [0.125, 0.625, 0.25, 0.75]);
    assert.equal((0.25 - window[0]) / (window[1] - window[0]), 0.25);
  },

  an_image_is_fitted_with_square_elements() {
    const [left, right, top, bottom] = viewer.fitted([100, 200], [400, 400], false);
    assert.deepEqual([left, right], [0, 1]);
    assert.ok(Math.abs(top + 0.5) < 1e-12 && Math.abs(bottom - 1.5) < 1e-12);
    assert.deepEqual(viewer.fitted([100, 200], [400, 400], true), [0, 1, 0, 1]);
  },

  a_window_stays_in_sight_and_above_a_few_elements() {
    const [left, right, top, bottom] = viewer.kept([7, 7 + 1e-9, -9, -8], [100, 200]);
    assert.ok(left < 1 && right - left >= 4 / 200 - 1e-12 && bottom > 0 && bottom - top === 1);
    const wide = viewer.kept([-1e6, 1e6, 0, 1], [100, 200]);
    assert.ok(wide[1] - wide[0] <= 64);
  },

  no_cell_is_below_a_pixel_and_none_above_two() {
    for (const perPixel of [0.1, 0.5, 1, 1.001, 2, 2.5, 4, 1000]) {
      const cell = 2 ** viewer.levelFor(perPixel, 30);
      assert.ok(cell >= perPixel && (cell < 2 * perPixel || cell === 1), perPixel);
    }
    assert.equal(viewer.levelFor(1e12, 5), 4);
  },

  the_tiles_of_a_window_are_those_that_it_shows_the_middle_first() {
    assert.deepEqual(viewer.tilesIn(IMAGE, [0, 1, 0, 1], [2, 4]), [[0, 0]]);
    const tiles = viewer.tilesIn(IMAGE, [0, 1, 0, 1], [0, 0]);
    assert.equal(tiles.length, 4 * 12);
    assert.equal(new Set(tiles.map(String)).size, tiles.length);
    assert.ok(tiles[0][0] >= 1 && tiles[0][0] <= 2 && tiles[0][1] >= 5 && tiles[0][1] <= 6);
    assert.deepEqual(viewer.tilesIn(IMAGE, [0, 256 / 3000, 0, 0.256], [0, 0]), [[0, 0]]);
    assert.deepEqual(viewer.tilesIn(IMAGE, [2, 3, 0, 1], [0, 0]), []);
    assert.deepEqual(viewer.tilesIn(LINE, [0.5, 0.5001, 0, 1], [0]), [[366]]);
    assert.deepEqual(viewer.tileBox(IMAGE, [0, 1], [3, 5]), [[768, 1000], [2560, 3000]]);
  },

  every_cell_has_a_pixel_of_a_small_canvas_too() {
    for (
      const [shape, size] of [
        [[2000, 8000], [851, 213]], [[256, 256], [207, 207]], [[300, 4097], [512, 120]],
        [[3, 70000], [64, 400]],
      ]
    ) {
      const panel = {
        shape, tile: 256, levels: shape.map((n) => Math.floor(Math.log2(n)) + 1),
        overview: shape.map((n) => Math.max(0, Math.ceil(Math.log2((n + 1) / 257)))),
      };
      const window = viewer.fitted(shape, size, true);
      const levels = viewer.levelsFor(panel, window, [size[1], size[0]]);
      for (const axis of [0, 1]) {
        const pixels = size[1 - axis];
        const seen = new Set();
        let count = 0;
        for (const place of viewer.tilesIn(panel, window, levels)) {
          if (place[1 - axis]) continue;
          const ends = viewer.tileBox(panel, levels, place)[axis];
          const cells = Math.max(1, Math.floor((ends[1] - ends[0]) / 2 ** levels[axis]));
          const edges = ends.map((end) => (end / shape[axis]) * pixels);
          const at = viewer.placed({ cells: [1, cells] }, [...edges, 0, 1], [0, pixels, 0, 1]);
          count += cells;
          for (let x = at.clip[0]; x < at.clip[1]; x++) {
            seen.add(`${place} ${Math.floor(at.first[0] + at.step[0] * (x - at.clip[0]))}`);
          }
        }
        assert.equal(seen.size, count, `${shape} on ${size}`);
      }
    }
  },

  the_tile_with_a_tiles_elements_one_level_up_is_found_up_to_the_overview() {
    assert.deepEqual(
      viewer.parentOf(IMAGE, [0, 1], [3, 5]), { levels: [1, 2], place: [1, 2] },
    );
    assert.deepEqual(viewer.parentOf(IMAGE, [5, 3], [0, 1]), { levels: [2, 4], place: [0, 0] });
    assert.equal(viewer.parentOf(IMAGE, [2, 4], [0, 0]), null);
    // What is less than a cell there is of the tile before.
    const long = { shape: [1, 513], levels: [1, 10], overview: [0, 1], tile: 256 };
    assert.deepEqual(viewer.tilesIn(long, [0.9999, 1, 0, 1], [0, 0]), [[0, 2]]);
    assert.deepEqual(viewer.parentOf(long, [0, 0], [0, 2]), { levels: [0, 1], place: [0, 0] });
    assert.deepEqual(viewer.tileBox(long, [0, 1], [0, 0]), [[0, 1], [0, 513]]);
  },

  two_requests_at_most_are_unanswered_and_only_the_newest_wishes_wait() {
    const { sent, requests, wish } = requestsOf();
    const taken = [];
    requests.want(["a", "b", "c", "d"].map((key) => wish(key, taken)));
    assert.deepEqual(sent.map(({ op }) => op), ["a", "b"]);
    requests.want(["b", "e", "f"].map((key) => wish(key, taken)));
    assert.equal(sent.length, 2);
    requests.receive({ id: sent[0].id, value: 1 }, []);
    assert.deepEqual(sent.map(({ op }) => op), ["a", "b", "e"]); // neither c, d nor b again
    requests.want([]);
    requests.receive({ id: sent[1].id, value: 2 }, []);
    requests.receive({ id: sent[2].id, value: 3 }, []);
    assert.equal(sent.length, 3);
    assert.deepEqual(taken, [["a", 1], ["b", 2], ["e", 3]]);
  },

  what_is_wanted_while_it_is_on_its_way_is_not_asked_for_twice() {
    const { sent, requests, wish } = requestsOf();
    for (let times = 0; times < 3; times++) requests.want([wish("a"), wish("b")]);
    requests.receive({ id: sent[0].id }, []);
    requests.receive({ id: sent[1].id }, []);
    assert.deepEqual(sent.map(({ op }) => op), ["a", "b"]);
    requests.want([wish("a"), wish("c"), wish("a")]); // its answer was of no use
    requests.receive({ id: sent[2].id }, []);
    assert.deepEqual(sent.slice(2).map(({ op }) => op), ["a", "c"]);
  },

  an_answer_to_someone_else_and_one_that_comes_twice_are_ignored() {
    const { sent, requests, wish } = requestsOf();
    const taken = [];
    requests.want([wish("a", taken)]);
    for (
      const reply of [null, {}, { id: "1" }, { id: 7 }]
    ) assert.equal(requests.receive(reply, []), false);
    assert.equal(requests.receive({ id: sent[0].id, value: 1 }, []), true);
    assert.equal(requests.receive({ id: sent[0].id, value: 1 }, []), false);
    assert.equal(taken.length, 1);
  },

  a_request_that_waits_is_told_and_in_the_end_asked_again() {
    const { sent, clock, requests, wish } = requestsOf();
    assert.equal(requests.age(), 0);
    requests.want([wish("a")]);
    const output = outputOf([{ info: { kind: "image", shape: [1, 1] } }]);
    Object.assign(output, { requests, refusal: "" });
    clock.now = 600;
    assert.equal(output.alertText(), "");
    clock.now = 900;
    assert.equal(requests.age(), 900);
    // Whether a cell runs, or the line is slow, the page does not know.
    assert.match(output.alertText(), /^Waiting for the kernel, .* when it answers\.$/);
    requests.forgetLost();
    requests.want([wish("a")]);
    assert.equal(sent.length, 1);
    clock.now = 61000;
    requests.forgetLost();
    requests.want([wish("a")]);
    assert.equal(sent.length, 2);
  },

  a_line_is_slow_where_large_answers_take_longer_than_its_delay() {
    const line = new viewer.Line();
    assert.ok(line.wantsEcho(0));
    line.note(262144, 126, 0);
    line.note(262144, 900, 0); // something else has delayed it
    for (const ms of [130, 100]) line.note(100, ms, 1000);
    assert.equal(line.speed, Infinity); // too few small ones to tell
    line.note(100, 400, 1000);
    assert.ok(!line.wantsEcho(1500) && line.wantsEcho(4000));
    assert.equal(line.speed, 262144 / 26);
    assert.ok(line.isSlow);
    line.note(120000, 104, 0); // an encoded tile, too small to tell
    for (let i = 0; i < 8; i++) line.note(100, 130, 5000); // each behind a tile
    assert.ok(line.isSlow && !line.wantsEcho(90000));
    line.note(262144, 104, 0);
    assert.ok(!line.isSlow);
    line.note(100, 2, 0);
    assert.ok(line.isSlow); // as far as one can tell
    for (let i = 0; i < 8; i++) line.note(262144, 6, 0);
    assert.ok(!line.isSlow);
  },

  the_kernels_own_time_is_not_the_lines() {
    const { sent, clock, requests, wish } = requestsOf();
    for (const key of ["a", "b", "c"]) {
      requests.want([wish(key)]);
      clock.now += 3;
      requests.receive({ id: sent.at(-1).id, ms: 2 });
    }
    for (const key of ["d", "e"]) {
      requests.want([wish(key)]);
      clock.now += 906;
      requests.receive({ id: sent.at(-1).id, ms: 900 }, [new Uint8Array(262144)]);
    }
    assert.equal(requests.line.speed, 262144 / 5);
  },

  cells_that_no_tile_has_are_refused() {
    const image = { kind: "image", shape: [1000, 3000], tile: 256 };
    assert.equal(viewer.tileNbytes(image, [256, 10]), 10240);
    assert.equal(viewer.tileNbytes({ ...image, kind: "colour" }, [256, 10]), 10240);
    assert.equal(viewer.tileNbytes({ kind: "line", shape: [9], tile: 4096 }, [9]), 72);
    const bad = [null, 7, [], [1], [257, 1], [0, 1], [1.5, 1], [-1, 1], ["1", 1], [1, 1, 1]];
    for (const cells of bad) assert.throws(() => viewer.tileNbytes(image, cells), /no tile has/);
  },

  the_cache_keeps_what_was_used_last_within_its_bytes() {
    const cache = new viewer.Cache(100);
    const tile = () => ({ values: new Uint8Array(40) });
    cache.put("a", tile());
    cache.put("b", tile());
    cache.get("a");
    cache.put("c", tile());
    assert.deepEqual([...cache.tiles.keys()], ["a", "c"]);
    assert.equal(cache.nbytes, 80);
    cache.put("c", { values: new Uint8Array(10) });
    assert.equal(cache.nbytes, 50);
    cache.put("large", { values: new Uint8Array(1000) });
    assert.deepEqual([...cache.tiles.keys()], ["large"]);
  },

  percentiles_are_numpys() {
    assert.deepEqual(
      viewer.percentiles([4, NaN, 1, Infinity, 2], [0, 25, 50, 100]), [1, 1.5, 2, 4],
    );
    assert.equal(viewer.percentiles([NaN, -Infinity], [50]), null);
  },

  limits_leave_extremes_out_and_serve_every_scale() {
    const values = Array.from({ length: 1001 }, (_, i) => (i === 1000 ? 1e9 : i));
    assert.deepEqual(viewer.automaticLimits(values, "linear"), [5, 995]);
    assert.ok(viewer.automaticLimits([-5, 0, 1, 10], "log")[0] >= 1);
    assert.deepEqual(viewer.automaticLimits([-1, 0], "log"), [1, 10]);
    assert.deepEqual(viewer.automaticLimits([3, 3], "linear"), [3, 3]);
    assert.deepEqual(viewer.automaticLimits([], "linear"), [0, 1]);
    assert.deepEqual(viewer.automaticLimits([-1, 1, 9], "log", [0, 100]), [1, 9]);
  },

  colours_go_from_limit_to_limit_and_nan_has_its_own() {
    for (const [offset, unit] of [[0, 1], [1e9, 1], [0, 2 ** 900]]) {
      const linear = viewer.colouring(
        { offset, unit }, [10 * unit + offset, 20 * unit + offset], "linear",
      );
      const found = [9, 10, 15, 20, 21, NaN, Infinity, -Infinity].map(
        (value) => viewer.paletteIndex(value, linear)
      );
      assert.deepEqual(found, [1, 1, 128, 255, 255, 0, 255, 1], `${offset} ${unit}`);
    }
    const plain = { offset: 0, unit: 1 };
    const log = viewer.colouring(plain, [1, 100], "log");
    assert.deepEqual(
      [-1, 0, 1, 10, 100].map((value) => viewer.paletteIndex(value, log)), [1, 1, 1, 128, 255],
    );
    const symlog = viewer.colouring(plain, [-100, 100], "symlog");
    assert.deepEqual(
      [-100, 0, 100].map((value) => viewer.paletteIndex(value, symlog)), [1, 128, 255],
    );
    assert.ok(viewer.paletteIndex(10, symlog) > 180);
    const one = viewer.colouring(plain, [3, 3], "linear");
    assert.deepEqual(
      [2, 3, 4, NaN].map((value) => viewer.paletteIndex(value, one)), [1, 128, 255, 0],
    );
  },

  limits_far_from_a_tiles_numbers_colour_it_and_overflow_nothing() {
    const cases = [
      [2 ** -133, [-1, 1], "linear", [1, -1], [128, 128]],
      [2 ** -1000, [-1e300, 3e300], "linear", [1, -1], [65, 65]],
      [2 ** 996, [1e-300, 1e300], "log", [1, 2 ** -40], [255, 250]],
      [2 ** 996, [0, 1e-20], "symlog", [1, 0, -1], [255, 1, 1]],
      [2 ** -1000, [1, 100], "log", [1], [1]],
    ];
    for (const [unit, limits, scale, values, indices] of cases) {
      const how = viewer.colouring({ offset: 0, unit }, limits, scale);
      for (const number of [how.low, how.high, how.linear]) {
        assert.ok(Number.isFinite(Math.fround(number)), `${unit} ${scale} ${number}`);
      }
      assert.ok(Math.fround(how.linear) > 0 || scale === "linear");
      assert.deepEqual(values.map((value) => viewer.paletteIndex(value, how)), indices);
    }
  },

  a_line_of_small_numbers_has_the_symlog_scale() {
    const [large, small] = [1, 1e-100].map((unit) => {
      const how = viewer.colouring(
        { offset: 0, unit: 1 }, [-unit, unit], "symlog", Number.MIN_VALUE,
      );
      return [0.01, 0.1, 1].map((part) => viewer.onScale(part * unit, how) / how.high);
    });
    large.forEach((position, i) => assert.ok(Math.abs(position - small[i]) < 1e-9));
  },

  on_a_log_scale_numbers_that_underflow_are_asked_for_as_logarithms() {
    const info = { kind: "image", shape: [1, 4] };
    const plain = {
      cells: [1, 4], values: Float32Array.of(1, 0, 0, -2), offset: 0, unit: 1,
      held_from: 2 ** -126,
    };
    const output = outputOf([{ info, tile: plain }], { scale: "linear" });
    Object.assign(output, { requests: requestsOf().requests, root: { dataset: {} } });
    output.render = output.tellTile = () => {};
    const [panel] = output.panels;
    const wished = () => output.tileWish(panel, [0, 0], [0, 0]);
    assert.deepEqual(wished(), []);
    output.state.scale = "log";
    assert.deepEqual(output.limits, [1, 1]);
    const [{ content, done }] = wished();
    assert.equal(content.logs, true);
    const bytes = new Uint8Array(Float32Array.of(0, -230.2585, -Infinity, -Infinity).buffer);
    done({ cells: [1, 4], offset: 0, unit: 1 }, [bytes], 0);
    assert.deepEqual(wished(), []);
    const tile = output.tileOf(output.overviewKey(panel));
    const values = viewer.trueValues(tile);
    assert.ok(Math.abs(values[1] / 1e-100 - 1) < 1e-4);
    assert.deepEqual([values[0], values[2], values[3]], [1, 0, -2]);
    assert.ok(output.limits[0] < 0.01); // a percentile of both
    const how = viewer.colouring(tile, [1e-200, 1], "log");
    const found = [...tile.values, NaN].map((value) => viewer.paletteIndex(value, how));
    assert.deepEqual(found, [255, 128, 1, 1, 0]);
    output.state.scale = "linear";
    assert.equal(output.tileOf(output.overviewKey(panel)).plain, undefined);
    panel.revision += 1; // the plain one comes first
    assert.equal(wished()[0].content.logs, undefined);
  },

  small_values_far_from_a_tiles_offset_are_those_of_its_logarithms() {
    const values = [1 - 1e-9, 1e-3, 1e-9, 1e-13, 0, -2, NaN];
    const plain = {
      values: Float32Array.from(values, (value) => value - 1), offset: 1, unit: 1,
      held_from: 2 ** -16,
    };
    assert.deepEqual(Array.from(viewer.trueValues(plain)).slice(2, 5), [0, 0, 0]);
    const tile = {
      values: Float32Array.from(values, (value) => value < 0 ? -Infinity : Math.log(value)),
      offset: 0, unit: 1, plain,
    };
    const found = viewer.trueValues(tile);
    values.slice(0, 5).forEach((value, i) => (
      assert.ok(Math.abs(found[i] - value) <= 2e-4 * value, `${value} ${found[i]}`)
    ));
    assert.equal(found[0], viewer.valueAt(plain, 0));
    assert.deepEqual(Array.from(found).slice(4), [0, -2, NaN]);
  },

  limits_that_nobody_chose_stay_while_the_index_and_the_contents_change() {
    const info = { kind: "image", shape: [1, 2], leading: [3] };
    const output = outputOf([{ info }, { info }], { index: [0], scale: "log" });
    const put = (number, values, more = {}) => output.cache.put(
      output.overviewKey(output.panels[number]) + (more.plain ? "/logs" : ""),
      { values: Float32Array.from(values), offset: 0, unit: 1, revision: 0, ...more },
    );
    // One of small numbers, which come as logarithms, too.
    const putSmall = (number, low, high, revision = 0) => {
      const plain = {
        values: Float32Array.of(0, high), offset: 0, unit: 1, held_from: 2 ** -126,
      };
      put(number, plain.values, { ...plain, revision });
      put(number, [Math.log(low), Math.log(high)], { revision, plain });
    };
    const near = ([low, high]) => [low, high].map((limit) => Number(limit.toPrecision(1)));
    put(0, [1, 2]);
    assert.deepEqual(near(output.limits), [1, 2]);
    put(1, [4, 8]);
    assert.deepEqual(near(output.limits), [1, 8]);
    output.state.index = [1];
    for (const number of [0, 1]) putSmall(number, 1e-200, 1);
    assert.deepEqual(near(output.limits), [1, 8]);
    output.state.index = [0];
    putSmall(0, 1e-200, 1, 1); // other contents
    assert.deepEqual(near(output.limits), [1, 8]);
    output.automatic = null;
    output.state.index = [2];
    put(0, [1, 2]);
    assert.deepEqual(near(output.limits), [1, 2]);
    output.state.index = [1]; // where the other tensor is here, too
    assert.ok(output.limits[0] < 1e-150);
  },

  limits_without_the_logarithms_that_they_need_are_found_anew_at_the_next_index() {
    const info = { kind: "line", shape: [1], leading: [3] };
    const output = outputOf([{ info }], { index: [0], scale: "log" });
    const [panel] = output.panels;
    const plain = {
      cells: [1], values: Float32Array.of(1e-45, 1), offset: 0, unit: 1, revision: 0,
      held_from: 2 ** -126,
    };
    const put = (low) => {
      const key = output.overviewKey(panel);
      const values = Float32Array.of(Math.log(low), 0);
      output.cache.put(key, plain);
      if (low) output.cache.put(`${key}/logs`, { ...plain, held_from: 0, values, plain });
    };
    put(0); // its logarithms have not come yet
    assert.ok(output.limits[0] > 1e-46);
    output.state.index = [1];
    assert.ok(output.limits[0] > 1e-46); // nothing of this one is here
    put(0);
    assert.ok(output.limits[0] > 1e-46);
    put(1e-60);
    const { limits } = output;
    assert.ok(limits[0] < 1e-59, String(limits));
    output.state.index = [2];
    put(1e-90);
    assert.deepEqual(output.limits, limits);
    // Another scale has other ones, also where the kernel says it.
    output.model = { get: () => ({ ...output.state, scale: "linear" }) };
    output.render = () => {};
    output.stateChanged();
    assert.ok(output.limits[0] > 1e-46, String(output.limits));
  },

  tiles_beside_each_other_share_no_pixel_and_leave_none() {
    const tile = { cells: [10, 10] };
    const edges = [-3.2, 17.49, 60.5, 100.1];
    const pixels = [];
    for (let i = 0; i < 3; i++) {
      const { clip } = viewer.placed(tile, [edges[i], edges[i + 1], 0, 20], [0, 90, 0, 20]);
      for (let x = clip[0]; x < clip[1]; x++) pixels.push(x);
    }
    assert.deepEqual(pixels, Array.from({ length: 90 }, (_, i) => i));
    assert.equal(viewer.placed(tile, [100, 120, 0, 20], [0, 90, 0, 20]), null);
  },

  pixels_of_cells_are_kept_on_the_cpu_until_the_colours_change() {
    const cpu = new viewer.Canvas2dRenderer();
    const made = [];
    const table = cpu.valueTable;
    cpu.valueTable = function (tile, ...colours) {
      made.push(tile);
      return table.call(this, tile, ...colours);
    };
    const shown = [];
    const context = {
      canvas: { width: 2, height: 1 },
      clearRect() {},
      createImageData: (width, height) => ({ data: new Uint8ClampedArray(4 * width * height) }),
      putImageData: ({ data }) => shown.push([data[0], data[4]]),
    };
    const palette = Uint8Array.from({ length: 1024 }, (_, i) => i >> 2);
    const other = palette.map((level) => 255 - level);
    const one = { cells: [1, 2], values: Float32Array.of(0, 1), offset: 0, unit: 1 };
    const placements = [viewer.placed(one, [0, 2, 0, 1], [0, 2, 0, 1])];
    const draw = (limits, scale, colours) =>
      cpu.draw(context, placements, { limits, scale, palette: colours });
    for (let times = 0; times < 3; times++) draw([0, 1], "linear", palette);
    assert.equal(made.length, 1);
    draw([0, 2], "linear", palette);
    draw([0, 2], "symlog", palette);
    draw([0, 2], "symlog", other);
    assert.equal(made.length, 4);
    assert.deepEqual(shown.slice(0, 4), [[1, 255], [1, 255], [1, 255], [1, 128]]);
    assert.deepEqual(shown[5], shown[4].map((level) => 255 - level));
  },

  a_pixel_shows_the_cell_under_its_middle() {
    const { clip, first, step } = viewer.placed(
      { cells: [4, 4] }, [-100, 300, 0, 400], [0, 400, 0, 400],
    );
    assert.deepEqual(clip, [0, 300, 0, 400]);
    assert.equal(Math.floor(first[0]), 1);
    assert.equal(Math.floor(first[0] + step[0] * 99), 1);
    assert.equal(Math.floor(first[0] + step[0] * 100), 2);
  },

  numbers_are_short_and_read_back() {
    const texts = [2097152, 0, -0.5, 6.08e-6, 1e300, NaN, -Infinity].map(viewer.numberText);
    assert.deepEqual(texts, ["2097152", "0", "-0.5", "6.08e-6", "1e+300", "NaN", "-inf"]);
    // As many digits as tell the ends of a range apart.
    for (
      const [range, expected] of [
        [[1700000011.9975, 1700002387.5025], ["1700000012", "1700002388"]],
        [[1e12 + 24, 1e12 + 4775.5], ["1000000000024", "1000000004776"]],
        [[1 - 1e-9, 1 - 1e-11], ["0.999999999", "0.99999999999"]],
        [[300, 300 + 2 ** -44], ["300", "300.00000000000006"]],
        [[0.1, 0.30000000000000004], ["0.1", "0.3"]],
        [[-1.7e308, 1.7e308], ["-1.7e+308", "1.7e+308"]],
        [[1e12 + 5, 1e12 + 5], ["1000000000005", "1000000000005"]],
      ]
    ) {
      assert.deepEqual(viewer.rangeTexts(range), expected);
      assert.ok(viewer.histogramText({ counts: [1], range }).endsWith(expected.join(" to ")));
    }
  },

  npy_files_are_numpys() {
    const files = [
      viewer.npyFile(Float64Array.of(1, NaN, -2, 3.5, 5, 6), [2, 3]),
      viewer.npyFile(Uint8Array.of(1, 2, 3, 255), [1, 1, 4]),
    ];
    assert.deepEqual(files.map(({ length }) => length % 64), [48, 4]);
    for (const file of files) {
      process.stdout.write(`npy ${Buffer.from(file).toString("base64")}\n`);
    }
  },

  what_is_saved_are_pairs_of_a_line_colours_of_a_picture_and_values_of_an_image() {
    const saved = (panels) => {
      const output = outputOf(panels);
      return output.panels.map(({ info, placements, canvas }) => {
        const { values, shape } = viewer.shownCells(info.kind, placements, canvas);
        return [values.constructor.name, shape, Array.from(values)];
      });
    };
    const line = { info: { kind: "line", shape: [4] }, tile: {
      cells: [4], values: Float32Array.of(0, 1, 2, 3, NaN, NaN, 6, 7), unit: 2, offset: 1,
    } };
    const pairs = [1, 3, 5, 7, NaN, NaN, 13, 15];
    const twice = [0, 0, 1, 1, 2, 2, 3, 3].flatMap((i) => pairs.slice(2 * i, 2 * i + 2));
    assert.deepEqual(saved([line]), [["Float64Array", [8, 2], twice]]);
    const image = { info: { kind: "image", shape: [1, 2] }, tile: {
      cells: [1, 2], values: Float32Array.of(5, 6), unit: 1, offset: 0,
    } };
    const colours = { info: { kind: "colour", shape: [1, 2] }, tile: {
      cells: [1, 2], values: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), isPicture: true,
    } };
    const [of_image, of_colours] = saved([image, colours]);
    const rows = Array(4).fill([5, 5, 5, 5, 6, 6, 6, 6]).flat();
    assert.deepEqual(of_image, ["Float64Array", [4, 8], rows]);
    assert.deepEqual(of_colours.slice(0, 2), ["Uint8Array", [4, 8, 4]]);
    assert.deepEqual(of_colours[2].slice(12, 20), [1, 2, 3, 4, 5, 6, 7, 8]);
    const nothing = saved([{ info: line.info }, { info: colours.info }]);
    assert.deepEqual(nothing[0].slice(1), [[8, 2], Array(16).fill(NaN)]);
    assert.deepEqual(nothing[1].slice(1), [[4, 8, 4], Array(128).fill(0)]);
  },

  the_saved_pairs_of_a_line_have_every_spike() {
    // Of each tile [edges in pixels, pairs]: where its cells are on a canvas of `width` pixels.
    const saved = (width, ...tiles) => {
      const placements = tiles.map(([edges, pairs]) => {
        const tile = {
          cells: [pairs.length], values: Float32Array.from(pairs.flat()), offset: 0, unit: 1,
        };
        const all = [...edges, 0, 9];
        const within = [0, width, 0, 9];
        return {
          ...viewer.placed({ ...tile, cells: [1, pairs.length] }, all, within), tile, edges: all,
        };
      });
      const { values, shape } = viewer.shownCells("line", placements, { width, height: 9 });
      assert.deepEqual(shape, [width, 2]);
      return Array.from({ length: width }, (_, x) => Array.from(values.slice(2 * x, 2 * x + 2)));
    };
    const spiked = (count, at) => (
      Array.from({ length: count }, (_, i) => (i === at ? [-3, 7] : [0, 0]))
    );
    for (let spike = 0; spike < 40; spike++) {
      const pairs = spiked(40, spike);
      assert.deepEqual(saved(10, [[0, 10], pairs]), spiked(10, Math.floor(spike / 4)));
      // Two tiles that part at 4.7 pixels.
      const two = saved(10, [[0, 4.7], pairs.slice(0, 19)], [[4.7, 10], pairs.slice(19)]);
      const found = two.filter(([low, high]) => low === -3 && high === 7);
      assert.ok(found.length === 1 || found.length === 2, String(spike));
      assert.equal(two.flat().some(Number.isNaN), false);
    }
    const nan = [NaN, NaN];
    assert.deepEqual(saved(3, [[0, 2], [nan, [5, 6], nan, nan]]), [[5, 6], nan, nan]);
    assert.deepEqual(saved(1, [[0, 1], [[Infinity, Infinity], [0, 2]]]), [[0, Infinity]]);
    // The column in which two cells meet has both.
    assert.deepEqual(saved(3, [[0, 3], [[1, 1], [2, 2]]]), [[1, 1], [1, 2], [2, 2]]);
  },

  a_value_between_gaps_is_seen_on_a_line_and_on_a_profile() {
    globalThis.devicePixelRatio = 1;
    const drawn = (kind, shape, cells, values, state = {}) => {
      const tile = { cells, values: Float32Array.from(values) };
      const output = outputOf([{ info: { kind, shape }, tile }], state);
      output.palettes = {};
      const { pieces, context } = penOf(8, 4);
      output.ink = () => "black";
      if (kind === "line") {
        output.panels[0].context = context;
        output.drawMarks = () => {};
        output.drawPanel(output.panels[0]);
      } else {
        output.chart = {};
        output.profileChart = { width: 8, clientWidth: 8, getContext: () => context };
        output.drawCharts();
      }
      return pieces;
    };
    const pair = (value) => [value, value];
    const ofLine = (values) => drawn("line", [values.length], [values.length], values.flatMap(pair));
    const middles = (pieces) => pieces.map(([x0, , x1]) => (x0 + x1) / 2);
    assert.deepEqual(middles(ofLine([5])), [4]);
    assert.deepEqual(middles(ofLine([1, NaN, 2, NaN])), [1, 5]);
    assert.deepEqual(middles(ofLine([NaN, NaN, NaN, 2])), [7]);
    assert.equal(ofLine([1, 2]).length, 1);
    const profile = [0, 0.5, 1, 0.5];
    const ofProfile = (values) => drawn(
      "image", [1, values.length], [1, values.length], values,
      { profile, histogram: false, window: [0, 1, 0, 1] },
    );
    assert.equal(ofProfile([NaN, NaN, 3, NaN, NaN, NaN, 4, NaN]).length, 2);
    assert.equal(ofProfile(Array(8).fill(NaN)).length, 0);
  },

  a_profile_of_the_whole_width_has_each_pixel_of_it() {
    const values = Float32Array.from({ length: 8 }, (_, i) => i);
    const info = { kind: "image", shape: [1, 8] };
    const output = outputOf([{ info, tile: { cells: [1, 8], values } }]);
    const [panel] = output.panels;
    output.update = (changes) => Object.assign(output.state, changes);
    const profile = (window, width) => {
      Object.assign(output.state, { window, profile: null });
      panel.canvas.width = width;
      panel.placements = output.placements(panel);
      output.toggleProfile();
      return output.profileOf(panel);
    };
    const all = Array.from(values);
    assert.deepEqual(profile([0, 1, 0, 1], 8), all);
    assert.deepEqual(profile([0, 1, 0, 1], 16), all.flatMap((value) => [value, value]));
    assert.deepEqual(profile([0.25, 0.75, 0, 1], 4), [2, 3, 4, 5]);
    // The image's edges lie within the canvas, and within its pixels.
    for (const width of [20, 21, 22, 23]) {
      const found = profile([-0.31, 1.32, 0, 1], width);
      assert.deepEqual([found[0], found.at(-1)], [0, 7], String(width));
    }
    output.state.profile = [1, 0.5, 0, 0.5];
    output.state.window = [0, 1, 0, 1];
    panel.canvas.width = 8;
    panel.placements = output.placements(panel);
    assert.deepEqual(output.profileOf(panel), all.reverse());
  },

  a_line_goes_on_over_the_borders_between_tiles() {
    globalThis.devicePixelRatio = 1;
    const info = { kind: "line", shape: [12], tile: 4, levels: [3], overview: [2] };
    // The ends of each line that is drawn, for values of three tiles; null for one that is not here.
    const drawn = (tiles, { overview, window = null, count = 3 } = {}) => {
      const output = outputOf([{ info }], { window });
      const [panel] = output.panels;
      const put = (levels, number, values) => output.cache.put(
        viewer.tileKey(0, [], levels, [number]),
        {
          cells: [values.length], offset: 0, unit: 1, revision: 0,
          values: Float32Array.from(values.flatMap((value) => [value, value])),
        },
      );
      tiles.forEach((values, number) => values && put([0], number, values));
      if (overview) put([2], 0, overview);
      const { pieces, context } = penOf(120, 40);
      Object.assign(panel, { context, canvas: { width: 120, height: 40 } });
      Object.assign(output, { palettes: {}, ink: () => "black", drawMarks() {} });
      output.drawPanel(panel);
      assert.equal(panel.placements.length, count);
      const lines = [];
      for (const [x0, y0, x1, y1] of pieces) {
        const before = lines.at(-1);
        if (before?.[1] === x0 && before[2] === y0) [before[1], before[2]] = [x1, y1];
        else lines.push([x0, x1, y1]);
      }
      return lines.map(([from, to]) => [from, to].map((x) => Math.round(1e3 * x) / 1e3));
    };
    const whole = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]];
    assert.deepEqual(drawn(whole), [[5, 115]]);
    assert.deepEqual(drawn([[1, 2, NaN, 4], ...whole.slice(1)]), [[5, 15], [35, 115]]);
    assert.deepEqual(drawn([[1, 2, 3, NaN], ...whole.slice(1)]), [[5, 25], [45, 115]]);
    // One value beside the border is a dot, and two about it are a line.
    const [none, dot] = [[NaN, NaN, NaN, NaN], [5, NaN, NaN, NaN]];
    assert.deepEqual(drawn([none, dot, none]), [[44, 46]]);
    assert.deepEqual(drawn([[NaN, NaN, NaN, 4], dot, none]), [[35, 45]]);
    // Coarse cells stand for a tile, or there is none.
    const overview = [2, 6, 10];
    assert.deepEqual(drawn([whole[0], null, whole[2]], { overview }), [[5, 115]]);
    assert.deepEqual(drawn([whole[0], null, null], { overview }), [[5, 100]]);
    assert.deepEqual(drawn([null, whole[1], null], { overview: [NaN, 6, 10] }), [[45, 100]]);
    // A cell that reaches beyond the tile is drawn beside the border.
    assert.deepEqual(drawn([null, ...whole.slice(1)], { overview: [6] }), [[40, 115]]);
    assert.deepEqual(
      drawn([whole[0], null, whole[2]], { count: 2 }), [[5, 35], [85, 115]],
    );
    // From within a tile into the next one: a line from edge to edge.
    const [line, ...others] = drawn(whole, { window: [2 / 12, 7 / 12, 0, 1], count: 2 });
    assert.ok(line[0] <= 0 && line[1] >= 120 && !others.length, String(line));
    // A window that ends or begins on a border, or hardly behind it: the line goes to its edge.
    for (const [low, high, count] of [[4, 8, 3], [4 - 1e-3, 8 + 1e-3, 3], [1, 4, 2], [8, 11, 2]]) {
      const lines = drawn(whole, { window: [low / 12, high / 12, 0, 1], count });
      assert.ok(lines.length === 1 && lines[0][0] <= 0 && lines[0][1] >= 120, String(lines));
    }
  },

  infinities_have_the_colours_of_the_ends_whatever_the_limits() {
    const how = viewer.colouring({ offset: 0, unit: 1e-300 }, [-1.7e308, 1.7e308], "linear");
    assert.deepEqual(
      [Infinity, -Infinity, NaN, 1].map((value) => viewer.paletteIndex(value, how)), [255, 1, 0, 128],
    );
  },

  values_far_from_a_tiles_offset_are_coloured_on_the_scale() {
    const tile = { offset: 1e6, unit: 1 };
    assert.equal(viewer.colouring(tile, [20, 800], "log").scale, 1);
    assert.equal(viewer.colouring(tile, [-300, 300], "symlog").scale, 2);
    assert.equal(viewer.colouring(tile, [1e6 - 1e-3, 1e6 + 1e-3], "log").scale, 0);
  },

  a_saved_png_does_not_have_the_pointer() {
    const drawn = [];
    const all = { append() {}, toBlob() {}, getContext: () => ({ drawImage() {} }) };
    globalThis.document = { createElement: () => all };
    const info = { kind: "image", shape: [1, 1] };
    const output = outputOf([{ info }, { info }]);
    output.pointer = { number: 0, at: [0.5, 0.5] };
    output.drawPanel = ({ number }) => drawn.push([number, output.pointer]);
    output.render = () => drawn.push("again");
    output.savePng();
    delete globalThis.document;
    assert.deepEqual(drawn, [[0, null], [1, null], "again"]);
    assert.deepEqual(output.pointer, { number: 0, at: [0.5, 0.5] });
  },

  the_pointer_names_the_element_that_is_drawn_under_it() {
    globalThis.devicePixelRatio = 1;
    const [rows, columns] = [64, 96];
    const values = Float32Array.from({ length: rows * columns }, (_, i) => i);
    const info = { kind: "image", shape: [rows, columns] };
    for (const [width, height, x0, y0] of [[51, 33, 10, 20], [50, 32, 10.4, 20.7]]) {
      const output = outputOf([{ info, tile: { cells: [rows, columns], values } }]);
      const [panel] = output.panels;
      const box = { left: x0, right: x0 + width + 2, top: y0, bottom: y0 + height + 2 };
      panel.canvas = { width, height, clientLeft: 1, clientTop: 1, getBoundingClientRect: () => (
        { ...box, width: width + 2, height: height + 2 }
      ) };
      output.look = (window) => (output.state.window = viewer.kept(window, info.shape));
      output.showElements();
      panel.placements = output.placements(panel);
      for (let y = 0; y < height; y++) {
        for (let x = 0; x < width; x++) {
          const [clientX, clientY] = [Math.round(x0 + 1) + x, Math.round(y0 + 1) + y];
          const at = output.fraction({ target: panel.canvas, clientX, clientY });
          output.pointer = { number: 0, at };
          const [row, column] = output.pointed().at;
          assert.equal(row * columns + column, output.shownAt(panel, x, y), `${width} ${x} ${y}`);
          assert.deepEqual(output.pixel(panel.canvas, ...at).map(Math.floor), [x, y]);
        }
      }
    }
  },

  a_pixel_on_the_border_of_elements_shows_the_one_that_the_pointer_names() {
    // Of the last two, middles of pixels are nearly on the image's edges.
    for (
      const [rows, columns, width, height, window = null] of [
        [32, 25, 75, 96], [20, 20, 46, 46], [30, 40, 100, 58], [50, 50, 75, 75], [24, 32, 60, 45],
        [1, 4, 10, 5, [0.05 - 1e-5, 1.05 - 1e-5, 0, 1]], [1, 4, 10, 5, [-0.05 - 1e-5, 0.95, 0, 1]],
      ]
    ) {
      const info = { kind: "image", shape: [rows, columns], tile: 10, overview: [3, 3] };
      const output = outputOf([{ info }], { window });
      const [panel] = output.panels;
      panel.canvas = {
        width, height, clientLeft: 0, clientTop: 0,
        getBoundingClientRect: () => ({ left: 0, right: width, top: 0, bottom: height }),
      };
      for (const place of viewer.tilesIn(output.infos[0], [0, 1, 0, 1], [0, 0])) {
        const [[top, bottom], [left, right]] = viewer.tileBox(output.infos[0], [0, 0], place);
        const cells = [bottom - top, right - left];
        const values = Float32Array.from(
          { length: cells[0] * cells[1] },
          (_, i) => (top + Math.floor(i / cells[1])) * columns + left + (i % cells[1]),
        );
        output.cache.put(
          viewer.tileKey(0, [], [0, 0], place), { cells, values, offset: 0, unit: 1, revision: 0 },
        );
      }
      globalThis.devicePixelRatio = 1;
      panel.placements = output.placements(panel);
      const { values } = viewer.shownCells("image", panel.placements, panel.canvas);
      values.forEach((value, pixel) => {
        const [clientX, clientY] = [(pixel % width) + 0.5, Math.floor(pixel / width) + 0.5];
        const at = output.fraction({ target: panel.canvas, clientX, clientY });
        output.pointer = { number: 0, at };
        const place = output.pointed()?.at;
        assert.equal(place ? place[0] * columns + place[1] : NaN, value, `${columns} ${pixel}`);
      });
    }
  },

  while_it_plays_each_panel_is_followed_and_read_anew_alone() {
    const image = { info: { kind: "image", shape: [1, 1] }, tile: {
      cells: [1, 1], values: Float32Array.of(0),
    } };
    const output = outputOf([image, image, image], { playing: true });
    const { sent, requests } = requestsOf();
    for (let times = 0; times < 8; times++) requests.line.note(100, 1, 0);
    Object.assign(output, { requests, root: { dataset: {} }, isVisible: true, isSettled: true });
    output.render = () => output.plan();
    // Of each panel in turn the last step; its tiles of that step are then asked for.
    const answered = (steps) => {
      const asked = [];
      for (const panel of output.panels) panel.askedAt = -1e6;
      output.plan();
      while (sent.length) {
        const { id, op, panel } = sent.shift();
        asked.push(`${op} ${panel}`);
        const data = new Uint8Array(4);
        const reply = op === "step" ? { step: steps[panel] } : { cells: [1, 1], offset: 0, unit: 1 };
        requests.receive({ id, ...reply }, op === "step" ? [] : [data]);
      }
      return asked.sort();
    };
    output.tellTile = () => {};
    const all = ["step 0", "step 1", "step 2"];
    assert.deepEqual(answered([1, null, 7]), [...all, "tile 0", "tile 1", "tile 2"]);
    assert.deepEqual(answered([1, null, 7]), [...all, "tile 1"]);
    assert.deepEqual(answered([1, null, 8]), [...all, "tile 1", "tile 2"]);
    assert.deepEqual(output.panels.map(({ step }) => step), [1, undefined, 8]);
  },

  what_a_panel_could_not_read_is_said_and_not_drawn_whatever_the_others_read() {
    globalThis[Symbol.for("gpufetch.viewer.renderer")] = { isLost: false, draw() {} };
    const image = (name) => ({ info: { kind: "image", shape: [1, 1], leading: [2], name } });
    const output = outputOf([image("u"), image("v")], { index: [0], window: [0, 1, 0, 1] });
    const { sent, requests } = requestsOf();
    for (let times = 0; times < 8; times++) requests.line.note(100, 1, 0);
    Object.assign(
      output, { requests, root: { dataset: {} }, isVisible: true, isSettled: true, palettes: {} },
    );
    output.tellTile = output.drawMarks = output.render = () => {};
    // What is said and drawn once u's tiles are refused with `error`, and v's come.
    const shown = (error, index = output.state.index) => {
      output.state = { ...output.state, index };
      output.plan();
      while (sent.length) {
        const { id, panel } = sent.shift();
        const reply = panel === 0 && error ? { error } : { cells: [1, 1], offset: 0, unit: 1 };
        requests.receive({ id, ...reply }, reply.error ? [] : [new Uint8Array(4)]);
      }
      output.plan();
      for (const panel of output.panels) output.drawPanel(panel);
      return [output.alertText(), ...output.panels.map(({ placements }) => placements.length)];
    };
    assert.deepEqual(shown(""), ["", 1, 1]);
    assert.deepEqual(shown("u is gone", [1]), ["u: u is gone", 0, 1]);
    assert.deepEqual(shown(""), ["u: u is gone", 0, 1]); // not asked for again
    assert.deepEqual(shown("u is gone", [0]), ["", 1, 1]); // which is here
    assert.deepEqual(shown("u is gone", [1]), ["u: u is gone", 0, 1]);
    assert.deepEqual(shown("", [0]), ["", 1, 1]);
    assert.deepEqual(shown("", [1]), ["", 1, 1]); // asked for again
    output.renew();
    assert.deepEqual(shown("u is gone"), ["u: u is gone", 0, 1]);
    output.renew();
    assert.deepEqual(shown(""), ["", 1, 1]);
    output.renew(output.panels.slice(0, 1));
    assert.deepEqual(shown("u has changed"), ["u: u has changed", 0, 1]);
    const values = viewer.shownCells("image", output.panels[0].placements, { width: 1, height: 1 });
    assert.deepEqual(values.values, Float64Array.of(NaN));
  },

  the_note_counts_what_all_tiles_of_a_level_leave_out_for_each_panel() {
    const tile = (levels, note, left_out) => ({ tile: { levels, note, left_out } });
    const overview = tile([2, 2], "mean of 4 × 4", { NaN: 9000, "-inf": 1 });
    const fine = [
      tile([1, 1], "mean of 2 × 2", { NaN: 1500 }), tile([1, 1], "mean of 2.1 × 2", {}),
      tile([1, 1], "mean of 2 × 2", { NaN: 500, "+inf": 1 }),
    ];
    assert.equal(viewer.noteOf([]), "");
    assert.equal(viewer.noteOf([overview, overview]), "mean of 4 × 4, 9,000 NaN, 1 -inf");
    assert.equal(viewer.noteOf([overview, fine[0]]), "mean of 2 × 2"); // which is in both
    assert.equal(viewer.noteOf(fine), "mean of 2 × 2, 2,000 NaN, 1 +inf");
    assert.equal(viewer.noteOf([tile([0, 0], "", {})]), "");
    const info = { kind: "image", shape: [1, 1] };
    const output = outputOf([{ info: { ...info, name: "u" } }, { info }]);
    output.panels[0].placements = fine;
    assert.deepEqual(output.noteTexts(), ["u: mean of 2 × 2, 2,000 NaN, 1 +inf", ""]);
    output.panels[1].placements = [overview];
    assert.equal(output.noteTexts()[1], "tensor 1: mean of 4 × 4, 9,000 NaN, 1 -inf");
    output.panels[1].placements = fine;
    assert.deepEqual(output.noteTexts(), ["mean of 2 × 2, 2,000 NaN, 1 +inf"]);
  },

  the_lower_limit_is_never_above_the_upper_one_and_limits_are_numbers() {
    assert.deepEqual(viewer.chosenLimits([null, null], [1, 9], "linear"), [1, 9]);
    assert.deepEqual(viewer.chosenLimits([20, null], [1, 9], "linear"), [20, 20]);
    assert.deepEqual(viewer.chosenLimits([null, -2], [1, 9], "linear"), [-2, -2]);
    assert.deepEqual(viewer.chosenLimits([null, -2], [1, 9], "log"), [1, 9]);
    const output = outputOf([{ info: { kind: "image", shape: [1, 1] } }], { limits: [5, 10] });
    Object.assign(output, { render() {}, save() {}, refusal: "" });
    output.model.set = () => {};
    output.setLimit(0, "90");
    assert.deepEqual(output.state.limits, [5, 10]);
    assert.match(output.refusal, /lower limit, 90, is above the upper one, 10/);
    output.setLimit(0, "7");
    assert.deepEqual([output.state.limits, output.refusal], [[7, 10], ""]);
    for (
      const settle of [
        () => output.automateLimits(), () => output.setLimit(1, ""),
        () => {
          output.model.get = () => ({ ...output.state, limits: [1, 10] });
          output.stateChanged();
        },
      ]
    ) {
      output.state.limits = [7, 10];
      for (const text of ["0,9", "1e999", "NaN", "ten"]) {
        output.setLimit(0, text);
        assert.match(output.refusal, new RegExp(`"${text}" is no finite number`));
      }
      assert.deepEqual(output.state.limits, [7, 10]);
      settle();
      assert.equal(output.refusal, "");
    }
    clearTimeout(output.saving);
  },

  what_the_kernel_repeats_undoes_no_use_of_the_viewer() {
    const output = outputOf([{ info: { kind: "image", shape: [1, 1] } }]);
    Object.assign(output, { render() {}, refusal: "" });
    output.model = { set: (_, state) => (output.told = state), get: () => output.told };
    const sent = [];
    output.model.save_changes = () => sent.push(JSON.stringify(output.told));
    const says = (state) => {
      output.told = JSON.parse(state);
      output.stateChanged();
      return output.state.cmap;
    };
    for (const cmap of ["gray", "magma"]) {
      output.update({ cmap });
      output.save();
    }
    output.update({ cmap: "viridis" });
    assert.deepEqual(sent.map(says), ["viridis", "viridis"]);
    assert.equal(output.told.cmap, "viridis"); // which is sent then
    assert.equal(says(JSON.stringify({ ...output.state, cmap: "hot" })), "hot"); // a program's
    output.save();
    assert.equal(says(sent[0]), "gray"); // and that is one, too
  },

  a_histogram_of_nothing_or_of_another_plane_takes_the_place_of_the_one_before() {
    const image = { info: { kind: "image", shape: [2, 2], leading: [2] } };
    const output = outputOf([image], { index: [0], histogram: true });
    const { calls, context } = contextOf(100, 50);
    const attributes = {};
    output.chart = {
      width: 100, clientWidth: 100,
      getContext: () => context,
      setAttribute: (name, value) => (attributes[name] = value),
    };
    output.profileChart = {};
    output.ink = () => "black";
    output.render = () => {};
    // What is drawn once the page has what it asks for, if that is to be answered.
    const shown = (counted, index = 0) => {
      output.state = { ...output.state, index: [index] };
      calls.length = 0;
      if (counted) {
        const [{ done }] = output.histogramWish();
        done(counted);
      }
      output.drawCharts();
      assert.equal(calls[0], "clearRect");
      return [attributes["aria-label"], calls.includes("fillRect"), calls.at(-1)];
    };
    const counts = { counts: [1, 2], range: [0, 4], sample: 1 };
    assert.deepEqual(shown(counts).slice(0, 2), ["histogram from 0 to 4", true]);
    const none = "no histogram: no element is finite";
    output.renew = () => (output.panels[0].revision += 1);
    output.renew();
    assert.ok(shown(null)[1]); // of older contents, for a moment
    assert.deepEqual(shown({ counts: null, range: null }), [none, false, none]);
    const one = "no histogram: one value: 7";
    output.renew();
    assert.deepEqual(shown({ counts: null, range: [7, 7] }), [one, false, one]);
    const nothing = ["", false, ""];
    assert.deepEqual(shown(null, 1), nothing);
    assert.deepEqual(shown(null, 0), [one, false, one]);
    assert.deepEqual(shown({ error: "TimeoutError" }, 1), nothing);
    assert.deepEqual(shown(null, 0), [one, false, one]);
    assert.deepEqual(shown(null, 1), nothing);
    output.renew();
    assert.deepEqual(shown({ error: "TimeoutError" }, 0), nothing);
  },
};

for (const [name, test] of Object.entries(TESTS)) {
  test();
  process.stdout.write(`${name}\n`);
}
