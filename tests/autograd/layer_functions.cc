// The functions inside layers: convolutions, pools, images of other sizes, attention, and recurrent layers.
#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/recurrent.h"
#include "tests/autograd/gradient_testing.h"

namespace lockstep::testing {
namespace {

using In = std::span<const Tensor>;

Differentiable of_image(std::string name, std::function<Tensor(const Tensor&)> f) {
  return {std::move(name), [=](Random& r) {
            const Shape shape{r.integer(1, 2), r.integer(1, 3), r.integer(3, 6), r.integer(3, 6)};
            return Problem{{{.shape = shape}}, [f](In in) { return f(in[0]); }};
          }};
}

std::vector<Differentiable> sliding_windows() {
  return {
      {"Conv1d",
       [](Random& r) {
         const Conv1dOptions o{.stride = r.integer(1, 2),
                               .padding = r.integer(0, 2),
                               .dilation = r.integer(1, 2),
                               .groups = r.integer(1, 2)};
         const std::int64_t in = o.groups * r.integer(1, 2), out = o.groups * 2;
         Problem p{{{.shape = {2, in, 7}},
                    {.shape = {out, in / o.groups, r.integer(1, 3)}, .master = true},
                    {.shape = {out}, .master = true}},
                   [o](In in) { return conv1d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), o); }};
         if (r.integer(0, 1)) p.inputs.pop_back();
         return p;
       }},
      {"ConvTranspose2d",
       [](Random& r) {
         const auto pair = [&](std::int64_t low, std::int64_t high) {
           return std::array<std::int64_t, 2>{r.integer(low, high), r.integer(low, high)};
         };
         ConvTranspose2dOptions o{
             .stride = pair(1, 3), .padding = pair(0, 1), .groups = r.integer(1, 2), .dilation = pair(1, 2)};
         for (std::size_t i : {0, 1}) o.output_padding[i] = r.integer(0, o.stride[i] - 1);
         const std::int64_t in = o.groups * r.integer(1, 2), out = r.integer(1, 2);
         Problem p{{{.shape = {2, in, 3, 4}},
                    {.shape = {in, out, 3, r.integer(2, 3)}, .master = true},
                    {.shape = {out * o.groups}, .master = true}},
                   [o](In in) { return conv_transpose2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), o); }};
         if (r.integer(0, 1)) p.inputs.pop_back();
         return p;
       }},
      of_image("Curves",
               [](const Tensor& x) {
                 return mish(x * 3) + softsign(x) + logsigmoid(x * 2) + tanhshrink(x * 2) + softmin(x, 1) +
                        glu(cat({x, x * 2}, 1), 1);
               }),
      of_image("Limits",
               [](const Tensor& x) {
                 return hardtanh(x, -0.5, 0.75) + relu6(x) + hardsigmoid(x) + hardswish(x) + softshrink(x, 0.25);
               }),
      of_image("Prelu",
               [](const Tensor& x) {
                 return prelu(x, mean(x, {0, 2, 3})) + selu(x) + celu(x, 0.7) + prelu(x, mean(x));
               }),
      of_image("PadOfItself",
               [](const Tensor& x) {
                 return pad(pad(x, {1, 2, 0, 1}, PadMode::reflect), {0, 2, 1, 0}, PadMode::circular) +
                        sum(pad(x, {4, 1}, PadMode::replicate) * 0.5);
               }),
      of_image("DilatedMaxPool",
               [](const Tensor& x) {
                 const Pool2dOptions options{.kernel_size = 2, .stride = 1, .padding = 1, .dilation = 2};
                 const auto [y, places] = max_pool2d_with_indices(x, options);
                 return y + take_along_dim(flatten(x, 2), flatten(places, 2), 2).reshape(y.shape());
               }),
      of_image("MaxUnpool",
               [](const Tensor& x) {
                 const auto [y, places] = max_pool2d_with_indices(x, {.kernel_size = 2});
                 return max_unpool2d(y * y, places, {x.size(2), x.size(3)});
               }),
      of_image("AdaptiveMaxPool",
               [](const Tensor& x) {
                 return adaptive_max_pool2d(x, {2, 3});
               }),
      of_image("PoolsOfVolumes",
               [](const Tensor& x) {
                 const Tensor volume = stack({x, x * x, x * 0.5}, 2);
                 return sum(max_pool3d(volume, {.kernel_size = 2, .stride = 1})) +
                        avg_pool3d(volume, {.kernel_size = {3, 2, 2}, .stride = 1, .padding = 1}) * 0.5;
               }),
      {"GridSample",
       [](Random& r) {
         const GridSampleOptions o{.padding_mode = r.integer(0, 1) ? GridPadding::zeros : GridPadding::border,
                                   .align_corners = r.integer(0, 1) == 1};
         return Problem{{{.shape = {2, 2, r.integer(1, 4), 5}}, {.shape = {2, 3, 2, 2}, .low = -1.4, .high = 1.4}},
                        [o](In in) { return grid_sample(in[0], in[1], o); }};
       }},
      {"EmbeddingBag",
       [](Random& r) {
         const auto mode = static_cast<BagMode>(r.integer(0, 2));
         return Problem{{{.shape = {4, 3}, .master = true}}, [mode](In in) {
                          const Tensor bags = remainder(arange(12).reshape({4, 3}) * 5, 4).to(in[0].device());
                          return embedding_bag(bags, in[0], {.mode = mode, .padding_idx = 2}) +
                                 embedding_bag(bags, in[0] * in[0], {.mode = mode});
                        }};
       }},
      {"Conv1dOfOneSize",
       [](Random& r) {
         const Conv1dOptions o{.padding = kSame, .dilation = r.integer(1, 2)};
         return Problem{{{.shape = {2, 2, 7}}, {.shape = {3, 2, r.integer(1, 4)}, .master = true}},
                        [o](In in) { return conv1d(in[0], in[1], {}, o); }};
       }},
      of_image("InstanceNorm", [](const Tensor& x) { return instance_norm(x, {}, {}, 0.1); }),
      of_image("Unfold",
               [](const Tensor& x) {
                 const UnfoldOptions o{.kernel_size = {2, 3}, .padding = 1, .stride = {2, 1}};
                 return fold(square(unfold(x, o)), {x.size(2), x.size(3)}, o) + sum(unfold(x, {.kernel_size = 2}));
               }),
      of_image("PixelShuffle",
               [](const Tensor& x) {
                 const Tensor four = cat({x, x * 2, x * x, x}, 1);
                 return pixel_unshuffle(square(pixel_shuffle(four, 2)), 2);
               }),
      of_image("InterpolateBicubic",
               [](const Tensor& x) {
                 const Tensor y = interpolate(x, {.scale_factor = 1.7, .mode = Interpolation::bicubic});
                 return interpolate(y, {.size = {{2, 5}}, .mode = Interpolation::area}) +
                        interpolate(x, {.size = {{2, 5}}, .mode = Interpolation::bicubic, .align_corners = true});
               }),
      of_image("AdaptiveAvgPool2d",
               [](const Tensor& x) {
                 return adaptive_avg_pool2d(x, {2, 3}) + adaptive_avg_pool2d(x * x, {1, 1}) +
                        sum(adaptive_avg_pool2d(x, {-1, x.size(3)}) * x);
               }),
      of_image("InterpolateNearest",
               [](const Tensor& x) {
                 const Tensor y = interpolate(x, {.scale_factor = 2.5});
                 return interpolate(square(y), {.size = {{4, 5}}});
               }),
      of_image("InterpolateBilinear",
               [](const Tensor& x) {
                 const Tensor y = interpolate(x, {.scale_factor = 1.7, .mode = Interpolation::bilinear});
                 return interpolate(y, {.size = {{2, 5}}, .mode = Interpolation::bilinear}) +
                        interpolate(x, {.size = {{2, 5}}, .mode = Interpolation::bilinear, .align_corners = true});
               }),
  };
}

std::vector<Differentiable> attention() {
  return {{"ScaledDotProductAttention",
           [](Random& r) {
             const std::int64_t heads = r.integer(1, 2), length = r.integer(2, 4), keys = r.integer(2, 4);
             const bool causal = r.integer(0, 1) == 1, floating = r.integer(0, 1) == 1, mask = r.integer(0, 1) == 1;
             return Problem{{{.shape = {2, heads, length, 3}, .low = -2, .high = 2},
                             {.shape = {2, heads, keys, 3}, .low = -2, .high = 2},
                             {.shape = {2, heads, keys, 2}},
                             {.shape = {length, keys}}},
                            [=](In in) {
                              AttentionOptions options{.is_causal = causal};
                              // Not the first key, which a causal mask leaves alone.
                              const Tensor first = le(cumsum(full_like(in[3].detach(), 1), 1), 1.5);
                              if (mask) options.attn_mask = where(first, first, gt(in[3].detach(), 0));
                              if (floating) options.attn_mask = in[3], options.scale = 0.8;
                              const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], options);
                              return floating ? y : y + sum(in[3]);
                            }};
           }},
          {"GroupedQueryAttention",
           [](Random& r) {
             const std::int64_t heads = r.integer(1, 2), group = r.integer(2, 3), keys = r.integer(2, 4);
             const bool causal = r.integer(0, 1) == 1;
             return Problem{{{.shape = {2, heads * group, 3, 3}, .low = -2, .high = 2},
                             {.shape = {2, heads, keys, 3}, .low = -2, .high = 2},
                             {.shape = {2, heads, keys, 2}}},
                            [=](In in) {
                              return scaled_dot_product_attention(in[0], in[1], in[2],
                                                                  {.is_causal = causal, .enable_gqa = true});
                            }};
           }},
          {"RotaryEmbedding", [](Random& r) {
             const std::int64_t length = r.integer(1, 3), heads = r.integer(1, 2), pairs = r.integer(1, 3);
             const bool interleaved = r.integer(0, 1) == 1;
             return Problem{{{.shape = {2, length, heads, 2 * pairs}},
                             {.shape = {length, 1, pairs}, .master = true},
                             {.shape = {length, 1, pairs}, .master = true}},
                            [=](In in) { return rotary_embedding(in[0], in[1], in[2], {.interleaved = interleaved}); }};
           }}};
}

std::vector<Differentiable> recurrent() {
  const auto layer =
      [](std::string name, std::int64_t gates,
         std::function<Tensor(const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights&, const RecurrentPass&)>
             f) {
        return Differentiable{std::move(name), [=](Random& r) {
                                const std::int64_t steps = r.integer(1, 3), n = r.integer(1, 2), in = r.integer(1, 3),
                                                   h = r.integer(1, 3);
                                const RecurrentPass pass{.batch_first = r.integer(0, 1) == 1,
                                                         .reverse = r.integer(0, 1) == 1};
                                const bool bias = r.integer(0, 1) == 1, state = r.integer(0, 1) == 1;
                                return Problem{{{.shape = pass.batch_first ? Shape{n, steps, in} : Shape{steps, n, in}},
                                                {.shape = {gates * h, in}, .master = true},
                                                {.shape = {gates * h, h}, .master = true},
                                                {.shape = {gates * h}, .master = true},
                                                {.shape = {gates * h}, .master = true},
                                                {.shape = {n, h}},
                                                {.shape = {n, h}}},
                                               [=](In in) {
                                                 RecurrentWeights w{in[1], in[2], {}, {}};
                                                 if (bias) w.bias_ih = in[3], w.bias_hh = in[4];
                                                 Tensor h = state ? in[5] : Tensor(), c = state ? in[6] : Tensor();
                                                 const Tensor y = f(in[0], h, c, w, pass);
                                                 // Inputs that take no part have zero gradients.
                                                 Tensor rest = sum(square(h));
                                                 if (c.defined()) rest = rest + sum(square(c));
                                                 for (std::size_t i : {3, 4, 5, 6})
                                                   rest = rest + cast(sum(in[i]) * 0, rest.dtype());
                                                 return y + rest;
                                               }};
                              }};
      };
  return {layer("LstmLayer", 4,
                [](const Tensor& x, Tensor& h, Tensor& c, const RecurrentWeights& w, const RecurrentPass& pass) {
                  return lstm_layer(x, h, c, w, pass);
                }),
          layer("GruLayer", 3,
                [](const Tensor& x, Tensor& h, Tensor&, const RecurrentWeights& w, const RecurrentPass& pass) {
                  return gru_layer(x, h, w, pass);
                })};
}

}  // namespace

std::vector<Differentiable> layer_functions() {
  std::vector<Differentiable> all{
      {"Unbind",
       [](Random& r) {
         return Problem{{{.shape = {r.integer(1, 3), 3, r.integer(1, 2)}}}, [](In in) {
                          const auto parts = unbind(square(in[0]), 1), last = unbind(in[0], -1);
                          return parts[0] * parts[0] + parts[2] + sum(last[0]);
                        }};
       }},
      {"Unflatten", [](Random& r) {
         return Problem{{{.shape = {r.integer(1, 3), 6, 2}}}, [](In in) {
                          return square(unflatten(in[0], 1, {2, -1})) + unflatten(in[0], -2, {2, 3});
                        }};
       }}};
  for (auto part : {sliding_windows(), attention(), recurrent()}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace lockstep::testing
