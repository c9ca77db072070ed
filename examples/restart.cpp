// Checkpoints from C++: a program that goes on where the newest checkpoint left it.
//
// usage: restart FOLDER STEPS
//
// Compile it against an installed gpufetch:
//   c++ -std=c++17 -O2 restart.cpp -o restart $(pkg-config --cflags --libs gpufetch hdf5)
#include <gpufetch/checkpoint.h>
#include <gpufetch/gpufetch.h>
#include <hdf5.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Call a function of gpufetch, whose last argument is a gpuf_error, and throw what it returns.
template <typename Function, typename... Arguments>
void call(Function *function, Arguments... arguments) {
  gpuf_error error;
  if (function(arguments..., &error) != GPUF_OK) {
    throw std::runtime_error(error.message);
  }
}

// A checkpoint that was begun is given up unless it was committed.
class Checkpoints {
public:
  explicit Checkpoints(const std::string &folder) : folder_(folder) {
    gpuf_checkpoint_options options = GPUF_CHECKPOINT_OPTIONS_INIT;
    options.directory = folder_.c_str();
    options.prefix = "walk";
    options.keep_count = 2;
    call(gpuf_checkpoint_open, &options, &checkpoint_,
         static_cast<gpuf_checkpoint_report *>(nullptr));
  }
  Checkpoints(const Checkpoints &) = delete;
  Checkpoints &operator=(const Checkpoints &) = delete;
  ~Checkpoints() {
    gpuf_checkpoint_close(checkpoint_, nullptr, nullptr);
  }

  // Take a snapshot; a thread writes it while the program goes on.
  void save(int64_t step, const gpuf_tensor &tensor) {
    call(gpuf_checkpoint_begin, checkpoint_, step, static_cast<gpuf_checkpoint_report *>(nullptr));
    try {
      call(gpuf_checkpoint_add, checkpoint_, "position", &tensor,
           static_cast<const gpuf_part *>(nullptr));
      call(gpuf_checkpoint_add_int64, checkpoint_, "step", step);
    } catch (...) {
      gpuf_checkpoint_abort(checkpoint_, nullptr);
      throw;
    }
    call(gpuf_checkpoint_commit, checkpoint_, GPUF_STREAM_NONE);
  }

  // Wait for the last one, and throw its failure.
  void finish() {
    call(gpuf_checkpoint_wait, checkpoint_, int64_t{-1},
         static_cast<gpuf_checkpoint_report *>(nullptr));
  }

  // Fill the tensor from the newest whole checkpoint; the step, or 0 where there is none yet.
  int64_t load(const gpuf_tensor &tensor) const {
    gpuf_restart *found = nullptr;
    int64_t step = 0;
    call(gpuf_restart_open, folder_.c_str(), "walk", int64_t{-1}, &found,
         static_cast<gpuf_restart_report *>(nullptr));
    const std::unique_ptr<gpuf_restart, decltype(&gpuf_restart_close)> restart(found,
                                                                               gpuf_restart_close);
    if (restart) {
      call(gpuf_restart_read, found, "position", &tensor, static_cast<const gpuf_part *>(nullptr));
      call(gpuf_restart_get_int64, found, "step", &step);
    }
    return step;
  }

private:
  std::string folder_;
  gpuf_checkpoint *checkpoint_ = nullptr;
};

void run(const std::string &folder, int64_t steps) {
  std::vector<double> position(1000);
  const int64_t shape[] = {static_cast<int64_t>(position.size())};
  const gpuf_device cpu = {GPUF_DEVICE_CPU, 0};
  gpuf_tensor tensor;
  call(gpuf_tensor_init, &tensor, position.data(), cpu, GPUF_DTYPE_FLOAT64, 1, shape);
  H5open(); // so that libhdf5 is linked, with which gpufetch writes
  Checkpoints checkpoints(folder);
  int64_t step = checkpoints.load(tensor);
  std::printf("from step %lld\n", static_cast<long long>(step));
  while (step < steps) {
    step++;
    for (std::size_t i = 0; i < position.size(); i++) {
      position[i] += static_cast<double>(i) / static_cast<double>(step);
    }
    if (step % 10 == 0) {
      checkpoints.save(step, tensor);
    }
  }
  checkpoints.finish();
}

} // namespace

int main(int argc, char **argv) {
  try {
    if (argc != 3) {
      throw std::runtime_error("usage: restart FOLDER STEPS");
    }
    run(argv[1], std::strtoll(argv[2], nullptr, 10));
  } catch (const std::exception &failure) {
    std::fprintf(stderr, "restart: %s\n", failure.what());
    return 1;
  }
  return 0;
}
