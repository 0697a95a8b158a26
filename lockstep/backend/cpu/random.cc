#include "lockstep/backend/random.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/backend/cpu/draws.h"
#include "lockstep/backend/cpu/element.h"
#include "lockstep/backend/cpu/families.h"
#include "lockstep/backend/cpu/vectorize.h"
#include "lockstep/base/philox.h"

namespace lockstep {
namespace {

// Number of draws at a time: many blocks of four, so that the compiler vectorizes the loop.
constexpr std::int64_t kTile = 256;
using Tile = std::array<std::uint32_t, kTile>;

// Calls f(begin, length, draws [begin, begin + length)) for tiles of [0, count), on the threads of the lane.
template <typename F>
void for_each_tile(const KernelContext& ctx, std::int64_t count, RandomKey key, const F& f) {
  constexpr std::int64_t kGrain = 32 * kTile;
  parallel_for(ctx, count, kGrain, [&](std::int64_t chunk, std::int64_t end) {
    Tile tile;
    for (std::int64_t begin = chunk; begin < end; begin += kTile) {
      cpu::draw(key, static_cast<std::uint64_t>(begin / 4), kTile, tile.data());
      cpu::vectorized([&] { f(begin, std::min(kTile, end - begin), tile); });
    }
  });
}

class Random final : public RandomKernels {
 public:
  void run(KernelContext& ctx, const kernels::Uniform& call) override {
    const auto fill = [&](auto zero) {
      using T = decltype(zero);
      const T bottom = cpu::rounded<T>(call.low), top = cpu::rounded<T>(call.high);
      for_each_tile(ctx, call.y.numel(), call.key,
                    [=, out = call.y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      cpu::vector_loop(0, length, [&](std::int64_t i) {
                        const T y = cpu::rounded<T>(call.low + (call.high - call.low) * unit_uniform<T>(draws[i]));
                        out[begin + i] = cpu::widened(y) == cpu::widened(top) ? bottom : y;
                      });
                    });
    };
    if (call.y.dtype == DType::f16) return fill(Float16{});
    cpu::visit_floating(call.y.dtype, "uniform", fill);
  }

  void run(KernelContext& ctx, const kernels::Normal& call) override {
    cpu::visit_floating(call.y.dtype, "normal", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, call.y.numel(), call.key,
                    [=, out = call.y.as<T>()](std::int64_t begin, std::int64_t length, const Tile& draws) {
                      for (std::int64_t i = 0; i < length; i += 4) {
                        auto x = normal_block({draws[i], draws[i + 1], draws[i + 2], draws[i + 3]});
                        for (std::int64_t k = 0; k < std::min<std::int64_t>(4, length - i); ++k) {
                          out[begin + i + k] = cpu::rounded<T>(call.mean + call.stddev * x[k]);
                        }
                      }
                    });
    });
  }

  void run(KernelContext& ctx, const kernels::Dropout& call) override {
    const RandomKey key = current_key(call.key, call.key_at);
    // random_uniform(key, i) < keep, in integers.
    const auto threshold = static_cast<std::uint32_t>(std::ceil(call.keep * 0x1p24));
    cpu::visit_floating(call.y.dtype, "dropout", [&](auto zero) {
      using T = decltype(zero);
      for_each_tile(ctx, call.y.numel(), key,
                    [=, scale = 1 / call.keep, in = call.x.as<T>(), out = call.y.as<T>()](
                        std::int64_t begin, std::int64_t length, const Tile& draws) {
                      cpu::vector_loop(0, length, [&](std::int64_t i) {
                        const double kept = cpu::widened(in[begin + i]) * scale;
                        out[begin + i] = cpu::rounded<T>(draws[i] >> 8 < threshold ? kept : 0.0);
                      });
                    });
    });
  }
};

}  // namespace

std::unique_ptr<RandomKernels> make_cpu_random() { return std::make_unique<Random>(); }

}  // namespace lockstep
