/* Decoding chunks of W8 of the shapes that are most frequent: values of 4 or 8 bytes, in rows of
 * whole strips of 32; predicted along rows, columns and planes, or some of them; without a base.
 * decode.cu is for all others, and open.cu tells which is which.
 *
 * A thread block decodes a run, as there. A warp unpacks a block, of which each lane gets a strip,
 * so that sums along a row are sums in the lane and one scan of the warp. By way of shared memory
 * the threads then take packs of 16 bytes below each other: a column of the run, or a segment of
 * one, is summed up in the same loop that stores the values. All of a run is decoded as if zeros
 * came before it; what comes before it is added at the end, when the run before is done. */
#include "backend/cuda/codec/restore_run.cuh"
#include "backend/cuda/codec/strip_columns.cuh"
#include "backend/cuda/codec/strip_rows.cuh"
#include "backend/cuda/launch.cuh"

namespace {

using namespace gpufi;

template <typename T> struct strips_shared {
  run_blocks blocks;
  row_fronts<T> rows;
  column_sums<T> columns;
};

template <typename T> constexpr size_t dynamic_nbytes() {
  return kStripsNbytes<T> > kSharedNbytes<T> ? kStripsNbytes<T> : kSharedNbytes<T>;
}

/* Chunks that take turns: so many that a run seldom waits for the one before. */
constexpr uint32_t kStripChunksAtOnce = 256;

/* Thread blocks that share a multiprocessor: bounds the registers. */
template <typename T> constexpr int kStripThreadBlocks = sizeof(T) == 8 ? 2 : 4;

/* The chunk of run `index` of the batch, of which it is run `*run`. */
__device__ inline uint32_t chunk_of(const strip_plan &plan, uint32_t index, uint32_t *run) {
  const uint32_t turn = divide(index, plan.turn_runs), in_turn = index - turn * plan.turn_runs.d;
  const bool is_last = (turn + 1) * plan.width > plan.chunk_count;
  const divisor &width = is_last ? plan.last_width : plan.turn_width;
  *run = divide(in_turn, width);
  return turn * plan.width + in_turn - *run * width.d;
}

/* All bytes of the run's blocks to shared memory, and to the chunk's checksum: each warp adds its
 * share by itself, which needs no registers and no barrier at the end. All threads. */
__device__ __forceinline__ void load_bytes(decode_state *state, uint32_t begin, uint32_t end,
                                           uint4 *to) {
  constexpr uint32_t kAhead = 4;
  const uint4 *const from = reinterpret_cast<const uint4 *>(state->chunk) + begin;
  const uint32_t count = end - begin;
  chunk_sum sum = {0, 0};
  for (uint32_t u = threadIdx.x; u < count; u += kAhead * kThreads) {
    uint4 units[kAhead];
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      if (u + k * kThreads < count) {
        units[k] = from[u + k * kThreads];
      }
    }
#pragma unroll
    for (uint32_t k = 0; k < kAhead; k++) {
      if (u + k * kThreads < count) {
        to[u + k * kThreads] = units[k];
        sum.add(2 * static_cast<uint64_t>(begin + u + k * kThreads), units[k]);
      }
    }
  }
  sum.plain = warp_add(sum.plain);
  sum.mixed = warp_add(sum.mixed);
  if (threadIdx.x % kWarp == 0 && (sum.plain != 0 || sum.mixed != 0)) {
    atomicAdd(&state->plain, static_cast<unsigned long long>(sum.plain));
    atomicAdd(&state->mixed, static_cast<unsigned long long>(sum.mixed));
  }
}

/* From the groups that unpack_block() gives to strips, by way of the warp's part of `packs`; with
 * the zeros of a sparse block, whose list is `count` values, filled in. All lanes. */
template <typename T>
__device__ __forceinline__ void groups_to_strips(const warp_mask *mask, uint32_t count,
                                                 value_pack<T> *packs, T r[kLaneGroups][kGroup]) {
  constexpr uint32_t kGroupPacks = kStripPacks<T> / kStripGroups;
  const int lane = threadIdx.x % kWarp;
  const uint32_t first = threadIdx.x - static_cast<uint32_t>(lane); /* of the warp's strips */
  if (mask != nullptr) {
    T *const list = reinterpret_cast<T *>(packs + first * kStripPitch<T>);
    store_list(r, count, lane, list);
    expand_values(*mask, list, lane, r);
    __syncwarp();
  }
#pragma unroll
  for (int j = 0; j < kLaneGroups; j++) {
    const uint32_t group = index_of(j, lane);
    value_pack<T> *const to = packs + (first + group / kStripGroups) * kStripPitch<T> +
                              group % kStripGroups * kGroupPacks;
    value_pack<T> own[kGroupPacks];
    memcpy(own, r[j], sizeof(own));
#pragma unroll
    for (uint32_t k = 0; k < kGroupPacks; k++) {
      to[k] = own[k];
    }
  }
  __syncwarp();
  load_strip(packs, threadIdx.x, r[0]);
}

/* The run's strips of residuals. Marks the chunk if anything is not right. All threads, which are
 * then synchronized. */
template <typename T>
__device__ __forceinline__ void unpack_run_strips(const decode_job &job, uint32_t chunk,
                                                  const run_place<T> &at, uint4 *run_bytes,
                                                  run_blocks *blocks, T r[kStripGroups][kGroup]) {
  constexpr uint32_t kUnitsMax = (kRunNbytes<T> + 15) / 16;
  decode_state *const state = &job.states[chunk];
  const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint32_t *const runs =
      job.run_offsets + static_cast<size_t>(chunk) * (job.grid.run_count + 1) + at.run;
  const uint32_t begin = runs[0], end = runs[1];
  bool good = end - begin <= kUnitsMax, in_groups = false;
  read_descriptors(job.grid, *state, at.run, 0, blocks);
  if (good) { /* meanwhile: open.cu has added up the same descriptors */
    load_bytes(state, begin, end, run_bytes);
  }
  __syncthreads();
  const uint32_t nbytes = blocks->offsets[GPUFI_RUN_BLOCKS];
  clear_groups(r);
  good = good && nbytes <= kRunNbytes<T>;
  warp_mask mask;
  uint32_t list_count = 0;
  const uint32_t past = static_cast<uint32_t>(warp) * GPUFI_BLOCK_VALUES;
  const block_fields block(blocks->descriptors[warp]);
  if (good) {
    const uint32_t *const words = reinterpret_cast<const uint32_t *>(run_bytes);
    const uint8_t *const bytes = reinterpret_cast<const uint8_t *>(run_bytes);
    if (threadIdx.x < 16 && nbytes + threadIdx.x < 16 * (end - begin)) { /* padding */
      good = bytes[nbytes + threadIdx.x] == 0;
    }
    if (past < at.count) {
      const uint32_t left = at.count - past;
      const uint32_t count = left < GPUFI_BLOCK_VALUES ? left : GPUFI_BLOCK_VALUES;
      bool unpacked;
      if (has_strips(block)) {
        unpacked = unpack_strips<T>(words, blocks->offsets[warp], block, count, lane, r);
      } else {
        in_groups = block.kind != GPUFI_BLOCK_ZERO || block.form != 0;
        unpacked = unpack_block<T>(words, blocks->offsets[warp], blocks->descriptors[warp], count,
                                   lane, &mask, &list_count, r);
      }
      good = __all_sync(kAllLanes, good && unpacked);
      in_groups = in_groups && good;
    }
  }
  if (__syncthreads_or(!good) != 0 && threadIdx.x == 0) {
    state->is_bad = 1;
  }
  if (in_groups) {
    groups_to_strips(block.form & GPUFI_FORM_SPARSE ? &mask : nullptr, list_count,
                     reinterpret_cast<value_pack<T> *>(run_bytes), r);
  }
}

/* Add the offset, and put the seed in place of the first residual. */
template <typename T>
__device__ __forceinline__ void complete_residuals(decode_state *state, const run_place<T> &at,
                                                   T *v) {
  const T offset = static_cast<T>(state->offset), first = v[0];
  if (offset != 0) {
#pragma unroll
    for (uint32_t t = 0; t < kStrip; t++) {
      v[t] = static_cast<T>(v[t] + offset);
    }
  }
  if (at.first == 0 && threadIdx.x == 0 && state->subset != 0) {
    if (first != 0) {
      state->is_bad = 1;
    }
    v[0] = static_cast<T>(state->seed[0]);
  }
}

/* Residuals to values, which are stored. All threads. */
template <typename T>
__device__ __forceinline__ void restore_strips(const strip_run<T> &run, const strip_plan &plan,
                                               value_pack<T> *packs, strips_shared<T> *shared,
                                               T *v) {
  const chunk_grid &grid = run.grid;
  const run_place<T> &at = run.at;
  const int lane = threadIdx.x % kWarp;
  const uint32_t in_rows = at.column + threadIdx.x * kStrip, past = divide(in_rows, grid.row);
  const uint32_t row = at.row + past, index = run.index_in_plane(row);
  const uint32_t before = (in_rows - past * grid.row_values) / kStrip; /* strips in the row */
  const bool by_columns = (run.subset & 2) != 0, is_deep = (run.subset & 4) != 0;
  const bool is_there = threadIdx.x * kStrip < at.count;
  /* Rows begin here that go on from another row by the chain rule. */
  if (is_there && before == 0 && (!by_columns || index == 0)) {
    (by_columns ? shared->columns.starts + (run.plane_of(row) - run.first_plane())
                : shared->rows.starts + past)[0] = v[0];
  }
  if (!by_columns && threadIdx.x == 0 && at.column != 0) {
    shared->rows.starts[0] = 0;
  }
  const bool goes_along =
      (run.subset & 1) || (by_columns && index == 0 && (!is_deep || row < grid.dims[1].d));
  if (__any_sync(kAllLanes, goes_along)) {
    const T sum = goes_along ? sum_of(v) : static_cast<T>(0);
    const int first = lane - static_cast<int>(before < kWarp ? before : kWarp);
    const T ends = scan_from(sum, lane, first < 0 ? 0 : first);
    T front = static_cast<T>(ends - sum);
    T *const tails = by_columns ? shared->columns.tails : shared->rows.tails;
    if (lane == kWarp - 1) {
      tails[threadIdx.x / kWarp] = ends;
    }
    if (goes_along) {
#pragma unroll
      for (uint32_t t = 0; t < kStrip; t++) {
        front = v[t] = static_cast<T>(front + v[t]);
      }
    }
  } else if (lane == kWarp - 1 && by_columns) {
    shared->columns.tails[threadIdx.x / kWarp] = 0;
  }
  if (by_columns && (at.column != 0 || !plan.rows_end_in_block)) {
    __syncthreads(); /* rows go on in the next warp */
    const uint32_t beyond = before > static_cast<uint32_t>(lane) ? before - lane : 0;
    const T tail = sum_of_tails(shared->columns.tails, threadIdx.x / kWarp, beyond);
    if (goes_along) {
#pragma unroll
      for (uint32_t t = 0; t < kStrip; t++) {
        v[t] = static_cast<T>(v[t] + tail);
      }
    }
  }
  store_strip(packs, threadIdx.x, v);
  if (!by_columns && run.subset != 0) {
    finish_rows(run, before, row, &shared->rows);
  } else {
    __syncthreads();
  }
  if (!by_columns) {
    store_rows(run, packs, run.subset != 0 ? shared->rows.strips : nullptr);
  } else {
    if (is_deep) {
      finish_columns<true>(run, plan, packs, &shared->columns);
    } else {
      finish_columns<false>(run, plan, packs, &shared->columns);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kStripThreadBlocks<T>)
    decode_strips_kernel(const __grid_constant__ decode_job job) {
  begin_early();
  GPUFI_DYNAMIC_SHARED(uint4, run_bytes);
  __shared__ strips_shared<T> shared;
  uint32_t run;
  const uint32_t chunk = chunk_of(job.strips, blockIdx.x, &run);
  decode_state *const state = &job.states[chunk];
  if (!(state->is_open & state->has_strips)) { /* both on their way at once */
    return;
  }
  const run_place<T> at = place_in_chunk<T>(job, chunk, run);
  T r[kStripGroups][kGroup];
  unpack_run_strips(job, chunk, at, run_bytes, &shared.blocks, r);
  complete_residuals(state, at, r[0]);
  uint32_t *const run_done = job.run_done + static_cast<size_t>(chunk) * job.grid.run_count;
  const size_t first_run = static_cast<size_t>(chunk) * job.grid.run_count;
  const strip_run<T> strips = {job.grid,
                               at,
                               {state->transform, false},
                               state->subset,
                               run_done,
                               job.run_told + first_run,
                               reinterpret_cast<value_pack<T> *>(job.run_sums) +
                                   first_run * job.strips.row_packs};
  restore_strips(strips, job.strips, reinterpret_cast<value_pack<T> *>(run_bytes), &shared, r[0]);
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    set_release(run_done + at.run, 1u << threadIdx.x / kWarp);
  }
}

template <typename T> cudaError_t launch_strips(const decode_job &job, cudaStream_t stream) {
  constexpr int kShared = static_cast<int>(dynamic_nbytes<T>());
  const cudaError_t code = cudaFuncSetAttribute(
      decode_strips_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  return code == cudaSuccess
             ? launch_early(decode_strips_kernel<T>, job.chunk_count * job.grid.run_count, kThreads,
                            kShared, stream, job)
             : code;
}

} // namespace

namespace gpufi {

bool strips_fit(const chunk_grid &grid) {
  const bool is_wide =
      grid.component_count == 1 && (grid.value_nbytes == 4 || grid.value_nbytes == 8);
  return is_wide && grid.axis_count >= 1 && grid.axis_count <= 3 && grid.row_values % kStrip == 0 &&
         (grid.axis_count < 3 || grid.strides[2] >= GPUFI_STRIP_PLANE_MIN);
}

strip_plan plan_strips(const chunk_grid &grid, uint32_t chunk_count) {
  const uint32_t pack_values = 16 / grid.value_nbytes, run_packs = kRunValues / pack_values;
  strip_plan plan = {};
  plan.row_packs = grid.row_values / pack_values;
  plan.segment_count = plan.row_packs < kThreads ? kThreads / plan.row_packs : 1;
  const uint32_t rows = (run_packs + plan.row_packs - 1) / plan.row_packs;
  plan.segment_rows = (rows + plan.segment_count - 1) / plan.segment_count;
  plan.looks_back = plan.segment_count > 1 && kRunValues % grid.row_values == 0;
  const uint32_t told_by = plan.segment_count * plan.row_packs; /* the last segment's threads */
  plan.tellers = (told_by - 1) / kWarp - (told_by - plan.row_packs) / kWarp + 1;
  plan.rows_end_in_block = GPUFI_BLOCK_VALUES % grid.row_values == 0;
  plan.chunk_count = chunk_count;
  plan.width = chunk_count < kStripChunksAtOnce ? chunk_count : kStripChunksAtOnce;
  plan.turn_runs = make_divisor(plan.width * grid.run_count);
  plan.turn_width = make_divisor(plan.width);
  const uint32_t left = chunk_count % plan.width;
  plan.last_width = make_divisor(left != 0 ? left : plan.width);
  return plan;
}

size_t strip_sums_nbytes(const chunk_grid &grid, size_t chunk_count) {
  const strip_plan plan = plan_strips(grid, static_cast<uint32_t>(chunk_count));
  return plan.looks_back ? 16 * static_cast<size_t>(plan.row_packs) * grid.run_count * chunk_count
                         : 0;
}

size_t strips_shared_nbytes(const chunk_grid &grid) {
  return grid.value_nbytes == 8 ? sizeof(strips_shared<uint64_t>) + dynamic_nbytes<uint64_t>()
                                : sizeof(strips_shared<uint32_t>) + dynamic_nbytes<uint32_t>();
}

cudaError_t decode_strips(const decode_job &job, cudaStream_t stream) {
  return job.grid.value_nbytes == 8 ? launch_strips<uint64_t>(job, stream)
                                    : launch_strips<uint32_t>(job, stream);
}

} // namespace gpufi
