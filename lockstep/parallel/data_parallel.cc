#include "lockstep/parallel/data_parallel.h"

namespace lockstep {

DataParallel::DataParallel(Module& module, std::vector<Device> devices, DataParallelOptions options)
    : module_(module), devices_(std::move(devices)), options_(options) {
  check(!devices_.empty(), "data_parallel: no devices");
}

Batch DataParallel::forward(const Tensor& x) {
  check(x.defined() && x.shape().rank() >= 1 && x.size(0) > 0, "data_parallel: the batch is {}, expected at least one "
        "sample", x.describe());
  return module_(split_and_load(x, devices_, {.shards = options_.shards}));
}

Tensor DataParallel::operator()(const Tensor& x) { return gather(forward(x), devices_[0]); }

}  // namespace lockstep
