#include "tests/gpu/hosted_backend.h"

#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "lockstep/backend/cuda/families.h"
#include "lockstep/backend/cuda/libraries.h"
#include "tests/gpu/gpu_testing.h"

namespace lockstep::testing {
namespace {

// One for all calls, as in a lane: library handles are expensive to make, and what a kernel leaves in the context's
// memory meets the next one. It is never destroyed, because the driver may be gone before it when the program ends.
GpuMemory& lane() {
  static GpuMemory& memory = *new GpuMemory;
  return memory;
}

// One call of a kernel: its tensors on the GPU, by their host addresses.
class OnGpu {
 public:
  OnGpu() : memory_(lane()) {
    static int calls = 0;
    aligned_ = ++calls % 2 == 1;
    memory_.release();
  }

  CudaContext& context() { return memory_.context(); }

  // Replaces a view of host memory by one of a copy on the GPU, and a span by one of copies of its elements.
  template <typename T>
  void operator()(T& on) {
    if constexpr (std::is_base_of_v<View, T>) {
      if (!on) return;
      View& device = views_[on.data];
      if (!device) {
        const std::size_t offset = aligned_ ? 0 : item_size(on.dtype);
        device = on;
        device.data = memory_.upload(on.data, on.bytes(), offset);
      }
      static_cast<View&>(on) = device;
    } else {
      using Item = std::remove_const_t<typename T::element_type>;
      auto items = std::make_shared<std::vector<Item>>(on.begin(), on.end());
      for (Item& item : *items) {
        if constexpr (std::is_same_v<Item, View>) {
          (*this)(item);
        } else {
          Item::views(item, [this](auto& view) { (*this)(view); });
        }
      }
      on = *items;
      spans_.push_back(std::move(items));
    }
  }

  // Inputs are copied back, too, so tests notice if a kernel wrote to them.
  void finish() {
    memory_.synchronize();
    for (const auto& [host, device] : views_) memory_.download(host, device.data, device.bytes());
  }

 private:
  GpuMemory& memory_;
  bool aligned_;
  std::map<void*, View> views_;
  std::vector<std::shared_ptr<void>> spans_;
};

// Runs a call with every tensor on the GPU.
struct Hosted {
  void operator()(auto& kernels, KernelContext&, auto call) const {
    OnGpu on_gpu;
    const auto move = [&](auto& views) { on_gpu(views); };
    call.views(call, move, move);
    kernels.run(on_gpu.context(), call);
    on_gpu.finish();
  }
};

template <typename Family>
std::unique_ptr<Family> hosted(std::unique_ptr<Family> kernels) {
  return std::make_unique<KernelsWith<Family, Hosted>>(std::move(kernels));
}

class HostedConv final : public KernelsWith<ConvKernels, Hosted> {
 public:
  using KernelsWith::KernelsWith;
  Layout preferred_layout(DType dtype, std::int64_t channels) const override {
    return kernels().preferred_layout(dtype, channels);
  }
};

// Lives longer than the kernels that use it.
struct OwnsChoices {
  AlgorithmChoices choices;
  std::unique_ptr<CopyKernels> copy = make_cuda_copy();
};

class HostedBackend final : private OwnsChoices, public Backend {
 public:
  HostedBackend()
      : Backend({.elementwise = hosted(make_cuda_elementwise()),
                 .copy = hosted(make_cuda_copy()),
                 .index = hosted(make_cuda_index()),
                 .reduce = hosted(make_cuda_reduce()),
                 .matmul = hosted(make_cublas_matmul({}, choices, *OwnsChoices::copy)),
                 .conv = std::make_unique<HostedConv>(make_cudnn_conv({}, choices, *OwnsChoices::copy)),
                 .norm = hosted(make_cuda_norm()),
                 .pool = hosted(make_cuda_pool()),
                 .softmax = hosted(make_cuda_softmax()),
                 .random = hosted(make_cuda_random()),
                 .optimizer = hosted(make_cuda_optimizer()),
                 .attention = no_attention_kernels()}) {}
  std::string_view name() const override { return "hosted cuda"; }
  bool multiplies(DType) const override { return true; }
};

}  // namespace

std::unique_ptr<Backend> make_hosted_cuda_backend() { return has_gpu() ? std::make_unique<HostedBackend>() : nullptr; }

}  // namespace lockstep::testing
