#include "lockstep/backend/cpu/f64_kernels.h"
#include "lockstep/backend/cpu/parallel_for.h"

namespace lockstep {
namespace {

// The elements of images or weights, whatever their layout.
struct Elements {
  explicit Elements(const View& v) : data(v.as<double>()), layout(v.layout), shape(v.shape) {}
  double& operator()(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return data[offset4(layout, shape, n, c, h, w)];
  }

  double* data;
  Layout layout;
  Shape shape;
};

// Calls f(a, b) for the planes of [a, b, ...], on the threads of the lane.
template <typename F>
void for_each_plane(const KernelContext& context, const Shape& shape, const F& f) {
  parallel_for(context, shape[0] * shape[1], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i / shape[1], i % shape[1]);
  });
}

template <typename F>
void for_each_pixel(const Shape& shape, const F& f) {
  for (std::int64_t h = 0; h < shape[2]; ++h) {
    for (std::int64_t w = 0; w < shape[3]; ++w) f(h, w);
  }
}

// The pixel of x that output pixel (p, q) multiplies by weight (i, j). `inside`: in the image, not in its padding.
struct Source {
  Source(const Conv2dOptions& o, const Shape& x, std::int64_t p, std::int64_t q, std::int64_t i, std::int64_t j)
      : h(p * o.stride[0] + i * o.dilation[0] - o.padding[0]), w(q * o.stride[1] + j * o.dilation[1] - o.padding[1]),
        inside(h >= 0 && h < x[2] && w >= 0 && w < x[3]) {}

  std::int64_t h, w;
  bool inside;
};

// Each element of a result is summed by one thread, in one order.
class F64Conv final : public ConvKernels {
 public:
  Layout preferred_layout(DType, std::int64_t) const override { return Layout::plain; }

  using ConvKernels::run;
  void run(KernelContext& context, const kernels::Conv& call) override {
    const Elements x(call.x), w(call.w), y(call.y);
    const std::int64_t channels = w.shape[1], outputs = w.shape[0] / call.options.groups;  // of a group
    for_each_plane(context, y.shape, [&](std::int64_t n, std::int64_t o) {
      for_each_pixel(y.shape, [&](std::int64_t p, std::int64_t q) {
        double sum = call.bias ? call.bias.as<double>()[o] : 0;
        for (std::int64_t c = 0; c < channels; ++c) {
          for_each_pixel(w.shape, [&](std::int64_t i, std::int64_t j) {
            const Source from(call.options, x.shape, p, q, i, j);
            if (from.inside) sum += x(n, o / outputs * channels + c, from.h, from.w) * w(o, c, i, j);
          });
        }
        y(n, o, p, q) = sum;
      });
    });
  }

  void run(KernelContext& context, const kernels::ConvBackwardData& call) override {
    const Elements dy(call.dy), w(call.w), dx(call.dx);
    const std::int64_t channels = w.shape[1], outputs = w.shape[0] / call.options.groups;
    for_each_plane(context, dx.shape, [&](std::int64_t n, std::int64_t channel) {
      for_each_pixel(dx.shape, [&](std::int64_t h, std::int64_t v) { dx(n, channel, h, v) = 0; });
      const std::int64_t group = channel / channels;
      for (std::int64_t o = group * outputs; o < (group + 1) * outputs; ++o) {
        for_each_pixel(dy.shape, [&](std::int64_t p, std::int64_t q) {
          for_each_pixel(w.shape, [&](std::int64_t i, std::int64_t j) {
            const Source to(call.options, dx.shape, p, q, i, j);
            if (to.inside) dx(n, channel, to.h, to.w) += dy(n, o, p, q) * w(o, channel % channels, i, j);
          });
        });
      }
    });
  }

  void run(KernelContext& context, const kernels::ConvBackwardWeights& call) override {
    const Elements x(call.x), dy(call.dy), dw(call.dw);
    const std::int64_t channels = dw.shape[1], outputs = dw.shape[0] / call.options.groups;
    for_each_plane(context, dw.shape, [&](std::int64_t o, std::int64_t c) {
      for_each_pixel(dw.shape, [&](std::int64_t i, std::int64_t j) {
        double sum = 0;
        for (std::int64_t n = 0; n < x.shape[0]; ++n) {
          for_each_pixel(dy.shape, [&](std::int64_t p, std::int64_t q) {
            const Source from(call.options, x.shape, p, q, i, j);
            if (from.inside) sum += x(n, o / outputs * channels + c, from.h, from.w) * dy(n, o, p, q);
          });
        }
        dw(o, c, i, j) = sum;
      });
    });
    for (std::int64_t o = 0; call.db && o < dy.shape[1]; ++o) {
      double sum = 0;
      for (std::int64_t n = 0; n < dy.shape[0]; ++n) {
        for_each_pixel(dy.shape, [&](std::int64_t p, std::int64_t q) { sum += dy(n, o, p, q); });
      }
      call.db.as<double>()[o] = sum;
    }
  }
};

}  // namespace

std::unique_ptr<ConvKernels> make_f64_conv() { return std::make_unique<F64Conv>(); }

}  // namespace lockstep
