/* Which chunks the decoder's kernels for strips take, and that the general ones give the same. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "backend/cuda/codec/codec.h"
#include "backend/cuda/codec/decode.cuh"
#include "test.h"

namespace {

constexpr uint32_t kChunks = 2;

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}

/* An array that is predicted nearly right along the axes of `axes` (bit a for axis a), and along no
 * others: for each of these axes, a random function of the indices along all others. */
std::vector<uint8_t> make_chunk(const gpufi_chunk_shape &shape, uint32_t axes, uint64_t seed) {
  gpufi_geometry g;
  gpufi_geometry_init(&g, &shape);
  std::vector<uint8_t> raw(g.value_count * g.value_nbytes);
  for (size_t i = 0; i < g.value_count; i++) {
    uint64_t value = mixed(i * 8 + seed) % 2;
    for (int32_t a = 0; a < g.ndim; a++) {
      const uint64_t others = i - i / g.strides[a] % g.dims[a] * g.strides[a];
      if (axes >> a & 1) {
        value += mixed((others * 8 + static_cast<uint64_t>(a)) * 8 + seed) >>
                 (64 - 8 * g.value_nbytes + 4);
      }
    }
    memcpy(raw.data() + i * g.value_nbytes, &value, g.value_nbytes);
  }
  return raw;
}

struct batch {
  gpufi_chunks chunks;
  std::vector<uint8_t> raw, encoded, decoded, scratch;
  std::vector<gpufi_chunk_place> places;
  std::vector<uint32_t> verdicts;

  batch(const gpufi_chunk_shape &shape, uint32_t axes) : places(kChunks), verdicts(kChunks) {
    CHECK(gpufi_chunks_init(&chunks, &shape, kChunks, nullptr) == GPUF_OK);
    const size_t bound = gpufi_round_up_16(gpufi_codec_bound(chunks.raw_nbytes));
    raw.resize(kChunks * chunks.raw_pitch_nbytes);
    encoded.resize(kChunks * bound + 64);
    scratch.resize(gpufi_codec_scratch_nbytes(&shape) + 64);
    void *const aligned =
        reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    for (uint32_t i = 0; i < kChunks; i++) {
      const std::vector<uint8_t> chunk = make_chunk(shape, axes, i + 1);
      memcpy(raw.data() + i * chunks.raw_pitch_nbytes, chunk.data(), chunk.size());
      size_t nbytes;
      CHECK(gpufi_codec_encode(&shape, chunk.data(), encoded.data() + i * bound, bound, &nbytes,
                               aligned, nullptr) == GPUF_OK);
      places[i] = {i * bound, nbytes};
    }
  }

  /* Decode all; returns how many chunks went by way of strips. */
  uint32_t decode() {
    decoded.assign(raw.size() + 16, 0xa5);
    void *d_scratch = nullptr;
    cudaStream_t stream = nullptr;
    CHECK(cudaMalloc(&d_scratch, gpufi_cuda_decode_scratch_nbytes(&chunks)) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(gpufi_cuda_decode(&chunks, encoded.data(), encoded.size(), places.data(), decoded.data(),
                            verdicts.data(), d_scratch, stream) == cudaSuccess);
    const auto *const states = static_cast<const gpufi::decode_state *>(d_scratch);
    uint32_t count = 0;
    for (uint32_t i = 0; i < kChunks; i++) {
      CHECK(verdicts[i] == GPUFI_CHUNK_DONE);
      const size_t at = i * chunks.raw_pitch_nbytes;
      CHECK(memcmp(decoded.data() + at, raw.data() + at, chunks.raw_nbytes) == 0);
      count += states[i].has_strips ? 1 : 0;
    }
    CHECK(cudaStreamDestroy(stream) == cudaSuccess && cudaFree(d_scratch) == cudaSuccess);
    return count;
  }
};

struct expected_way {
  gpufi_chunk_shape shape;
  uint8_t axes; /* that the values are predicted along */
  bool has_strips;
};

void chunks_go_the_way_that_is_for_them() {
  static const expected_way ways[] = {
      {{GPUF_DTYPE_FLOAT32, 3, {6, 64, 64}}, 4, true},
      {{GPUF_DTYPE_FLOAT32, 3, {6, 64, 64}}, 6, true},
      {{GPUF_DTYPE_FLOAT32, 3, {6, 64, 64}}, 7, true},
      {{GPUF_DTYPE_FLOAT32, 3, {6, 64, 64}}, 3, true},
      {{GPUF_DTYPE_FLOAT32, 3, {6, 64, 64}}, 1, false}, /* planes alone */
      {{GPUF_DTYPE_FLOAT32, 3, {1, 300, 256}}, 6, true},
      {{GPUF_DTYPE_FLOAT32, 3, {3, 96, 256}}, 7, true},
      {{GPUF_DTYPE_FLOAT64, 3, {3, 64, 64}}, 7, true},
      {{GPUF_DTYPE_FLOAT64, 2, {500, 32}}, 3, true},
      {{GPUF_DTYPE_FLOAT32, 2, {1000, 32}}, 3, true},
      {{GPUF_DTYPE_INT32, 2, {200, 96}}, 3, true},
      {{GPUF_DTYPE_FLOAT32, 3, {5, 50, 96}}, 6, true},
      {{GPUF_DTYPE_FLOAT32, 3, {5, 50, 96}}, 7, false}, /* planes begin anywhere in a run */
      {{GPUF_DTYPE_FLOAT32, 2, {200, 100}}, 3, false},  /* rows are not whole strips */
      {{GPUF_DTYPE_UINT16, 2, {200, 96}}, 3, false},
      {{GPUF_DTYPE_FLOAT32, 4, {3, 4, 30, 64}}, 12, false}};
  for (const expected_way &way : ways) {
    batch of(way.shape, way.axes);
    for (uint32_t i = 0; i < kChunks; i++) {
      const uint8_t *const chunk = of.encoded.data() + of.places[i].offset;
      CHECK(chunk[GPUFI_AT_MODE] == GPUFI_MODE_W8 && chunk[GPUFI_AT_AXES] == way.axes);
    }
    unsetenv("GPUFETCH_GPU");
    CHECK(of.decode() == (way.has_strips ? kChunks : 0));
    setenv("GPUFETCH_GPU", "general", 1);
    CHECK(of.decode() == 0);
  }
  unsetenv("GPUFETCH_GPU");
}

} // namespace

int main() {
  TEST(chunks_go_the_way_that_is_for_them);
  return test_finish();
}
