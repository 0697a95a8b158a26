#include <vector>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Calls visit(place in x, place in w, place in y) for every product of a convolution.
template <typename Visit>
void for_each_product(const Conv2dOptions& o, const View& x, const View& w, const View& y, const Visit& visit) {
  Elements in(x), weight(w), out(y);
  std::int64_t height = x.shape[2], width = x.shape[3];
  std::int64_t channels = w.shape[1], outputs = w.shape[0] / o.groups;  // per group
  for_each4(y.shape, [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < w.shape[2]; ++i) {
        for (std::int64_t j = 0; j < w.shape[3]; ++j) {
          std::int64_t h = p * o.stride[0] + i * o.dilation[0] - o.padding[0];
          std::int64_t v = q * o.stride[1] + j * o.dilation[1] - o.padding[1];
          if (h < 0 || h >= height || v < 0 || v >= width) continue;
          visit(in.at(n, k / outputs * channels + c, h, v), weight.at(k, c, i, j), out.at(n, k, p, q));
        }
      }
    }
  });
}

// Calls visit(channel, place in y) for every element of y.
template <typename Visit>
void for_each_output(const View& y, const Visit& visit) {
  for_each4(y.shape, [&, out = Elements(y)](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    visit(c, out.at(n, c, h, w));
  });
}

class Conv final : public ConvKernels {
 public:
  Layout preferred_layout(DType, std::int64_t) const override { return Layout::plain; }

  using ConvKernels::run;
  void run(KernelContext&, const kernels::Conv& call) override {
    Elements in(call.x), weight(call.w), shift(call.bias), out(call.y);
    std::vector<double> sums(call.y.numel());
    for_each_product(call.options, call.x, call.w, call.y, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      sums[k] += in[i] * rounded(weight[j], call.x.dtype);
    });
    if (call.bias) {
      for_each_output(call.y, [&](std::int64_t c, std::int64_t k) { sums[k] += rounded(shift[c], call.x.dtype); });
    }
    store(sums, call.y);
  }

  void run(KernelContext&, const kernels::ConvBackwardData& call) override {
    Elements grad(call.dy), weight(call.w);
    std::vector<double> sums(call.dx.numel());
    for_each_product(call.options, call.dx, call.w, call.dy, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      sums[i] += grad[k] * rounded(weight[j], call.dy.dtype);
    });
    store(sums, call.dx);
  }

  void run(KernelContext&, const kernels::ConvBackwardWeights& call) override {
    Elements in(call.x), grad(call.dy);
    std::vector<double> sums(call.dw.numel());
    for_each_product(call.options, call.x, call.dw, call.dy,
                     [&](std::int64_t i, std::int64_t j, std::int64_t k) { sums[j] += in[i] * grad[k]; });
    store(sums, call.dw);
    if (call.db) {
      std::vector<double> totals(call.db.numel());
      for_each_output(call.dy, [&](std::int64_t c, std::int64_t k) { totals[c] += grad[k]; });
      store(totals, call.db);
    }
  }
};

}  // namespace

std::unique_ptr<ConvKernels> make_conv() { return std::make_unique<Conv>(); }

}  // namespace lockstep::reference
