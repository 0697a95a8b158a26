#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

class Random final : public RandomKernels {
 public:
  void run(KernelContext&, const kernels::Uniform& call) override {
    Elements out(call.y);
    const double top = rounded(call.high, call.y.dtype);
    visit_dtype(call.y.dtype, [&](auto zero) {
      for (std::int64_t i = 0; i < call.y.numel(); ++i) {
        const double u = unit_uniform<decltype(zero)>(random_bits(call.key, static_cast<std::uint64_t>(i)));
        const double y = call.low + (call.high - call.low) * u;
        out.set(i, rounded(y, call.y.dtype) == top ? call.low : y);
      }
    });
  }

  void run(KernelContext&, const kernels::Normal& call) override {
    Elements out(call.y);
    for (std::int64_t i = 0; i < call.y.numel(); ++i) out.set(i, call.mean + call.stddev * random_normal(call.key, i));
  }

  void run(KernelContext&, const kernels::Dropout& call) override {
    const RandomKey key = current_key(call.key, call.key_at);
    Elements in(call.x), out(call.y);
    const double scale = 1 / call.keep;
    for (std::int64_t i = 0; i < call.y.numel(); ++i)
      out.set(i, random_uniform(key, i) < call.keep ? in[i] * scale : 0);
  }
};

}  // namespace

std::unique_ptr<RandomKernels> make_random() { return std::make_unique<Random>(); }

}  // namespace lockstep::reference
