#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

class Random final : public RandomKernels {
 public:
  void uniform(KernelContext&, RandomKey key, double low, double high, const View& y) override {
    Elements out(y);
    for (std::int64_t i = 0; i < y.numel(); ++i) out.set(i, low + (high - low) * random_uniform(key, i));
  }

  void normal(KernelContext&, RandomKey key, double mean, double stddev, const View& y) override {
    Elements out(y);
    for (std::int64_t i = 0; i < y.numel(); ++i) out.set(i, mean + stddev * random_normal(key, i));
  }

  void dropout(KernelContext&, RandomKey key, const View& key_at, double keep, const View& x, const View& y) override {
    key = current_key(key, key_at);
    Elements in(x), out(y);
    const double scale = 1 / keep;
    for (std::int64_t i = 0; i < y.numel(); ++i) out.set(i, random_uniform(key, i) < keep ? in[i] * scale : 0);
  }
};

}  // namespace

std::unique_ptr<RandomKernels> make_random() { return std::make_unique<Random>(); }

}  // namespace lockstep::reference
